"""Neighbour: everything that belongs to one link.

Sending: control frames first, in order and numbered; then pings, pongs and hop acknowledgements; then parcels as the
link queue orders them. Receiving: bytes are split into frames; the first must be a greeting, and control frames must
come in order. Parcels whose hop acknowledgement is overdue are handed back for repair; every answer measures the link.
"""

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from overlane.core.events import Lane
from overlane.core.links.described_routes import DescribedRoutes
from overlane.core.links.fragmentation import Reassembly
from overlane.core.links.hop_acknowledgements import HOP_ACK_DELAY, HopAckGenerator, UnacknowledgedParcels
from overlane.core.links.interest_transfer import InterestTransfers
from overlane.core.links.link_health import LinkHealth, LinkState
from overlane.core.links.link_queue import LinkQueue, QueuedItem
from overlane.core.links.reserved_lane import ReservedLane
from overlane.core.links.signals import Signals
from overlane.core.units import MS, NEVER, US, Nanos
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import ControlMessage, Establish, Farewell, LinkClaim, encode, encode_checked
from overlane.core.wire.frame_codec import AGE_US_MAX, Header, HopAck, ParcelFlag, RouteName
from overlane.core.wire.message_fields import REASON_LENGTH_MAX
from overlane.core.wire.name_table import ReceivedNames, SentNames
from overlane.errors import ProtocolViolation

GREETING_WITHIN: Nanos = 5000 * MS
CONTROL_BYTES_MAX = 8 << 20
HOP_ACK_AHEAD: Nanos = 25 * MS
"""A hop acknowledgement that is due within this time is sent along with a parcel to the same neighbour."""
LATE_MIN: Nanos = 1 * MS
"""A broker that checks its links this much later than scheduled was busy or suspended."""
ASK_GAP: Nanos = 15 * MS
"""If there is only nearly time for a repair, one parcel per such gap requests an acknowledgement at once."""
ACK_AT_ONCE_LAXITY: Nanos = 150 * MS
"""A parcel with more laxity than this can wait for a delayed acknowledgement."""
HURRY = 4
"""A parcel with less laxity than this fraction of the acknowledgement's timeout cannot be repaired in time."""
URGENT_MAX = 4096
"""Pings, pongs and hop acknowledgements that wait; of more, the oldest are dropped."""

_ACK_AT_ONCE = int(ParcelFlag.ACK_AT_ONCE)
_REPAIR = int(ParcelFlag.REPAIR)
_ACK_REQUESTED = int(ParcelFlag.ACK_REQUESTED)

_CONTROL, _DATA = Lane.CONTROL, Lane.DATA

Chunk = tuple[Lane, bytes]


@dataclass(slots=True)
class OutgoingParcel:
    """A parcel to one neighbour: on its route, or, as a detour, on the path that it carries."""

    header: Header
    rest: bytes | memoryview
    entered_ns: Nanos
    """When it came into this broker; its header's age is of that moment."""
    due_ns: Nanos
    ahead_ns: Nanos
    hop_count: int = 1
    """Links of its whole path."""
    hops: tuple[int, ...] = ()
    position: int = 0
    describe: Callable[[str], bytes] | None = None
    """Makes the ROUTE frame that goes ahead of it to a neighbour, while that may not know the route."""
    repairs: int = 0
    """How often it may still be repaired on this link."""
    is_repair: bool = False
    """It has been sent before, or takes a path of its own: it does not measure this broker's own delay."""
    is_copy: bool = False
    """It has been sent to the same destinations before: dropping it does not count as a loss."""
    flow: tuple[int, int] | None = None
    """The reserved flow that it belongs to."""


