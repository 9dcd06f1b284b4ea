"""A client's network connection, for any protocol: the fields and methods that turns and the client link use.

It is a consumer and a publisher to the rest of the broker (`pubsub.consumer`). A protocol has a subclass that accepts
messages (`take`), ends the connection (`end`), and keeps received bytes that are not processed yet.

Bytes to be sent are collected in `out` during a turn and taken by the driver at its end; `waits` says that they must
not leave before this turn's records are durable. What leaves a connection leaves in order.

`unsent_bytes` is the number of bytes in the driver's buffer. The driver keeps it up to date; it shows clients that do
not read. The driver also keeps `acks_held`, the number of acknowledgements that wait for the disk: it shows clients
that publish more than allowed without acknowledgement.
"""

from collections.abc import Hashable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.pubsub.contract.consumer import Ending, Peer
from overlane.pubsub.message import Message
from overlane.pubsub.timers import Timer

if TYPE_CHECKING:
    from overlane.pubsub.delivery.window import Entry
    from overlane.pubsub.sessions.session import Session

PACE_BYTES = 64 * 1024
PACE_WITHIN: Nanos = SECOND
"""Who reads less than so much in this time does not keep reading."""


class Phase(IntEnum):
    WAITING = 0
    """For the client to introduce itself: CONNECT."""
    CHECKING = 1
    """Who the client is, and which broker has its session; what it sends meanwhile is kept."""
    OPEN = 2
    CLOSED = 3
    PASSED_ON = 4
    """To the broker that has the session: nothing of it is read here."""


class ClientConnection:
    __slots__ = (
        "_touched",
        "acks_held",
        "acks_owed",
        "acks_taken",
        "allowance",
        "allowance_ns",
        "bytes_in",
        "bytes_out",
        "closing",
        "driver",
        "greeted_ns",
        "heard_ns",
        "is_behind",
        "is_touched",
        "is_turned_away",
        "keep_alive_ns",
        "messages_in",
        "messages_out",
        "opened_ns",
        "out",
        "out_bytes",
        "paced_bytes",
        "paced_ns",
        "passes",
        "peer",
        "phase",
        "rests_until_ns",
        "session",
        "stops_for",
        "stops_until_ns",
        "timer",
        "unanswerable_until_ns",
        "unsent_bytes",
        "waits",
        "waits_on",
    )

    def __init__(self, peer: Peer, touched: "list[ClientConnection]", now: Nanos) -> None:
        """`touched`: that of the state, which all connections with something to send join."""
        self.peer = peer
        self.phase = Phase.WAITING
        self.session: Session | None = None
        self.is_behind = False
        """Whether input has come that was not looked at yet, so that others have their turn."""
        self.is_turned_away = False
        """Whether it is answered only to be told that too many connect at once."""
        self.opened_ns = now
        self.heard_ns = now
        self.greeted_ns: Nanos = 0
        """When the answer that lets it in has left, if it had to wait for the disk; NEVER while it waits."""
        self.keep_alive_ns: Nanos = NEVER
        """After so much silence the client counts as gone."""
        self.timer: Timer | None = None
        """When to look whether it has introduced itself, and then whether it is silent."""
        self.acks_owed = 0
        """Acknowledgements of accepted messages in `out`."""
        self.acks_taken = 0
        """Those in what was taken last."""
        self.acks_held = 0
        self.allowance = 0.0
        self.allowance_ns = now
        self.rests_until_ns: Nanos = 0
        """Until then nothing more is read from a client that publishes too fast."""
        self.stops_for: Hashable = None
        """The way (`uplink.way_of`) on which its messages find no room: what it says is kept, and not looked at."""
        self.stops_until_ns: Nanos = 0
        """Until then nothing more is read from it, unless there is room again before."""
        self.unanswerable_until_ns: Nanos = 0
        self.waits_on = False
        """Whether it may be stopped for longer than that, while its way moves: nothing of it has a deadline."""
        self.passes = False
        """It has been stopped for long enough: what it says next is taken in, room or not."""
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.unsent_bytes = 0
        self.paced_bytes = 0
        """What the client had read when it was last found to have read a good deal more, and when that was."""
        self.paced_ns: Nanos = 0
        self.waits = False
        self.closing: str | None = None
        self.is_touched = False
        self._touched = touched
        self.driver: object = None
        """The driver's own end of it."""
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = 0

    # What every protocol has to say for itself

    @property
    def protocol(self) -> str:
        """For people: the protocol and its version."""
        raise NotImplementedError

    @property
    def is_stranger(self) -> bool:
        """Whether the client has said nothing that could be answered: it is closed without a word."""
        return self.phase is Phase.WAITING

    @property
    def waiting_bytes(self) -> int:
        """What it has sent and was not looked at yet."""
        raise NotImplementedError

    @property
    def has_acknowledgements_ahead(self) -> bool:
        """Whether acknowledgements wait that may be handled while the client has to rest or to stop."""
        return False

    def take(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        now: Nanos,
        tag: int = 0,
        again: bool = False,
    ) -> bool:
        """As `Consumer.take`."""
        raise NotImplementedError

    def take_run(self, entries: "Sequence[Entry]") -> bool:  # noqa: ARG002 - for those that can
        """As `Consumer.take_run`."""
        return False

    def release(self, tag: int) -> None:
        """As `Consumer.release`, for protocols with QoS 2."""
        raise NotImplementedError

    def end(self, ending: Ending, why: str) -> None:
        """As `Consumer.end`: say goodbye, then `shut`."""
        raise NotImplementedError

    # What is the same for all

    @property
    def is_open(self) -> bool:
        return self.phase is Phase.OPEN

    @property
    def has_more_to_say(self) -> bool:
        """Whether messages wait for room that is there now."""
        return self.session is not None and self.session.window.next_to_send() is not None

    @property
    def backlog_bytes(self) -> int:
        return self.unsent_bytes + self.out_bytes

    def keeps_reading(self, now: Nanos) -> bool:
        """Whether the client has read a good deal lately. To be asked of one that has much left to read."""
        read_bytes = self.bytes_out - self.unsent_bytes
        if read_bytes - self.paced_bytes >= PACE_BYTES:
            self.paced_bytes, self.paced_ns = read_bytes, now
        return now - self.paced_ns < PACE_WITHIN

    def send(self, data: bytes) -> None:
        self.out.append(data)
        self.out_bytes += len(data)
        if not self.is_touched:
            self.is_touched = True
            self._touched.append(self)

    def taken(self) -> tuple[list[bytes], bool]:
        """What to send now, and whether it waits for this turn's records; by the driver at the end of a turn."""
        out, waits = self.out, self.waits
        self.bytes_out += self.out_bytes
        self.out, self.out_bytes, self.waits, self.is_touched = [], 0, False, False
        self.acks_taken, self.acks_owed = self.acks_owed, 0
        return out, waits

    def shut(self, why: str) -> None:
        """Nothing more is taken in; the driver closes after sending. Of several the first counts."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        self.closing = why
        if not self.is_touched:
            self.is_touched = True
            self._touched.append(self)
