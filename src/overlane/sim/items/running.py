"""One seed of a domain with items: faults for a minute, then everything is mended and must come to rest.

Always, at every agent:
- epochs grow, and every item has a primary and a mirror that are two brokers, none of which is missing in that policy;
- a broker counts as failed only if something was wrong with it: the loss of one link between two brokers is not that.

A broker that is gone for GONE_WITHIN, while ZooKeeper and the others are well, is no item's primary any more.

Always, at clients that follow the directory:
- a message is delivered once;
- an item is published at its primary, and at its mirror if it is critical; elsewhere only if something was wrong with
  the primary, as that client sees it;
- a message of a critical item is not late as long as one of its two brokers is well;
- every message is acknowledged soon as long as one of its two brokers is well.

At the end: one master, one policy, the same at every agent; nobody is missing; the plan's normal placement; and the
case base has every single failure. Policies are not changed more often than faults explain. Every message that was
published has been acknowledged and delivered.
"""

import traceback
from collections.abc import Iterable, Iterator

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.items.plans import failure_states
from overlane.items.policy import ItemPolicy, is_sound
from overlane.network.schema import Item, Placement
from overlane.pubsub.publishing.message_ids import MessageId
from overlane.sim.items.domain import SimBroker, SimulatedDomain
from overlane.sim.items.traffic import PUBLISHER, SUBSCRIBER, Traffic
from overlane.sim.random_streams import between, chance, one_of, stream
from overlane.sim.soak.invariants import Broken
from overlane.sim.soak.running import SeedVerdict, run_each

CLIENTS = (PUBLISHER, SUBSCRIBER)
CHAOS_NS: Nanos = 60 * SECOND
REST_NS: Nanos = 150 * SECOND
GONE_WITHIN: Nanos = 6 * SECOND
BLAME: Nanos = 90 * SECOND
"""How long after a trouble a broker may still count as failed: it returns after a while only."""
TRAFFIC_REST_NS: Nanos = 40 * SECOND
"""How long clients go on after everything has been mended; they publish for the first part of it."""
SOUND: Nanos = 3 * SECOND
"""A broker that has been well for so long is one that a critical message has to arrive over in time."""
IN_TIME: Nanos = 20 * MS
JUDGED_AFTER: Nanos = 100 * MS
ACKNOWLEDGED_WITHIN: Nanos = 1600 * MS
"""A broker that has stopped is left after a second at most, and what it has not acknowledged is published again."""
SWITCHED_FOR: Nanos = 70 * SECOND
"""How long after a trouble a client may still use the mirror: it returns after up to a minute."""
CHANGES_PER_FAULT = 10
"""Policies for one fault: the promotion, the solved one, the return and what is solved then; twice where the master
changes in between, and once more for what the votes of the moment made of it."""


