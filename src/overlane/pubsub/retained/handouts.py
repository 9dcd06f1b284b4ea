"""Handouts: retained messages in an overlay of edges and routing brokers.

If all brokers are plain, each keeps all retained messages. In two tiers a retained message is kept by the edge where it
was published, by edges whose clients need its topic, and by the routing broker that carries its bundle. The routing
broker sends it to brokers that need it later: an edge with a new filter gets all retained messages for it
(`$handout/EDGE/TOPIC`). Messages that arrive meanwhile from publishers that may not know this edge yet are forwarded
too, for a while. A filter that the edge needs again after an interruption is a new one, also if the routing broker does
not know of the interruption (`Uplink.renew`). An edge may know earlier than a routing broker that a bundle is assigned
to that one: a filter that arrived too early is served when the routing broker knows the assignment too.

At an edge the first subscription to a filter *awaits* handouts: those that arrive within a minute, and are later than
what was here, are delivered to it. While a routing broker of its topics is not reached, it awaits them for as long as
that takes, and a minute more. For sessions that outlive their connection this is a record, so that neither a restart
nor an offline client loses any. Later subscriptions to the same filter are served from what the edge keeps.

When a bundle moves, its edges send the retained messages that they keep of it to the new carrier, and the removals that
they know. An edge that sends an old one gets the later one: it may have been down when that was published. A former
carrier may hand out an old one: the edge sends it to the carrier of now too.
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator

from overlane.core.bundles import BUNDLES, bundle_of, bundles_of
from overlane.core.events import Erase, PublishResult, Save
from overlane.core.records import THE_BROKER, RecordKind
from overlane.core.topics import FilterTrie
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.pubsub.cluster.names import RESERVED
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.message import Message
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Subscription

TABLE = "mqtt.handout"

AWAITED_FOR: Nanos = 60 * SECOND
YOUNG_FOR: Nanos = 30 * SECOND
"""How long a filter may take to reach publishers."""
HANDED_AT_ONCE = 200
RETRY_AFTER: Nanos = 100 * MS
AWAITS = "\0"
AWAITS_ONLY = "\0\0"
"""Ahead of the topic to which a replay has come, and in its place when it is over: it awaits handouts."""
AWAITS_BESIDES = "\0\0\0"
"""As AWAITS, where the replay contains what is kept of other brokers' publishers too."""

_Task = tuple[str, Message, bool] | bytes
"""What is to be handed to which broker, and whether it was asked for; or the record of what was promised, which has
been kept when this is reached."""
_Awaiting = tuple[str, str]
"""A client and the name of its subscription."""


