"""A turn: everything that arrived in one iteration of a loop, its effects, its records, their commit, and what waited.

    closed -- open (an input) --> open -- end --> closed: an Outcome, with at most one batch of records
    a batch -- submitted by the driver --> on disk -- committed --> an Outcome, with what waited for it

`end` takes the effects of the core, then those of the service for clients of all protocols, in this order: deliveries
of the core make records of the service that belong to the same batch. Packets that depend on records of the turn wait
for the batch, or for the last submitted one if the turn has none of its own. Batches are committed in the order in
which they were submitted. When no batch is pending, all ended turns are durable.

Bytes of a neighbour that are only for other brokers need no turn: `receive` returns PASSED, and the links may send. A
single message for clients here does not wait for others to share a turn, if nothing else has happened.

Nothing here does I/O or reads a clock. Everything that the driver has to do is in an Outcome, whose parts are carried
out in the order in which the class lists them. An exception leaves the turn incomplete: the driver has to end the
broker (decision 10).
"""

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, assert_never

from overlane.core.broker import OverlayBroker
from overlane.core.config import PLAIN
from overlane.core.events import (
    BrokersRefused,
    Close,
    DeadlineUnmeetable,
    Deliver,
    DirectLinksWanted,
    Effect,
    Erase,
    Event,
    HeldMessageSent,
    InterestChanged,
    Lane,
    LaterIncarnationKnown,
    LinkChanged,
    LinkDown,
    LinkUp,
    NameConflict,
    NeighbourSaid,
    PathSuspected,
    PathTrusted,
    ReadersReady,
    RecordChange,
    RefusedAtBorder,
    ReportedEffect,
    RequirementChanged,
    RouteChanged,
    RouteEstablished,
    Save,
    ScopeChanged,
    SetConfig,
    Tick,
)
from overlane.core.gossip.interest import record_bytes
from overlane.core.units import NEVER, Nanos
from overlane.errors import Failure
from overlane.membership.neighbours import NeighbourChanges, NeighbourConfig, neighbour_changes, neighbours_of
from overlane.mqtt.server import MqttServer
from overlane.pubsub.cluster.arrivals import Mixed
from overlane.pubsub.contract.connection import ClientConnection
from overlane.pubsub.contract.protocol import AnyServer
from overlane.pubsub.contract.questions import Question
from overlane.pubsub.notices import Notice
from overlane.pubsub.state import SLOW_COMMIT
from overlane.turn.backpressure import TURN_MAX, Backpressure
from overlane.turn.layers import Layers
from overlane.turn.protocols import MQTT, PROTOCOLS
from overlane.turn.reconfigure import Reconfigure, reconfigured
from overlane.turn.reserving import RsvpNetwork, is_rsvp
from overlane.turn.uplink import CoreUplink

Records = dict[tuple[str, bytes], bytes | None]
"""By table and key; None erases."""
Packets = tuple[ClientConnection, list[bytes], bool]
"""For one client; whether they wait for the batch of the turn, or for the one submitted last if it has none."""
Delivered = tuple[Deliver, Sequence[Mixed]]
"""Deliveries of the overlay, and the contents of their mixed runs."""
Told = Close | LaterIncarnationKnown | ScopeChanged | DirectLinksWanted | ReportedEffect
"""Effects that are for the driver to carry out, or for people to know."""


NOTHING: Final[Mapping[str, int]] = {}


class ReceiveResult(Enum):
    """What bytes of a neighbour have led to, if not to an Outcome."""

    PASSED = 0
    """Nothing is to be done but to let the links send."""
    NEEDS_TURN = 1
    """The turn has to be ended."""


PASSED, NEEDS_TURN = ReceiveResult.PASSED, ReceiveResult.NEEDS_TURN


class Outcome:
    """Made for every turn, and most have little in it: what a class attribute says holds where nothing else was set."""

    is_plain: bool = True
    """Whether there are at most deliveries, packets, records and frames for neighbours: so it is in most turns."""
    failures: Sequence[Failure] = ()
    """Inputs that failed by a fault of ours and were isolated."""
    told: Sequence[Told] = ()
    delivered: Sequence[Delivered] = ()
    """Passed to local subscribers: for observers."""
    released: Sequence[ClientConnection] = ()
    """Whose packets have waited for the batch that was committed."""
    packets: Sequence[Packets] = ()
    recorded: Mapping[str, int] = NOTHING
    """Bytes of records caused by the interest of neighbours, and written now."""
    records: Records | None = None
    """A batch to be submitted to the store; `committed(batch, now)` when it is on disk."""
    needs_mirror: bool = False
    """Whether the batch has to be on another host too before it counts as on disk."""
    batch: int = 0
    turn: int = 0
    """The number of the turn whose records they are."""
    written: Sequence[object] = ()
    """Calls that waited (`when_written`) for records that are now on disk."""
    turn_written: int | None = None
    """The records of all turns up to this one have just reached the disk."""
    lets_links_send: bool = False
    """Frames for neighbours may be ready; `links_have_sent` when they have been pulled."""
    questions: Sequence[Question] = ()
    """Questions about clients, and clients whose sessions are at other brokers."""
    notices: Sequence[Notice] = ()
    notices_left_out: int = 0
    needs_turn: bool = False
    """Another turn has to be ended soon."""