class Neighbour:
    def __init__(
        self, name: str, scheduling: str, queue_bytes_max: int, ping_interval_ns: Nanos, signals: Signals | None = None
    ) -> None:
        self.name = name
        self._signals = signals or Signals()
        self._group = self._signals.join(self)
        self.identity = frame_codec.broker_id(name)
        self.health = LinkHealth(ping_interval_ns)
        self.queue = LinkQueue(scheduling, queue_bytes_max)
        self.incarnation = 0
        self.tier = 0
        """From its greeting (`frame_codec.Hello`)."""
        self.is_encrypted = False
        """Whether only the two brokers can read its data."""
        self.reported_state = LinkState.FAILED
        self.claimed: LinkClaim | None = None
        """What was last advertised of this link."""
        self._reset()

    def _reset(self) -> None:
        self.wake_at: Nanos | None = None
        """The next deadline; None if it has to be computed again."""
        self.touch()
        self._signals.ready.discard(self.name)
        self.connected = False
        self.greeted = False
        self._greeting_due: Nanos = NEVER
        self._control_out: deque[bytes] = deque()
        self._control_bytes = 0
        self._control_sent = 0
        self._control_seen = 0
        self._sent_names = SentNames()
        self.received_names = ReceivedNames()
        self.routes = DescribedRoutes()
        self._urgent: deque[bytes] = deque(maxlen=URGENT_MAX)
        self.leftover: dict[Lane, bytes] = {}
        """Incomplete frames, by lane."""
        self.reassembly = Reassembly()
        self.transfers = InterestTransfers()
        """Complete sets of filters that it requested."""
        self.has_scope_news = False
        """Whether there are changes to send of filters and groups that it shares with this broker."""
        self.parked: tuple[bytes, RouteName, int, int, Nanos] | None = None
        """A parked parcel (cut-through): frame, route, age and number of messages, and when it was parked."""
        self._asked_ns: Nanos = -NEVER
        """When a parcel was last sent that requested its acknowledgement at once."""
        self._unacknowledged: UnacknowledgedParcels[OutgoingParcel] = UnacknowledgedParcels()
        self.hop_acks = HopAckGenerator()
        self._looks_again = False

    # The connection

    def connect(self, me: str, incarnation: int, now: Nanos, instance: int = 0, tier: int = 0) -> None:
        self._reset()
        self.connected = True
        self.health.standby_ns = 0
        self._greeting_due = now + GREETING_WITHIN
        self._push_control(frame_codec.hello(me, incarnation, instance, tier))

    def greet(self, incarnation: int, now: Nanos, tier: int = 0) -> None:
        """Its greeting came: all other frames are accepted now."""
        self.greeted = True
        self.tier = tier
        self.incarnation = incarnation
        self.health.connected(now)
        self.touch()

    def disconnect(self, now: Nanos, *, is_replaced: bool = False) -> tuple[list[OutgoingParcel], list[OutgoingParcel]]:
        """The connection is gone, or replaced by another; returns the parcels that were sent but not acknowledged, and
        those that were waiting."""
        unacknowledged = self._unacknowledged.take_all()
        waiting = [cast(OutgoingParcel, item.chunk) for item in self.queue.drain()]
        if self.parked is not None:
            waiting.append(_unparked(*self.parked)[0])
        self._reset()
        if not is_replaced:
            self.health.broken(now)
        return unacknowledged, waiting

    # Out

    def send(self, message: ControlMessage) -> None:
        if not self.connected:
            return
        if (frame := self._control_frame(message)) is not None:
            self._push_control(frame)

    def describe_route(self, key: bytes, message: Establish, now: Nanos) -> None:
        """Tell it of a version of a route: parcels on that need not describe it."""
        if not self.connected:
            return
        short = self._sent_names.shorten(message)
        frame = self._control_frame(message if short is None else short)
        if frame is not None:
            if short is not None:
                self._sent_names.sent(short)
            self.routes.sent(key, now)
            self._push_control(frame)

    def send_frame(self, frame: bytes) -> None:
        """A frame that is sent in order with control messages."""
        if self.connected:
            self._push_control(frame)

    def _control_frame(self, message: ControlMessage) -> bytes | None:
        """None for a message that the neighbour would refuse: it is skipped."""
        try:
            frame = frame_codec.control(self._control_sent, encode_checked(message))
        except ValueError as error:
            self._signals.fail("message", self.name, error)
            return None
        self._control_sent = (self._control_sent + 1) & 0xFFFFFFFF
        return frame

    def want(self, broker: str) -> None:
        """Send it the complete interest of a broker, in parts, as the link has room."""
        if self.connected:
            self.transfers.want(broker)
            self._signals.ready.add(self.name)

    def want_scope(self) -> None:
        """Send it shared filters and groups, as the link has space."""
        if self.greeted:
            self.has_scope_news = True
            self._signals.ready.add(self.name)

    @property
    def has_sets(self) -> bool:
        """Whether there are messages to be made when the link has room for them."""
        return self.has_scope_news or self.transfers.is_active

    def pull_message(self, message: ControlMessage) -> Chunk | None:
        """A message that is sent at once; no control frame may be waiting that belongs before it."""
        frame = self._control_frame(message)
        return None if frame is None else (_CONTROL, frame)

    def farewell(self, reason: str, *, is_name_taken: bool = False) -> bytes:
        """The last frame before the connection is closed."""
        return frame_codec.control(self._control_sent, encode(Farewell(reason[:REASON_LENGTH_MAX], is_name_taken)))

    def send_urgent(self, frame: bytes) -> None:
        self._urgent.append(frame)
        self._signals.ready.add(self.name)

    def enqueue(self, item: QueuedItem, now: Nanos) -> list[QueuedItem]:
        """A parcel for this neighbour; returns what was dropped for lack of room."""
        self._signals.ready.add(self.name)
        if self.parked is not None:
            self.unpark()
        return self.queue.push(item, now)

    def unpark(self) -> None:
        """Treat a parked frame, if there is one, like every other parcel."""
        if self.parked is not None:
            out, size = _unparked(*self.parked)
            self.parked = None
            self.queue.push(QueuedItem(out, size, out.entered_ns, NEVER, droppable=True), out.entered_ns)

    def takes(self, size: int) -> bool:
        """Whether a reliable parcel of this size finds room, or will not find any by waiting."""
        return not self.connected or self.queue.takes(size)

    def park(self, frame: bytes, name: RouteName, age_us: int, messages: int, now: Nanos) -> None:
        """Send a plain parcel as the frame that it is, unless another parcel comes first. `age_us` is its age now."""
        self._signals.ready.add(self.name)
        self.parked = frame, name, age_us, messages, now

    @property
    def queue_bytes(self) -> int:
        return self.queue.bytes + (self.queue.charge(len(self.parked[0])) if self.parked is not None else 0)

    def is_greeting_overdue(self, now: Nanos) -> bool:
        """The connection is open, but no greeting was received in time."""
        return self.connected and not self.greeted and now >= self._greeting_due

    @property
    def is_blocked(self) -> bool:
        """Too many control frames wait: the connection is open but takes nothing."""
        return self._control_bytes > CONTROL_BYTES_MAX

    @property
    def may_transfer(self) -> bool:
        """Whether a part of a set of filters can be made now: earlier changes must have been sent."""
        return self.has_sets and not self._control_out

    @property
    def has_control(self) -> bool:
        """Whether there is something to send that is not a parcel."""
        return bool(self._control_out or self._urgent)

    def pull_control(self) -> Chunk | None:
        """The next chunk that is not a parcel."""
        if self._control_out:
            frame = self._control_out.popleft()
            self._control_bytes -= len(frame)
            return _CONTROL, frame
        if self._urgent:
            return _DATA, self._urgent.popleft()
        return None

    def pull_probe(self) -> bytes | None:
        """The next ping, pong or hop acknowledgement."""
        return self._urgent.popleft() if self._urgent else None

    def pull_hop_ack(self, now: Nanos) -> bytes:
        """The acknowledgement that is due soon: it costs next to nothing behind a parcel to the same neighbour."""
        self._wake()
        return frame_codec.hop_ack(*self.hop_acks.take(now))

    def pull_parcel(
        self, now: Nanos, in_buffer: int, is_urgent: bool = False
    ) -> tuple[OutgoingParcel | None, bytes, list[QueuedItem]]:
        """The parcel to send next with its bytes, and parcels that can no longer be in time."""
        lane = self.queue.reserved
        finish_ns = NEVER if lane is None else lane.first_finish_ns
        item, dropped = self.queue.pull_urgent(now, in_buffer) if is_urgent else self.queue.pull(now, in_buffer)
        while item is not None:
            out: OutgoingParcel = item.chunk  # nothing else is ever queued here
            try:
                data = self._transmit(out, now, is_urgent)
                return out, data if lane is None else lane.fragments.begin(data, finish_ns, now), dropped
            except (struct.error, ValueError) as error:
                self._signals.fail("parcel", self.name, error)
            item, more = self.queue.pull_urgent(now, in_buffer) if is_urgent else self.queue.pull(now, in_buffer)
            dropped += more
        return None, b"", dropped

    def pull_part(
        self, lane: ReservedLane, now: Nanos, in_buffer: int
    ) -> tuple[OutgoingParcel | None, bytes, list[QueuedItem]]:
        """As `pull_parcel`, or without a parcel the next part of one that has begun."""
        if lane.goes_on:
            return None, lane.fragments.go_on(now), []
        return self.pull_parcel(now, in_buffer + lane.fragments.rest_bytes)

    def _transmit(self, out: OutgoingParcel, now: Nanos, is_urgent: bool) -> bytes:
        """The bytes of a parcel as it leaves: with its age updated, and numbered if it is to be acknowledged."""
        header = out.header
        if len(out.rest) > frame_codec.CONTENT_BYTES_MAX:
            raise ValueError(f"a parcel of {len(out.rest)} bytes does not fit a frame of {frame_codec.FRAME_BYTES_MAX}")
        age_us = header.age_us + (now - out.entered_ns) // US
        if age_us > AGE_US_MAX:
            age_us = AGE_US_MAX
        number = 0
        if header.flags & _ACK_REQUESTED:
            patience_ns = self.health.patience_ns
            # An acknowledgement at once helps if a lost parcel can be sent again in time, but not much later, and if
            # there is nearly time for that: the sooner a change is known, the fewer follow over the link in vain.
            laxity_ns = out.due_ns - now
            prompt = (
                bool(header.flags & _REPAIR) and laxity_ns < ACK_AT_ONCE_LAXITY and patience_ns <= HURRY * laxity_ns
            )
            if prompt and patience_ns > laxity_ns:
                prompt = now >= self._asked_ns + ASK_GAP
            if prompt:
                self._asked_ns = now
                header = header._replace(flags=header.flags | _ACK_AT_ONCE)
            elif header.flags & _ACK_AT_ONCE:
                header = header._replace(flags=header.flags & ~_ACK_AT_ONCE)
            number = self._unacknowledged.add(out, prompt, now)
            self._wake_by(now + patience_ns if prompt else now + patience_ns + HOP_ACK_DELAY)
        if out.hops:
            header = header._replace(age_us=age_us, hop_sequence=number)
            return frame_codec.detour(out.hops, out.position, header, out.rest)
        if out.describe is not None and (is_urgent or not self._was_told_of(out, now)):
            return out.describe(self.name) + frame_codec.parcel(header, out.rest, age_us, number)
        return frame_codec.parcel(header, out.rest, age_us, number)

    def _was_told_of(self, out: OutgoingParcel, now: Nanos) -> bool:
        """Whether the description of a parcel's route has gone ahead, on a link that loses nothing: it arrives, soon or
        before the parcel."""
        if out.is_repair or self._control_out or self.health.loss_millionths or self.health.state is not LinkState.UP:
            return False
        header = out.header
        key = frame_codec.route_key(header.origin, header.incarnation, header.route, header.version)
        return self.routes.was_sent_lately(key, now)

    # In

    def frames(self, data: bytes, lane: Lane) -> list[tuple[int, memoryview]]:
        if self.leftover and (leftover := self.leftover.pop(lane, b"")):
            data = leftover + data
        frames, used = frame_codec.split(data)
        if used < len(data):
            self.leftover[lane] = data[used:]
        return frames

    def check_order(self, sequence: int) -> None:
        if sequence != self._control_seen:
            raise ProtocolViolation(f"control frame {sequence} where {self._control_seen} was due: replayed or lost")
        self._control_seen = (self._control_seen + 1) & 0xFFFFFFFF

    def answered(self, token: int, now: Nanos) -> None:
        self.touch()
        self.health.answered(token, now)

    def path_changed(self, rtt_ns: Nanos, now: Nanos) -> None:
        """Another path is used, and unacknowledged data was sent again over it."""
        self.health.path_changed(rtt_ns, now)
        self._unacknowledged.sent_again(self.health.patience_ns, now)
        self.touch()

    def ask(self, at: Nanos) -> None:
        """Probe the link: another link of this broker has changed, and this one may have, too."""
        if self.greeted:
            self.health.ask(at)
            self._wake()

    def schedule_hop_ack(self, header: Header, now: Nanos, waited_ns: Nanos = 0) -> None:
        """Acknowledge a received parcel, if it requests that: now or later. It came so much earlier."""
        if header.hop_sequence:
            hop_acks = self.hop_acks
            hop_acks.came(header.hop_sequence, bool(header.flags & _ACK_AT_ONCE), now, waited_ns)
            self._wake_by(hop_acks.due_ns)

    def handle_hop_ack(self, hop_ack: HopAck, now: Nanos) -> None:
        """The neighbour acknowledges parcels."""
        self.touch()
        told = self._unacknowledged.handle_hop_ack(hop_ack, now)
        for _ in range(told.lost):
            self.health.lost(now)
        self.health.came(told.came)
        if told.rtt_ns is not None:
            self.health.observed(told.rtt_ns, now, told.late)
            self.health.attested(now)
        elif told.came and hop_ack.highest <= self._unacknowledged.twice_until:
            self.health.answers(now)

    # Time

    def next_deadline(self) -> Nanos:
        if self.wake_at is None:
            self.wake_at = self._find_deadline()
        return self.wake_at

    def _find_deadline(self) -> Nanos:
        if not self.connected:
            return NEVER
        if not self.greeted:
            return self._greeting_due
        patience_ns = self.health.patience_ns
        return min(self.health.next_deadline(), self.hop_acks.due_ns, self._unacknowledged.next_overdue(patience_ns))

    def touch(self) -> None:
        """The link's state may have changed: its next deadline and its claim are computed again."""
        self._signals.touched[self.name] = None
        self._wake()

    def _wake(self) -> None:
        self.wake_at = None
        self._group.woken = True
        self._signals.woken = True

    def _wake_by(self, when: Nanos) -> None:
        """Additional work is due at this time."""
        if self.wake_at is not None and when < self.wake_at:
            self.wake_at = when
            if when < self._group.wake_at:
                self._group.wake_at = when
            if when < self._signals.wake_at:
                self._signals.wake_at = when

    def tick(self, now: Nanos) -> list[OutgoingParcel]:
        """Send pings and hop acknowledgements that are due; return the parcels whose acknowledgement is overdue.

        Where this broker itself comes late, the answers may have come and lie unread: it looks once more after it has
        read them before it blames the link, and gives every answer so much more time as it is late itself.
        """
        lag_ns = now - self.next_deadline()
        is_late = lag_ns > LATE_MIN
        self.health.lagged(lag_ns if is_late else 0)
        self._wake()
        if not self.greeted:
            return []
        self.touch()
        self._looks_again = is_late and not self._looks_again
        overdue = [] if self._looks_again else self._unacknowledged.take_overdue(self.health.patience_ns, now)
        for _ in overdue:
            self.health.silent(now)
        if (token := self.health.tick(now, judges=not self._looks_again)) is not None:
            self.send_urgent(frame_codec.ping(token))
        if now >= self.hop_acks.due_ns:
            self.send_urgent(frame_codec.hop_ack(*self.hop_acks.take(now)))
        return overdue

    def take_unacknowledged(self) -> list[OutgoingParcel]:
        """All unacknowledged parcels, when no acknowledgement is expected any more."""
        self._wake()
        return self._unacknowledged.take_all()

    def _push_control(self, frame: bytes) -> None:
        self._control_out.append(frame)
        self._control_bytes += len(frame)
        self._signals.ready.add(self.name)


def _unparked(
    frame: bytes, name: RouteName, age_us: int, _messages: int, entered_ns: Nanos
) -> tuple[OutgoingParcel, int]:
    """A parked frame as a normal parcel, and its size."""
    header, rest = frame_codec.read_parcel(memoryview(frame)[frame_codec.FRAME_OVERHEAD :], name)
    return OutgoingParcel(header._replace(age_us=age_us), rest, entered_ns, NEVER, 0), len(frame)