class ItemsWorld:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.luck = luck = stream(seed, "items")
        names = [f"west-{number}" for number in range(1, between(luck, 2, 5) + 1)]
        items = [
            Item(name=f"item-{number}", topics=(f"t{number}/#",), critical=chance(luck, 0.3))
            for number in range(between(luck, 1, 8))
        ]
        self.domain = SimulatedDomain(luck, names, items, Placement(capacity=1_000.0))
        self.domain.on_policy = self._policy_changed
        self.traffic = Traffic(self.domain, self._chosen)
        self._unsound: dict[tuple[str, str], Nanos] = {}
        """By client and broker: when something was wrong between them for the last time."""
        self._publishes = True
        self.broken: Broken | None = None
        self.policies: dict[int, ItemPolicy] = {}
        self.faults = 0
        self._troubled: dict[str, Nanos] = {}
        self._seen: dict[str, int] = {}

    def run(self) -> Broken | None:
        domain = self.domain
        domain.run(8 * SECOND)
        domain.engine.at(domain.engine.now, self._publish)
        end = domain.engine.now + CHAOS_NS
        while domain.engine.now < end and self.broken is None:
            self._trouble()
            domain.run(between(self.luck, SECOND // 5, 6 * SECOND))
        self._note_trouble()
        self._note_unsound()
        domain.heal()
        for client in self.traffic.clients:
            for name in sorted(client.cut):
                self.traffic.mend(client, name)
        domain.run(TRAFFIC_REST_NS // 2)
        self._publishes = False
        domain.run(TRAFFIC_REST_NS // 2)
        self.broken = self.broken or self._messages_lost()
        self.traffic.is_over = True
        domain.run(REST_NS - TRAFFIC_REST_NS)
        return self.broken or self._at_the_end()

    # Faults

    def _trouble(self) -> None:
        domain, luck = self.domain, self.luck
        broker = one_of(luck, list(domain.brokers.values()))
        running = len(domain.running)
        self.faults += 1
        match int(luck.random() * 10):
            case 0 if broker.is_up and running > 1:
                broker.kill()
                domain.engine.at(domain.engine.now + GONE_WITHIN, self._must_be_gone, (broker, broker._life))
            case 1 if broker.runs and running > 1:
                broker.stop()
            case 2 | 3 if not broker.runs:
                broker.start() if not broker.is_up else broker.go_on()
            case 4 if len(domain.brokers) > 2:
                other = one_of(luck, [one for one in domain.brokers.values() if one is not broker])
                domain.cuts.add(frozenset((broker.name, other.name)))
            case 5 if domain.cuts:
                domain.cuts.discard(one_of(luck, sorted(domain.cuts, key=sorted)))
            case 6:
                broker.cut_off(is_expired=chance(luck, 0.3))
            case 7:
                server = between(luck, 0, 2)
                if domain.ensemble.servers[server].is_up:
                    domain.ensemble.stop(server)
                else:
                    domain.ensemble.start(server)
            case 8 | 9:
                client = one_of(luck, list(self.traffic.clients))
                if broker.name in client.cut:
                    self.traffic.mend(client, broker.name)
                else:
                    self.traffic.cut(client, broker.name)
            case _:
                pass
        self._note_trouble()
        self._note_unsound()

    def _note_trouble(self) -> None:
        """Which brokers have something that explains that they count as failed. Cut off from ZooKeeper is that too."""
        domain, now = self.domain, self.domain.engine.now
        for broker in domain.brokers.values():
            cuts = sum(broker.name in cut for cut in domain.cuts)
            others = len([one for one in domain.running if one is not broker])
            if not broker.runs or not broker.agent.is_connected or cuts >= min(2, others):
                self._troubled[broker.name] = now
        if not domain.ensemble.has_quorum:
            self._troubled |= dict.fromkeys(domain.brokers, now)

    # Clients

    def _publish(self, _: object) -> None:
        """One message of an item, a few times a second."""
        domain = self.domain
        if not self._publishes:
            return
        self._note_unsound()
        item = one_of(self.luck, list(domain.items))
        before = len(self.traffic.sent)
        self.traffic.publish(item.name)
        if len(self.traffic.sent) > before:
            self._judge_later(item, next(reversed(self.traffic.sent)))
        domain.engine.at(domain.engine.now + between(self.luck, 20 * MS, 200 * MS), self._publish)

    def _judge_later(self, item: Item, message_id: MessageId) -> None:
        publisher, subscriber, engine = self.traffic.publisher, self.traffic.subscriber, self.domain.engine
        entry = publisher.directory.entries[item.name]
        known = subscriber.directory.entries.get(item.name)
        if item.critical and known is not None and known.epoch == entry.epoch:
            brokers = [at.broker for at in entry.brokers if (at.broker, item.name) in subscriber.legs]
            engine.at(engine.now + JUDGED_AFTER, self._must_be_in_time, (message_id, brokers))
        usable = [at.broker for at in entry.brokers if publisher.switching.is_usable(at.broker)]
        engine.at(engine.now + ACKNOWLEDGED_WITHIN, self._must_be_acknowledged, (message_id, usable))

    def _must_be_acknowledged(self, judged: tuple[MessageId, list[str]]) -> None:
        message_id, brokers = judged
        sent = self.traffic.sent[message_id]
        self._note_unsound()
        entry = self.traffic.publisher.directory.entries[sent.item]
        well = [one for one in brokers if self._is_sound(PUBLISHER, one, sent.at - SOUND)]
        if well and sent.acknowledged_at >= NEVER and entry.epoch == sent.epoch:
            self._break(
                "messages are acknowledged soon", f"{message_id} of {sent.item} is not, although {well} are well"
            )

    def _must_be_in_time(self, judged: tuple[MessageId, list[str]]) -> None:
        message_id, brokers = judged
        sent = self.traffic.sent[message_id]
        self._note_unsound()
        well = [one for one in brokers if all(self._is_sound(who, one, sent.at - SOUND) for who in CLIENTS)]
        if well and sent.arrived_at > sent.at + IN_TIME:
            self._break("critical messages are not late", f"{message_id} of {sent.item}, although {well} are well")

    def _chosen(self, item: str, broker: str) -> None:
        """The publisher hands a message to this broker."""
        entry = self.traffic.publisher.directory.entries[item]
        is_home = broker == entry.primary.broker
        is_copy = entry.critical and entry.mirror is not None and broker == entry.mirror.broker
        since = self.domain.engine.now - SWITCHED_FOR
        if not is_home and not is_copy and self._is_sound(PUBLISHER, entry.primary.broker, since):
            self._break(
                "a healthy primary is not left", f"{item} is published at {broker}, not at {entry.primary.broker}"
            )

    def _is_sound(self, client: str, broker: str, since: Nanos) -> bool:
        return self._unsound.get((client, broker), -1) < since

    def _note_unsound(self) -> None:
        now = self.domain.engine.now
        for client in self.traffic.clients:
            for name, broker in self.domain.brokers.items():
                if not broker.runs or name in client.cut or name not in client.online:
                    self._unsound[client.name, name] = now

    def _messages_lost(self) -> Broken | None:
        sent = self.traffic.sent
        twice = [key for key, one in sent.items() if one.times > 1]
        lost = [key for key, one in sent.items() if not one.times and one.acknowledged_at < NEVER]
        unanswered = [key for key, one in sent.items() if one.acknowledged_at >= NEVER]
        if twice:
            return Broken("a message is delivered once", f"{len(twice)} came again, the first is {sent[twice[0]]}")
        if lost:
            return Broken("nothing acknowledged is lost", f"{len(lost)} of {len(sent)}, the first is {sent[lost[0]]}")
        if unanswered:
            first = sent[unanswered[0]]
            return Broken(
                "every message is acknowledged", f"not {len(unanswered)} of {len(sent)}, the first is {first}"
            )
        return None

    def _must_be_gone(self, gone: tuple[SimBroker, int]) -> None:
        broker, life = gone
        domain = self.domain
        is_quiet = all(server.is_up for server in domain.ensemble.servers) and not domain.cuts
        others = [one for one in domain.brokers.values() if one is not broker]
        if broker._life != life or not is_quiet or not all(one.runs and one.agent.is_connected for one in others):
            return
        recently = domain.engine.now - GONE_WITHIN
        if any(self._troubled.get(one.name, -1) > recently for one in others):
            return
        policy = domain.policy
        still = [] if policy is None else [item for item, one in policy.places.items() if one.primary == broker.name]
        if still:
            self._break("a lost broker carries nothing", f"{broker.name} is primary of {', '.join(still)}")

    # What must hold

    def _break(self, invariant: str, detail: str) -> None:
        self.broken = self.broken or Broken(invariant, f"{detail} at {self.domain.engine.now / SECOND:.1f} s")

    def _policy_changed(self, broker: SimBroker, policy: ItemPolicy) -> None:
        self._note_trouble()
        self.traffic.policy_changed(broker)
        if policy.epoch <= self._seen.get(f"{broker.name}/{id(broker.agent)}", 0):
            self._break("epochs grow", f"{broker.name} went to epoch {policy.epoch}")
        self._seen[f"{broker.name}/{id(broker.agent)}"] = policy.epoch
        known = self.policies.setdefault(policy.epoch, policy)
        if known != policy:
            self._break("one policy for an epoch", f"epoch {policy.epoch} is {known} and {policy}")
        alive = frozenset(self.domain.brokers) - policy.missing
        items = [item.name for item in self.domain.items]
        there = {one for place in policy.places.values() for one in (place.primary, place.mirror) if one}
        if there & policy.missing or not is_sound(policy.places, items, there if len(there) < 2 else alive):
            self._break("every item has its brokers", f"epoch {policy.epoch}: {policy}")
        now = self.domain.engine.now
        for one in policy.failed:
            if now - self._troubled.get(one, -BLAME) >= BLAME:
                self._break("nobody fails without a reason", f"{one} in epoch {policy.epoch}")

    def _at_the_end(self) -> Broken | None:
        domain = self.domain
        policies = {broker.name: broker.agent.policy for broker in domain.brokers.values()}
        first = policies[min(policies)]
        plan = domain.plan
        if len(domain.masters()) != 1 or plan is None:
            return Broken("one master", f"masters are {domain.masters()}")
        if first is None or any(policy != first for policy in policies.values()):
            return Broken("agents agree", f"{policies}")
        if first.missing or dict(first.places) != plan.places:
            return Broken("the normal state returns", f"{first}, plan {plan.places}")
        lacking = [state for state in failure_states(plan) if plan.state(state) is None]
        if lacking:
            return Broken("the case base is complete", f"without {lacking}")
        if first.epoch > CHANGES_PER_FAULT * (self.faults + 2):
            return Broken("policies do not swing", f"epoch {first.epoch} after {self.faults} faults")
        return None


def run_items_seed(seed: int) -> SeedVerdict:
    world = ItemsWorld(seed)
    try:
        broken = world.run()
    except Exception as failure:  # whatever it is, it is a finding about this seed, and the next one must still run
        last = traceback.extract_tb(failure.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        broken = Broken("no agent fails by itself", f"{type(failure).__name__} in {where}: {failure}")
    return SeedVerdict(seed, sum(one.times for one in world.traffic.sent.values()), "", broken, "items")


def run_items_seeds(seeds: Iterable[int], jobs: int = 1) -> Iterator[SeedVerdict]:
    return run_each(run_items_seed, seeds, jobs)
