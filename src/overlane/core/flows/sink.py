"""Sink: messages that end at this broker, delivered to its local subscribers.

Messages from other brokers are put in order (inflow.py) and matched against the local subscription table; messages
published here are matched at once. A late subscriber gets the history of its topics: that of this broker at once, that
of other brokers as it arrives.

If receptions are required, a flow continues only after the driver has reported how a reliable parcel was received;
parcels that arrive meanwhile wait.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from overlane.core.events import Deliver, Effect, Erase, Reception, Save
from overlane.core.federation import OPEN, Federation, inner
from overlane.core.flows.arrival import Arrival, Inflow
from overlane.core.flows.border import EntryRefusals
from overlane.core.flows.gaps import Gaps
from overlane.core.flows.history import AWAITED_FOR, NAME_BYTES, Kept, TopicHistory, unwrap
from overlane.core.flows.inflow import INFLOWS, InflowName, InflowProgress, Inflows, Steps, bits_to_bytes, encode_name
from overlane.core.flows.unsolicited import Unsolicited
from overlane.core.gossip.local_interest import LocalInterest
from overlane.core.qos import QosTable
from overlane.core.records import RecordKind, owner_of_subscriber
from overlane.core.routing.forwarding.message_losses import MessageLosses
from overlane.core.topic_cache import TopicCache
from overlane.core.topics import matches
from overlane.core.units import NEVER, US, Nanos
from overlane.core.wire.control_messages import Receipt, arrived
from overlane.core.wire.frame_codec import Header, ParcelFlag
from overlane.core.wire.message_fields import RECEIPT_HOPS_MAX
from overlane.core.wire.mixed_run import Split, no_mixed_runs
from overlane.core.wire.parcel import MIXED_RUN, BadContent, FlowPart, Message, SingleMessage, unpack
from overlane.core.wire.route_answers import WayBack
from overlane.errors import InDoubt

SUBSCRIPTIONS = "subscription"
OF_A_MIXED_RUN = (MIXED_RUN,)
"""The subscribers of a mixed run: whoever has subscribed to a topic in it."""

_HISTORY = int(ParcelFlag.HISTORY)
_RELIABLE = int(ParcelFlag.RELIABLE)
_COPY = int(ParcelFlag.CONFIRM | ParcelFlag.DIRECT)


@dataclass(slots=True)
class Sink:
    me: int
    name: str
    qos: QosTable
    local: LocalInterest
    history: TopicHistory
    names: Mapping[int, str]
    """Of brokers, by their identities."""
    federation: Federation = OPEN
    asks_readers: bool = False
    """Whether the driver says how reliable messages were received."""
    effects: list[Effect] = field(default_factory=list)
    _awaiting: deque[tuple[str, str, Nanos]] = field(default_factory=deque)
    """Late subscribers: (subscriber, filter, until when history may still arrive)."""
    _matches: TopicCache[str, tuple[str, ...]] = field(default_factory=TopicCache)
    refused: EntryRefusals = field(default_factory=EntryRefusals)
    gaps: Gaps = field(default_factory=Gaps)
    unsolicited: Unsolicited = field(default_factory=Unsolicited)
    losses: MessageLosses = field(default_factory=MessageLosses)
    split: Split = no_mixed_runs
    _steps: deque[Steps] = field(default_factory=deque)
    """Of the inflows, in the order in which they were caused."""
    _asked: tuple[int, Arrival] | None = None
    """The parcel whose reception is not known yet, and its origin."""
    inflows: Inflows = field(init=False)

    def __post_init__(self) -> None:
        self.inflows = Inflows(self.me, self._save_progress, self.losses)

    # Subscribers

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None:
        if not self.local.add(subscriber, topic_filter):
            return
        if durable:
            self.effects.append(Save(SUBSCRIPTIONS, _subscription(subscriber, topic_filter), b""))
        past = [
            (kept.topic, kept.flags, kept.body) for kept in self.history.matching(topic_filter, own_only=False, now=now)
        ]
        if past:
            late = {topic: (subscriber,) for topic, _, _ in past}
            self.effects.append(Deliver(past, late, self.name, 0, NEVER))
        while self._awaiting and self._awaiting[0][2] <= now:
            self._awaiting.popleft()
        self._awaiting.append((subscriber, topic_filter, now + AWAITED_FOR))

    def unsubscribe(self, subscriber: str, topic_filter: str) -> None:
        if self.local.remove(subscriber, topic_filter):
            self.effects.append(Erase(SUBSCRIPTIONS, _subscription(subscriber, topic_filter)))
            self._awaiting = deque(entry for entry in self._awaiting if entry[:2] != (subscriber, topic_filter))

    def subscribers(self, topic: str) -> tuple[str, ...]:
        found = self._matches.get(topic)
        if found is None:
            self._matches.make_room(topic)
            found = self._matches[topic] = self.local.subscribers(topic)
        return found

    def forget_matches(self) -> None:
        """The local subscriptions have changed."""
        self._matches.clear()

    # Messages

    def confirmation(self, source: str, header: Header, came_from: str, return_path: list[str]) -> Receipt:
        """The confirmation of a parcel that requests one."""
        path = _bounded(return_path)
        return arrived(source, header.incarnation, self.name, came_from, header.sequence, header.age_us, path)

    def arrive(
        self,
        header: Header,
        content: bytes,
        now: Nanos,
        return_path: Sequence[str] = (),
        way_back: WayBack | None = None,
        is_shared: bool = False,
    ) -> None:
        """A parcel arrived for this broker; BadContent if it is malformed, InDoubt if a reliable one is half processed.

        `return_path`: to its source, against the way that it came; `way_back`: on the route that it came on;
        `is_shared`: that route leads to brokers that have not asked for it, too.
        """
        part, messages = unpack(content, header.incarnation, header.messages)
        if is_shared and self._is_unsolicited(header.origin, part, messages):
            self.unsolicited.add(messages, self.losses.of(messages))
            return
        is_history = bool(header.flags & _HISTORY)
        if is_history and any(len(body) < NAME_BYTES for _, _, body in messages):
            raise BadContent("replayed messages without names")
        deadline_ns = header.deadline_us * US if header.deadline_us else NEVER
        is_reliable = bool(header.flags & _RELIABLE)
        arrival = Arrival(
            part, messages, is_reliable, is_history, deadline_ns, header.age_us * US, now, len(content), return_path
        )
        arrival.way_back = way_back
        name = header.origin, part.incarnation, part.flow
        is_copy = header.flags & _COPY == _COPY and self.inflows.has(name, part.sequence)
        if not arrival.reliable and messages and not is_copy:
            self.gaps.came(name, part.sequence, self._topic_of(name, messages[0]))
        self._take(self.inflows.accept(header.origin, arrival, now), now)

    def _is_unsolicited(self, origin: int, part: FlowPart, messages: list[Message]) -> bool:
        """Whether nobody here has asked for any of these, or another channel has brought them."""
        if self.inflows.has((origin, part.incarnation, part.flow), part.sequence):
            return True
        try:
            split = [one[0] for topic, flags, body in messages for one in self._split(topic, flags, body)]
        except (ValueError, IndexError):
            return False  # it is refused when it is delivered
        return not any(self.subscribers(topic) for topic in dict.fromkeys(split))

    def _split(self, topic: str, flags: int, body: bytes) -> Iterable[Message]:
        return self.split(flags, body) if topic == MIXED_RUN else ((topic, flags, body),)

    def cut_through_flow(self, name: InflowName, single: SingleMessage) -> Inflow | None:
        """The flow of a single best-effort message, if it is the next one and only has to be delivered."""
        _, sequence, after, message = single
        if self.federation.enter is not None or not message[0] or self.qos.of(message[0]).history:
            return None
        return self.inflows.with_next(name, sequence, after)

    def arrive_cut_through(
        self, flow: Inflow, name: InflowName, single: SingleMessage, age_ns: Nanos, origin_name: str, now: Nanos
    ) -> None:
        """As `arrive`, for the next of such a flow."""
        _, sequence, _, message = single
        topic = message[0]
        flow.touch(age_ns, now)
        flow.next += 1
        self.gaps.came(name, sequence, topic)
        if names := self.subscribers(topic):
            self.effects.append(Deliver([message], {topic: names}, origin_name, age_ns, NEVER))

    def take_effects(self) -> list[Effect]:
        """Those that nothing else can have caused but what has arrived last."""
        if not self.effects:
            return []
        effects = self.effects.copy()
        self.effects.clear()
        return effects

    def due_receipts(self, now: Nanos) -> list[tuple[Receipt, WayBack | None]]:
        """Receipts that are due, and the way on the route that their parcels came on."""
        due = self.inflows.due_receipts(now)
        return [(self._receipt(one), one.way_back) for one in due if one.name[0] in self.names]

    def _receipt(self, progress: InflowProgress) -> Receipt:
        origin, incarnation, flow = progress.name
        return Receipt(
            self.names[origin],
            self.name,
            RECEIPT_HOPS_MAX,
            incarnation,
            flow,
            progress.next,
            bits_to_bytes(progress.beyond),
            bits_to_bytes(progress.held),
            progress.behind,
            _bounded(progress.return_path),
        )

    def release_due(self, now: Nanos) -> None:
        self._take(self.inflows.release_due(now), now)

    def readers_ready(self, now: Nanos) -> None:
        """Local readers have room again."""
        self._take(self.inflows.readers_ready(now), now)

    def delivered(self, reception: Reception, now: Nanos) -> None:
        """How the readers of the last reliable messages have received them. Errors as of `arrive`."""
        if self._asked is None:
            return
        asked, self._asked = self._asked, None
        if reception.is_taken:
            self._remember(*asked, now)
        self._go_on(now, reception)

    def _take(self, steps: Steps, now: Nanos) -> None:
        self._steps.append(steps)
        if self._asked is None:
            self._go_on(now)

    def _go_on(self, now: Nanos, reception: Reception | None = None) -> None:
        """Deliver what may be delivered, until readers have to be asked."""
        queue, failed = self._steps, None
        while queue and self._asked is None:
            try:
                origin, arrival = queue[0].send(reception)
            except StopIteration:
                queue.popleft()
                reception = None
                continue
            reception = None
            try:
                self._hand_on(origin, arrival, now)
            except Exception as error:
                if arrival.reliable or self.inflows.is_holding:
                    # Its progress may be recorded, and would be acknowledged although it was not delivered.
                    told = f"a reliable parcel of {self.names.get(origin, '?')} is half taken in"
                    raise InDoubt(told) from error
                failed = error
        if failed is not None:
            raise failed

    def _hand_on(self, origin: int, arrival: Arrival, now: Nanos) -> None:
        messages, origin_name = arrival.messages, self.names.get(origin, "?")
        if self.federation.enter is not None or self.qos.keeps_plain_history:
            messages = arrival.messages = self._opened(messages)
        if self.federation.enter is not None:
            messages = self._let_in(origin_name, arrival)
        if arrival.history:
            messages, found = self._replayed(origin, arrival, now)
        else:
            found = self._receivers(messages)
        is_reliable = arrival.reliable and not arrival.history
        if found:
            age_ns = arrival.age_ns + now - arrival.arrived_ns
            self.effects.append(Deliver(messages, found, origin_name, age_ns, arrival.deadline_ns, is_reliable))
            if is_reliable and self.asks_readers:
                self._asked = origin, arrival
                return
        if not arrival.history:
            self._remember(origin, arrival, now)

    def deliver_own(self, messages: list[Message], found: Mapping[str, tuple[str, ...]]) -> None:
        """Messages that were published at this broker, for subscribers here."""
        self.effects.append(Deliver(messages, found, self.name, 0, NEVER))

    def _receivers(self, messages: list[Message]) -> dict[str, tuple[str, ...]]:
        """By topic. Under a reserved name a message may be for this broker although nobody subscribes any more: whoever
        is told decides what becomes of it."""
        if len(messages) == 1:
            topic = messages[0][0]
            names = self._names_of(topic)
            return {topic: names} if names or topic.startswith("$") else {}
        topics = dict.fromkeys([topic for topic, _, _ in messages])
        return {topic: names for topic in topics if (names := self._names_of(topic)) or topic.startswith("$")}

    def _names_of(self, topic: str) -> tuple[str, ...]:
        return self.subscribers(topic) if topic != MIXED_RUN else OF_A_MIXED_RUN

    def _topic_of(self, name: InflowName, message: Message) -> str:
        """A topic of a flow; none where it is in a mixed run, and one of the flow is known already."""
        topic, flags, body = message
        if topic != MIXED_RUN or self.gaps.knows(name):
            return topic
        try:
            return next(self.split(flags, body))[0]
        except (ValueError, IndexError, StopIteration):
            return topic  # it will be refused when it is delivered

    def _opened(self, messages: list[Message]) -> list[Message]:
        """Where topics are told apart here, so are those in a mixed run."""
        opened: list[Message] = []
        for message in messages:
            topic, flags, body = message
            if topic != MIXED_RUN:
                opened.append(message)
                continue
            try:
                split = list(self.split(flags, body))
            except (ValueError, IndexError):
                self.refused.messages += self.losses.count(flags, body)
                continue
            is_whole = self.federation.enter is None and not any(self.qos.of(one[0]).history for one in split)
            opened += [message] if is_whole else split
        return opened

    def _let_in(self, origin_name: str, arrival: Arrival) -> list[Message]:
        """Remove the messages that may not enter this domain."""
        may_enter = self.federation.may_enter
        let_in = [message for message in arrival.messages if may_enter(message[0], origin_name)]
        if len(let_in) < len(arrival.messages):
            count = self.losses.of(arrival.messages) - self.losses.of(let_in)
            topic = next(one[0] for one in arrival.messages if not may_enter(one[0], origin_name))
            self.refused.add(origin_name, inner(topic), count)
        arrival.messages = let_in
        return let_in

    def _remember(self, origin: int, arrival: Arrival, now: Nanos) -> None:
        if not self.qos.keeps_history:
            return
        part = arrival.part
        for index, (topic, flags, body) in enumerate(arrival.messages):
            qos = self.qos.of(topic)
            if qos.history:
                name = origin, part.incarnation, part.flow, part.sequence, index
                self.effects += self.history.keep(Kept(name, topic, flags, body, qos, now - arrival.age_ns), now)

    def _replayed(self, origin: int, arrival: Arrival, now: Nanos) -> tuple[list[Message], dict[str, tuple[str, ...]]]:
        messages: list[Message] = []
        found: dict[str, tuple[str, ...]] = {}
        for topic, flags, wrapped in arrival.messages:
            name, body = unwrap(origin, wrapped)
            if self.history.knows(name):
                continue
            self.effects += self.history.keep(Kept(name, topic, flags, body, self.qos.of(topic), now), now)
            late = [who for who, wanted, until in self._awaiting if until > now and matches(wanted, topic)]
            if late:
                messages.append((topic, flags, body))
                found[topic] = tuple(dict.fromkeys(late))
        return messages, found

    # The store

    def forget_idle(self, now: Nanos) -> None:
        self.effects += [Erase(INFLOWS, encode_name(name)) for name in self.inflows.forget_idle(now)]
        if self.qos.keeps_history:
            self.effects += self.history.expire(now)

    def _save_progress(self, name: InflowName, value: bytes) -> None:
        self.effects.append(Save(INFLOWS, encode_name(name), value))


def _bounded(return_path: Sequence[str]) -> list[str]:
    """The return path of a receipt; empty if it is too long: then every hop takes the quickest path."""
    return list(return_path) if len(return_path) <= RECEIPT_HOPS_MAX else []


def _subscription(subscriber: str, topic_filter: str) -> bytes:
    return f"{subscriber}\0{topic_filter}".encode()


def read_subscription(key: bytes) -> tuple[str, str]:
    """Subscriber and filter."""
    subscriber, separator, topic_filter = key.decode().rpartition("\0")  # no filter has a null character
    if not separator:
        raise ValueError("a key without a subscriber")
    return subscriber, topic_filter


SUBSCRIPTION_KIND = RecordKind(
    SUBSCRIPTIONS,
    lambda key: owner_of_subscriber(read_subscription(key)[0]),
    lambda key, _: read_subscription(key),
)