class Handouts:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery
        self._queue: deque[_Task] = deque()
        self._promised: list[tuple[str, str]] = []
        self._is_scheduled = False
        self._young: FilterTrie[str] = FilterTrie()
        """Filters that edges have needed for a short time only."""
        self._young_until: dict[tuple[str, str], Nanos] = {}
        """By filter and edge, earliest first; NEVER at the end, while the time is not known."""
        self._untimed: list[tuple[str, str]] = []
        self._early: dict[tuple[str, str], None] = {}
        """Young filters that concern bundles of other routing brokers, as far as is known here. They are records."""
        self._awaited: FilterTrie[_Awaiting] = FilterTrie()
        self._awaiting: dict[_Awaiting, tuple[Session, Subscription]] = {}
        self._given: dict[_Awaiting, dict[str, Nanos]] = {}
        """By topic, the stamp of what was given to one that awaits."""
        self._awaited_until: deque[tuple[Nanos, _Awaiting, bool]] = deque()
        """Whether some routing broker was not reached is looked at again then; the last: whether that was so before."""
        self._carriers: dict[int, str] = {}

    # Routing brokers

    def interest_changed(self, topic_filter: str, broker: str, is_needed: bool) -> None:
        """An edge newly needs a filter: it gets what is retained for it at this moment."""
        if not self._state.uplink.is_routing or topic_filter.startswith(RESERVED):
            return
        if is_needed:
            self._promise(broker, topic_filter)
        else:
            self._grow_up(topic_filter, broker)

    def _promise(self, broker: str, topic_filter: str) -> None:
        young = topic_filter, broker
        self._young_until.pop(young, None)
        self._young_until[young] = NEVER
        self._untimed.append(young)
        self._young.add(topic_filter, broker)
        carried = self._carried()
        handed: list[_Task] = [*self._kept_for(broker, topic_filter, carried)]
        is_early = not bundles_of(topic_filter) <= carried
        if is_early:
            self._early[young] = None
        if handed or is_early:
            self._state.batch.add(Save(TABLE, _key(broker, topic_filter), b""))
        if handed and not is_early:
            handed.append(_key(broker, topic_filter))
        self._enqueue(handed)

    def _carried(self) -> frozenset[int]:
        me = self._state.name
        return frozenset(bundle for bundle, carrier in self._state.uplink.carriers().items() if carrier == me)

    def _kept_for(self, broker: str, topic_filter: str, bundles: Container[int]) -> list[tuple[str, Message, bool]]:
        """What is retained here for a filter, in bundles that this broker carries: all else may have grown old."""
        return [
            (broker, one, True)
            for one in self._state.retained.walk(topic_filter)
            if one is not None and (bundle_of(one.topic) or 0) in bundles
        ]

    def _grow_up(self, topic_filter: str, broker: str) -> None:
        """A filter is needed no more, or for so long that everybody knows of it."""
        young = topic_filter, broker
        if self._young_until.pop(young, None) is not None:
            self._young.remove(topic_filter, broker)
        if young in self._early:
            del self._early[young]
            self._enqueue((_key(broker, topic_filter),))

    def restore(self, key: bytes, _: bytes) -> None:
        """What was promised in an earlier run has to be handed out, as it is now."""
        self._promised.append(_read_key(key))

    def _enqueue(self, handed: Iterable[_Task], when: Nanos = 0) -> None:
        self._queue.extend(handed)
        if (self._queue or self._untimed) and not self._is_scheduled:
            self._is_scheduled = True
            self._state.timers.at(when, self._hand_out)

    def _hand_out(self, now: Nanos) -> None:
        self._is_scheduled = False
        self._age(now)
        for _ in range(HANDED_AT_ONCE):
            if not self._queue:
                break
            first = self._queue[0]
            if isinstance(first, bytes):
                self._state.batch.add(Erase(TABLE, first))
            elif not self._hand(*first, now):
                self._enqueue((), now + RETRY_AFTER)
                return
            self._queue.popleft()
        if self._queue:
            self._enqueue((), now + 1)

    def _hand(self, broker: str, message: Message, is_asked: bool, now: Nanos) -> bool:
        """False if there is no room for it now."""
        if message.expires_ns <= now:
            return True
        return self._state.cluster.hand_out(broker, message, is_asked, now) is not PublishResult.BUSY

    def _hand_or_retry(self, broker: str, message: Message, now: Nanos) -> None:
        if not self._hand(broker, message, False, now):
            self._enqueue([(broker, message, False)], now + RETRY_AFTER)

    def _age(self, now: Nanos) -> None:
        if self._untimed:
            self._state.timers.at(now + YOUNG_FOR, self._age)
            for young in self._untimed:
                if self._young_until.get(young) == NEVER:
                    self._young_until[young] = now + YOUNG_FOR
            self._untimed.clear()
        while self._young_until:
            young, until = next(iter(self._young_until.items()))
            if until > now:
                break
            self._grow_up(*young)

    # Arrivals

    def arrived(self, message: Message, origin: str, is_handout: bool, is_asked: bool, now: Nanos) -> None:
        """A retained message from another broker; `is_asked`: it hands that out because of a filter of ours."""
        state = self._state
        if origin == state.name and message.payload:
            # Sent again after a restart. It was kept when it was published, and may have been replaced since.
            return
        if state.uplink.is_edge and message.payload and not self._is_kept(message.topic):
            return
        before = state.retained.stamp_of(message.topic)
        state.batch.extend(state.retained.keep_if_later(message))
        is_news = state.retained.stamp_of(message.topic) != before
        if state.uplink.is_routing:
            self._age(now)
            brokers = state.uplink.needing(message.topic) if is_handout else self._young.match(message.topic)
            for one in sorted(set(brokers)) if is_news else ():
                # An edge that has just come back was handed what was kept here, perhaps before what it had published
                # itself came: that one too.
                if one != origin or not is_handout:
                    self._hand_or_retry(one, message, now)
            latest = state.retained.latest(message.topic)
            if is_handout and latest is not None and message.published_ns < latest.published_ns:
                self._hand_or_retry(origin, latest, now)
        elif not message.payload:
            if origin == state.name:
                # Removed in an earlier run, perhaps while there was no carrier that could be told.
                self._hand_to_carrier(message, now)
        elif is_news or (is_asked and message.published_ns == before):
            self._expire(now)
            if is_handout and is_news and origin != self._carrier_of(message):
                self._hand_to_carrier(message, now)
            for awaiting in self._awaited.match(message.topic) if is_handout else ():
                given = self._given.setdefault(awaiting, {})
                if given.get(message.topic, -1) < message.published_ns:
                    given[message.topic] = message.published_ns
                    self._give(*self._awaiting[awaiting], message, now)

    def _is_kept(self, topic: str) -> bool:
        """Whether an edge keeps what is retained of a topic. If no client there needs it, nobody tells the edge of what
        follows."""
        state = self._state
        return state.retained.get(topic) is not None or bool(state.subscriptions.audience(topic).receivers)

    def _give(self, session: Session, subscription: Subscription, message: Message, now: Nanos) -> None:
        is_own = subscription.no_local and message.sender == session.publishes_as
        if is_own or not self._state.may_receive(session, message.topic):
            return
        if not self._delivery.content_filters.passes(subscription, message):
            return
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        qos = min(message.qos, subscription.qos)
        self._delivery.give(session, message, qos, True, identifiers, now, overrun=NEVER)

    # Edges

    def await_for(self, session: Session, subscription: Subscription, now: Nanos, is_own_only: bool = True) -> None:
        """A subscription gets what is handed to this broker for it from now on. `is_own_only`: and of what is kept here
        already, only what was published here."""
        self._expire(now)
        awaiting = session.client_id, subscription.name
        self.forget(session, subscription.name)
        self._awaiting[awaiting] = session, subscription
        self._awaited.add(subscription.filter, awaiting)
        self._await_longer(awaiting, subscription, now)
        progress = session.replays.get(subscription.name, "")
        if session.is_durable and subscription.qos and not progress.startswith(AWAITS):
            session.replays[subscription.name] = (AWAITS if is_own_only else AWAITS_BESIDES) + progress
            self._state.batch.add(session.saved_replay(subscription.name))

    def _await_longer(self, awaiting: _Awaiting, subscription: Subscription, now: Nanos) -> None:
        is_cut_off = self._is_cut_off(subscription)
        self._awaited_until.append((now + AWAITED_FOR, awaiting, is_cut_off))
        if is_cut_off:
            self._state.timers.at(now + AWAITED_FOR, self._expire)

    def _is_cut_off(self, subscription: Subscription) -> bool:
        """Whether a routing broker that has to hand out something for it is not known, or not reached."""
        uplink = self._state.uplink
        carriers = uplink.carriers()
        names = {carriers.get(bundle) for bundle in bundles_of(subscription.filter)}
        return any(name is None or not uplink.can_reach(name) for name in names)

    def forget(self, session: Session, name: str) -> None:
        """The subscription has ended."""
        found = self._awaiting.pop((session.client_id, name), None)
        self._given.pop((session.client_id, name), None)
        if found is not None:
            self._awaited.remove(found[1].filter, (session.client_id, name))

    def _expire(self, now: Nanos) -> None:
        while self._awaited_until and self._awaited_until[0][0] <= now:
            _, awaiting, was_cut_off = self._awaited_until.popleft()
            if awaiting in self._awaiting and not any(one == awaiting for _, one, _ in self._awaited_until):
                session, subscription = self._awaiting[awaiting]
                if was_cut_off or self._is_cut_off(subscription):
                    self._await_longer(awaiting, subscription, now)
                    continue
                self.forget(session, subscription.name)
                self._awaits_no_more(session, subscription.name)

    def _awaits_no_more(self, session: Session, name: str) -> None:
        progress = session.replays.get(name, "")
        if not progress.startswith(AWAITS):
            return
        if progress == AWAITS_ONLY:
            del session.replays[name]
            if session.is_known:
                self._state.batch.add(session.erased_replay(name))
        else:
            session.replays[name] = progress.lstrip(AWAITS)
            self._state.batch.add(session.saved_replay(name))

    def is_awaited(self, topic_filter: str) -> bool:
        return bool(self._awaited.values_of(topic_filter))

    def resume(self, session: Session, now: Nanos) -> None:
        """A session goes on to await what it did."""
        for name, after in list(session.replays.items()):
            is_new = after.startswith(AWAITS) and (session.client_id, name) not in self._awaiting
            if is_new and (subscription := session.subscriptions.get(name)) is not None:
                self.await_for(session, subscription, now)
                self._state.uplink.renew(subscription.filter, now)

    def recovered(self, now: Nanos) -> None:
        """After a restart: sessions go on to await what they did."""
        for session in self._state.sessions.values():
            self.resume(session, now)
        promised, self._promised = self._promised, []
        for broker, topic_filter in promised:
            self._promise(broker, topic_filter)

    def needed_no_more(self, topic_filter: str) -> None:
        """No client here needs a filter any more: what was kept for it, and is from elsewhere, would grow old."""
        state = self._state
        if not state.uplink.is_edge:
            return
        for kept in list(state.retained.walk(topic_filter)):
            if kept is not None and not kept.sender and not state.subscriptions.audience(kept.topic).receivers:
                state.batch.extend(state.retained.remove(kept.topic))

    def reassigned(self, now: Nanos) -> None:
        """Bundles may have moved: their new carriers get what is kept of them at edges, and serve filters that they
        were told before they knew."""
        state = self._state
        if not state.uplink.is_edge and not state.uplink.is_routing:
            return
        before, self._carriers = self._carriers, dict(state.uplink.carriers())
        moved = {one for one in range(BUNDLES) if one in self._carriers and self._carriers[one] != before.get(one)}
        if moved and state.uplink.is_edge:
            self._enqueue(self._kept_in(moved), now)
        elif gained := moved & self._carried():
            for topic_filter, broker in self._early:
                self._enqueue(self._kept_for(broker, topic_filter, gained), now)

    def _carrier_of(self, message: Message) -> str | None:
        return self._state.uplink.carriers().get(self._state.uplink.bundle_of(message.topic) or 0)

    def _hand_to_carrier(self, message: Message, now: Nanos) -> None:
        carrier = self._carrier_of(message)
        if self._state.uplink.is_edge and carrier is not None:
            self._enqueue([(carrier, message, False)], now)

    def _kept_in(self, bundles: Container[int]) -> Iterator[_Task]:
        """For the carriers of these bundles."""
        retained, bundle_of = self._state.retained, self._state.uplink.bundle_of
        for kept in (*retained.walk("#"), *retained.removals()):
            if kept is not None and (bundle := bundle_of(kept.topic)) is not None and bundle in bundles:
                yield self._carriers[bundle], kept, False


def _key(broker: str, topic_filter: str) -> bytes:
    return f"{broker}\0{topic_filter}".encode()


def _read_key(key: bytes) -> tuple[str, str]:
    broker, separator, topic_filter = key.decode().partition("\0")
    if not separator:
        raise ValueError("a key without a broker")
    return broker, topic_filter


HANDOUT_KIND = RecordKind(TABLE, lambda _: THE_BROKER, lambda key, _: _read_key(key))
