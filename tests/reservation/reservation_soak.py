"""Random networks, requests and faults, judged by the invariants."""

from random import Random

from invariants import admitted, disagreements, left_over, overbooked, release_all, unkept

from overlane.planning.reserve import TSpec
from overlane.reservation.contract import Ask, Broker, Event, Offer
from overlane.reservation.link_ledger import LinkTerms
from overlane.reservation.rsvp.objects import Style
from overlane.reservation.soft_state import SECOND
from overlane.sim.reservation_network import SimulatedReservations, Weather

MS = 1_000_000
CALM = Weather()
RESTORED_NS = 15 * SECOND
"""When another path is no longer sought."""
QUIET_NS = 400 * SECOND
"""Twice the lifetime of state that is not refreshed, and more."""


class WatchedNetwork(SimulatedReservations):
    """Looks at the ledgers of a broker whenever it has done something."""

    overbooked: list[str]

    def tell(self, broker: Broker, event: Event) -> None:
        super().tell(broker, event)
        for peer, ledger in self.agents[broker].ledgers.items():
            if sum(rate for _, rate in ledger) > ledger.terms.capacity:
                self.__dict__.setdefault("overbooked", []).append(f"{broker} to {peer} after {event}")


def random_links(luck: Random, brokers: int) -> list[tuple[Broker, Broker, LinkTerms]]:
    pairs = {(luck.randrange(1, one), one) for one in range(2, brokers + 1)}
    while len(pairs) < 2 * brokers:
        one, other = sorted(luck.sample(range(1, brokers + 1), 2))
        pairs.add((one, other))
    return [(*pair, random_terms(luck)) for pair in sorted(pairs)]


def random_terms(luck: Random) -> LinkTerms:
    return LinkTerms(luck.choice([20_000.0, 50_000.0, 100_000.0]), luck.randrange(500, 20_000), 0.8, 1500)


def random_tspec(luck: Random) -> TSpec:
    rate = luck.choice([1000.0, 3000.0, 7777.7, 15_000.0])
    return TSpec(rate, rate + 1000, luck.choice([rate, 2 * rate, float("inf")]), 100, 1000)


class Soak:
    def __init__(self, seed: int, weather: Weather) -> None:
        self.luck = Random(seed)
        self.links = random_links(self.luck, self.luck.randrange(6, 11))
        self.net = WatchedNetwork(self.links, seed)
        self.net.weather = weather
        self.brokers = sorted(self.net.agents)
        self.topics = {f"topic/{number}": self.luck.choice(list(Style)) for number in range(6)}
        self.count = 0
        for topic in self.topics:
            for broker in self.luck.sample(self.brokers, self.luck.choice([1, 1, 2])):
                self.net.offer(broker, Offer(topic, random_tspec(self.luck)))

    def step(self) -> None:
        net, luck = self.net, self.luck
        what = luck.random()
        if what < 0.55 or not net.asks:
            topic = luck.choice(sorted(self.topics))
            latency_s = luck.choice([None, None, 0.3, 1.0, 3.0])
            self.count += 1
            ask = Ask(f"request {self.count}", topic, random_tspec(luck), latency_s, self.topics[topic])
            net.ask(luck.choice(self.brokers), ask)
        elif what < 0.8:
            net.release(luck.choice(sorted(net.asks)))
        elif what < 0.87:
            one, other, _ = luck.choice(self.links)
            net.fail(one, other)
        elif what < 0.94:
            one, other, _ = luck.choice(self.links)
            net.heal(one, other)
        elif what < 0.97:
            one, other, _ = luck.choice(self.links)
            net.change(one, other, random_terms(luck))
        else:
            net.restart(luck.choice(self.brokers))
        net.run(luck.choice([1, 30, 300, 3000]) * MS)

    def violations(self, steps: int) -> list[str]:
        for _ in range(steps):
            self.step()
        found = []
        if self.net.weather is CALM:
            self.net.run(RESTORED_NS)
            found += disagreements(self.net)
        self.net.weather = CALM
        for one, other, _ in self.links:
            self.net.heal(one, other)
        self.net.run(RESTORED_NS)
        before = admitted(self.net)
        self.net.run(QUIET_NS)
        found += [f"{request}: lost for no reason" for request in before - admitted(self.net)]
        found += [*getattr(self.net, "overbooked", []), *overbooked(self.net), *unkept(self.net)]
        found += disagreements(self.net)
        release_all(self.net)
        return [*found, *left_over(self.net)]