class Turn:
    def __init__(
        self,
        server: MqttServer,
        core: OverlayBroker,
        uplink: CoreUplink,
        reserving: RsvpNetwork,
        layers: Layers,
    ) -> None:
        self.server = server
        """MQTT's, which every broker has."""
        self._layers = layers
        self._deliver = layers.receiver(server.deliver)
        self.pubsub = server.pubsub
        self.protocols: dict[str, AnyServer] = {MQTT: server}
        """The servers of the protocols that clients can use here; others are created on request."""
        self.core = core
        self.reserving = reserving
        self.backpressure = Backpressure(uplink)
        self.is_open = False
        """Whether something waits for the end of the turn."""
        self._uplink = uplink
        self._effects: deque[Effect] = deque()
        """Of the core, not carried out yet."""
        self._is_core_touched = True
        self._core_due: Nanos = 0
        self._recorded: dict[str, int] = {}
        """As `Outcome.recorded`, in this turn."""
        self._batch = 0
        """The batch submitted last."""
        self._held: deque[tuple[int, list[ClientConnection], Nanos]] = deque()
        """For each batch that is not on disk yet: its turn, who waits for it, and since when."""
        self._neighbours: dict[str, NeighbourConfig] = {}
        """Those of the configuration; none before the first one is given."""
        self._waiting: list[tuple[int, object]] = []
        """Who waits for which turn to be on disk."""

    # Inputs

    def open(self, now: Nanos) -> None:
        """Something has come, and waits for the end of the turn."""
        self.is_open = True
        self.backpressure.turn_until_ns = now + TURN_MAX

    def start(self, now: Nanos) -> None:
        self._effects += self.core.start(now, self.number)

    def handle(self, event: Event, now: Nanos) -> None:
        """Something for the core."""
        self._is_core_touched = True
        self._effects += self._uplink.take_effects()
        self._effects += self.core.handle(event, now)
        if self.reserving.agent is not None and isinstance(event, LinkUp | LinkDown):
            self.reserving.link_down(event.peer, now)  # a new connection replaces one that was open before

    def touch_core(self) -> None:
        """Let the core do due work at the end of the turn, also without other input."""
        self._is_core_touched = True

    def receive(self, peer: str, data: bytes, now: Nanos, lane: Lane) -> ReceiveResult | Outcome:
        """Bytes of a neighbour. After PASSED and an Outcome, let the links send."""
        core = self.core
        caused = core.receive(peer, data, now, lane)
        if self.is_open or not core.is_quiescent or self._effects or self._uplink.has_effects:
            return self._keep_for_turn(peer, caused)
        if not caused:
            return PASSED
        effect = caused[0]
        if len(caused) > 1 or type(effect) is not Deliver or effect.reliable:
            return self._keep_for_turn(peer, caused)
        return self._hand_over(effect, now)

    def _keep_for_turn(self, peer: str, caused: list[Effect]) -> ReceiveResult:
        self._is_core_touched = True
        self._effects += self._uplink.take_effects()  # they came before
        self._effects += caused
        if recorded := sum(map(record_bytes, caused)):
            self._recorded[peer] = self._recorded.get(peer, 0) + recorded
        return NEEDS_TURN

    def _hand_over(self, effect: Deliver, now: Nanos) -> Outcome:
        """All there is to carry out is one message, for clients here."""
        mixed: list[Mixed] = []
        delivered = effect, mixed
        if self.reserving.delays:
            self.reserving.delays.arrived(effect)
        self._deliver(effect, now, mixed)
        if self.pubsub.has_more:
            outcome = self.end(now)
            outcome.delivered = [delivered, *outcome.delivered]
        else:
            outcome = Outcome()
            outcome.delivered = (delivered,)
            self._finish(outcome, {}, False, now)
        return outcome

    def protocol(self, name: str) -> AnyServer:
        """The server of a protocol, by its name in the table of listeners."""
        found = self.protocols.get(name)
        if found is None:
            found = self.protocols[name] = PROTOCOLS[name](self.pubsub)
        return found

    def tick(self, now: Nanos) -> None:
        """The time of `next_deadline` has come."""
        self.pubsub.tick(now)
        if self._core_due <= now:
            self.handle(Tick(), now)

    def reconfigure(self, event: Reconfigure, now: Nanos) -> NeighbourChanges:
        """Take a new configuration up, for all inputs that follow in this turn; RestartNeeded, and nothing has changed.

        What comes back is for the driver to carry out at once: links that are gone are closed by the end of the turn.
        """
        config = reconfigured(self.core.config, event)
        settings = self._layers.settings(event.settings)
        before, self._neighbours = self._neighbours, neighbours_of(event.membership, self.core.name)
        self.handle(SetConfig(config), now)
        self.pubsub.reconfigure(settings)
        self.pubsub.follow_settings(now)
        for server in self.protocols.values():
            server.reconfigure(settings)
        reserving = event.settings.reserving
        self.reserving.configure(self._neighbours, reserving.share, reserving.answer_ns, now)
        if self._neighbours:
            self._meet_others(now)
        if config.role != PLAIN:
            self.pubsub.tier_changed(now)
        return neighbour_changes(before, self._neighbours)

    def _meet_others(self, now: Nanos) -> None:
        """There is a neighbour, though perhaps there was none before."""
        if self._uplink.is_alone:
            self._uplink.is_alone = False
            self.pubsub.meet_others(now)
            self._is_core_touched = True

    def when_written(self, waiting: object) -> None:
        """Report (`Outcome.written`) when all inputs of the server so far are on disk."""
        self._waiting.append((self.number, waiting))

    # The end

    @property
    def number(self) -> int:
        """Of the turn that is open or comes next: there is no other count of turns."""
        return self.pubsub.state.turn

    @property
    def batches_pending(self) -> int:
        """Submitted and not on disk yet."""
        return len(self._held)

    @property
    def is_quiet(self) -> bool:
        """Whether everything is on disk and sent."""
        return not self.is_open and not self._held

    def end(self, now: Nanos) -> Outcome:
        self.is_open = False
        self.backpressure.turn_until_ns = NEVER
        outcome = Outcome()
        pubsub, core, uplink = self.pubsub, self.core, self._uplink
        if pubsub.admission.take_room_again(now):
            self.handle(ReadersReady(), now)
        if self.reserving.agent is not None:
            self.reserving.follow(now)
        is_core_turn = self._is_core_touched or uplink.is_touched or now >= self._core_due
        records: Records = {}
        if is_core_turn:
            # Left out where only messages between clients here have passed: that is most turns of a busy broker.
            self._is_core_touched = uplink.is_touched = False
            if uplink.has_effects:
                self._effects += uplink.take_effects()
            if self._effects:
                self._carry_out(outcome, records, now)
            while flushed := core.flush(now, pubsub.state.turn):
                self._effects += flushed
                if not self._carry_out(outcome, records, now):
                    break
            if core.has_failures:
                outcome.failures, outcome.is_plain = core.take_failures(), False
            if self._recorded:
                outcome.recorded, self._recorded, outcome.is_plain = self._recorded, {}, False
        if pubsub.has_more:
            self._take_more(outcome, now)
        for change in pubsub.take_records():
            _record(change, records)
        self._finish(outcome, records, is_core_turn, now)
        return outcome

    def _take_more(self, outcome: Outcome, now: Nanos) -> None:
        """What the server has for the driver. Who is ended for a fault of ours leaves in this turn."""
        pubsub = self.pubsub
        failures: list[Failure] = []
        while pubsub.has_failures:
            failures += pubsub.take_failures(now)
        if failures:
            outcome.failures = [*failures, *outcome.failures]
            outcome.is_plain = False
        if pubsub.has_words:
            outcome.questions = pubsub.take_questions()
            outcome.notices, outcome.notices_left_out = pubsub.take_notices()
            outcome.is_plain = False

    def _carry_out(self, outcome: Outcome, records: Records, now: Nanos) -> bool:
        """The effects of the core, taken one by one: none is ever carried out twice. Whether the core has learned
        anything by that."""
        is_answered = False
        told: list[Told] = []
        delivered: list[Delivered] = []
        effects = self._effects
        while effects:
            effect = effects.popleft()
            match effect:
                case Deliver():
                    mixed: list[Mixed] = []
                    reception = self._deliver(effect, now, mixed)
                    if effect.reliable:
                        effects += self.core.delivered(reception, now)
                        is_answered = True
                    if reception.is_taken:
                        delivered.append((effect, mixed))
                        if self.reserving.delays:
                            self.reserving.delays.arrived(effect)
                case Save() | Erase():
                    _record(effect, records)
                case RouteEstablished():
                    pass
                case NeighbourSaid() | InterestChanged() | HeldMessageSent():
                    self._tell_service(effect, now)
                    effects += self._uplink.take_effects()
                    is_answered = True
                case Close() | BrokersRefused() | RefusedAtBorder() | LaterIncarnationKnown() | NameConflict():
                    told.append(effect)
                case ScopeChanged() | DirectLinksWanted() | RequirementChanged():
                    told.append(effect)
                case LinkChanged() | RouteChanged() | DeadlineUnmeetable() | PathSuspected() | PathTrusted():
                    told.append(effect)
                case _:
                    assert_never(effect)
        if told:
            outcome.told = [*outcome.told, *told]
            outcome.is_plain = False
        if delivered:
            outcome.delivered = [*outcome.delivered, *delivered]
        return is_answered

    def _tell_service(self, effect: NeighbourSaid | InterestChanged | HeldMessageSent, now: Nanos) -> None:
        """What the core has learned from other brokers, and the service for clients has to know."""
        match effect:
            case NeighbourSaid(peer, body) if is_rsvp(body):
                self.reserving.heard(peer, body, now)
            case NeighbourSaid(peer, body):
                self.server.neighbour_said(peer, body, now)
            case InterestChanged(_, broker, is_needed):
                for one in self._layers.filters(effect):
                    self.pubsub.interest_changed(one, broker, is_needed, now)
            case HeldMessageSent():
                if (held := self._layers.held(effect)) is not None:
                    self.pubsub.publishing.held_message_sent(held, now)
            case _:
                assert_never(effect)

    def _finish(self, outcome: Outcome, records: Records, is_core_turn: bool, now: Nanos) -> None:
        held, turn = self._held, self.pubsub.state.turn - 1
        may_wait = bool(records or held)
        waiting: list[ClientConnection] = held[-1][1] if held and not records else []
        if touched := self.pubsub.take_touched():
            packets: list[Packets] = []
            for connection in touched:
                chunks, waits = connection.taken()
                if waits and may_wait:
                    waiting.append(connection)
                packets.append((connection, chunks, waits and may_wait))
            outcome.packets = packets
        if is_core_turn:
            outcome.lets_links_send = True
        if records:
            self._batch += 1
            outcome.records, outcome.batch, outcome.turn = records, self._batch, turn
            outcome.needs_mirror = self.pubsub.state.needs_mirror
            if not held:
                self.pubsub.commits_since(now)
            held.append((turn, waiting, now))
        elif not held:
            if self.pubsub.durable(turn, now) or self._waiting:
                self._server_durable(outcome, turn)
            if is_core_turn:
                self._core_durable(outcome, turn, now)
        self.pubsub.state.needs_mirror = False

    # The commit

    def committed(self, batch: int, now: Nanos) -> Outcome:
        """The records of the batch are on disk, and those of all before it."""
        if batch != self._batch - len(self._held) + 1:
            raise RuntimeError(f"batch {batch} was committed out of order")
        turn, waiting, since_ns = self._held.popleft()
        if now - since_ns > SLOW_COMMIT:
            for connection in waiting:
                connection.unanswerable_until_ns = max(connection.unanswerable_until_ns, now)
        self.pubsub.commits_since(self._held[0][2] if self._held else NEVER)
        if not self._held:  # turns that ended meanwhile had nothing to write
            turn = self.pubsub.last_turn
        outcome = Outcome()
        outcome.released, outcome.lets_links_send, outcome.is_plain = waiting, True, False
        outcome.turn_written = turn
        if self.pubsub.durable(turn, now) or self._waiting:
            self._server_durable(outcome, turn)
        self._core_durable(outcome, turn, now)
        return outcome

    def _server_durable(self, outcome: Outcome, turn: int) -> None:
        """Something has waited for that, in the server or outside."""
        outcome.is_plain = False
        outcome.needs_turn = self.pubsub.has_output
        outcome.written = [one for until, one in self._waiting if until <= turn]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > turn]

    def _core_durable(self, outcome: Outcome, turn: int, now: Nanos) -> None:
        """What the core wants done now belongs to the next turn, as its records would come too late for this one."""
        if effects := self.core.durable(turn, now):
            self._effects += effects
            self._is_core_touched = outcome.needs_turn = True
            outcome.is_plain = False

    # Time

    def links_have_sent(self) -> None:
        """What goes out to neighbours is watched from then on: the core may want to be woken earlier."""
        self._core_due = self.core.next_deadline()

    def links_have_passed(self, now: Nanos) -> ReceiveResult | None:
        """As `links_have_sent`, after `receive`; None if the core need not be woken earlier than was known before."""
        due = self.core.next_deadline()
        if due >= self._core_due:
            return None
        if due <= now:
            self._is_core_touched = True
            return ReceiveResult.NEEDS_TURN
        self._core_due = due
        return ReceiveResult.PASSED

    def next_deadline(self) -> Nanos:
        return min(self.pubsub.next_deadline(), self._core_due)


def _record(change: RecordChange, records: Records) -> None:
    match change:
        case Save(table, key, value):
            records[table, key] = value
        case Erase(table, key):
            records[table, key] = None
        case _:
            assert_never(change)
