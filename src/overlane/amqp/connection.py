"""A connection: what the server knows of one AMQP client's network connection, and what it has to send to it.

To the rest of the broker it is a client that publishes (`pubsub.connection`). What clients receive comes by links, each
of which is a consumer with a session of its own (`outgoing_link`), because credit is given to links.

At the end of a turn outcomes of received messages are written, those that follow each other in one frame, and credit
for more (`taken`). Deliveries that find no room on their way are held here until they may go on: everything else that
the client says, its outcomes above all, is handled meanwhile.
"""

from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from overlane.amqp.codec.framing import AMQP_FRAME, FRAME_BYTES_MIN, Framer, frame_of
from overlane.amqp.codec.malformed import CONNECTION_FORCED, INTERNAL_ERROR
from overlane.amqp.codec.performatives import Close, Error
from overlane.core.units import NEVER, Nanos
from overlane.pubsub.contract.connection import ClientConnection, Phase
from overlane.pubsub.contract.consumer import Ending, Peer
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message
from overlane.pubsub.timers import Timer

if TYPE_CHECKING:
    from overlane.amqp.incoming_link import Delivery
    from overlane.amqp.outgoing_link import OutgoingLink
    from overlane.amqp.session import AmqpSession

PROTOCOL_NAME = "AMQP 1.0"


class ConnectionStage(IntEnum):
    """What the client has to say next."""

    HEADER = 0
    """Which protocol: SASL or AMQP."""
    SASL_INIT = 1
    """By which mechanism it logs in."""
    AMQP_HEADER = 2
    """AMQP, after SASL."""
    OPEN = 3
    FRAMES = 4


class Connection(ClientConnection):
    __slots__ = (
        "channels",
        "container_id",
        "ending",
        "frame_bytes_max",
        "framer",
        "has_said_open",
        "held",
        "held_bytes",
        "holds",
        "idle_timer",
        "idle_within_ns",
        "is_sole",
        "limits_told",
        "partial_bytes",
        "stage",
        "user",
    )

    def __init__(self, peer: Peer, limits: Limits, touched: list[ClientConnection], now: Nanos) -> None:
        super().__init__(peer, touched, now)
        self.stage = ConnectionStage.HEADER
        self.framer = Framer(max(FRAME_BYTES_MIN, limits.packet_bytes_before_connect))
        self.frame_bytes_max = FRAME_BYTES_MIN
        """What the client takes."""
        self.limits_told = limits
        self.container_id = ""
        self.user: str | None = None
        """Who it was found to be by SASL."""
        self.is_sole = False
        """Whether no other connection may come under its container id."""
        self.has_said_open = False
        """Whether it was answered with an open: then its end is told by a close."""
        self.channels: dict[int, AmqpSession] = {}
        """Its sessions, by the client's channel."""
        self.ending: set[int] = set()
        """Channels of sessions that the broker has ended, and whose end the client has not confirmed."""
        self.held: deque[Delivery] = deque()
        """Deliveries that came while it has to rest or to stop, or since."""
        self.held_bytes = 0
        self.holds = False
        """Whether it has to rest or to stop now: deliveries are held."""
        self.partial_bytes = 0
        """Of deliveries that have not come whole."""
        self.idle_within_ns: Nanos = NEVER
        """The client has to hear something so often."""
        self.idle_timer: Timer | None = None

    @property
    def protocol(self) -> str:
        return PROTOCOL_NAME

    @property
    def is_stranger(self) -> bool:
        return self.stage is ConnectionStage.HEADER

    @property
    def waiting_bytes(self) -> int:
        return self.framer.waiting_bytes + self.held_bytes

    @property
    def links(self) -> "Iterator[OutgoingLink]":
        for session in self.channels.values():
            yield from session.outgoing.values()

    @property
    def has_more_to_say(self) -> bool:
        """Whether messages wait for room that is there now, or credit may be given again."""
        if self.phase is not Phase.OPEN:
            return False
        return any(one.owes_credit for one in self.channels.values()) or any(one.can_send for one in self.links)

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
        """Its own session has no subscriptions: messages are for its links."""
        raise NotImplementedError

    def release(self, tag: int) -> None:
        """There is no QoS 2 here."""

    # Sending

    def send(self, data: bytes) -> None:
        if self.phase is not Phase.CLOSED:  # nothing follows a close
            super().send(data)

    def say(self, channel: int, performative: object, kind: int = AMQP_FRAME) -> None:
        self.send(frame_of(channel, performative, kind))

    def touch(self) -> None:
        """There will be something to send at the end of the turn."""
        if not self.is_touched:
            self.is_touched = True
            self._touched.append(self)

    def taken(self) -> tuple[list[bytes], bool]:
        if self.phase is Phase.OPEN:
            for session in self.channels.values():
                session.flush()
        return super().taken()

    # The end

    def end(self, ending: Ending, why: str) -> None:
        self.close(INTERNAL_ERROR if ending is Ending.INTERNAL_ERROR else CONNECTION_FORCED, why)

    def close(self, condition: str, why: str) -> None:
        """Say goodbye with an error, or with none where `condition` is ""; the driver closes after sending."""
        if self.phase is Phase.CLOSED:
            return
        if self.has_said_open:
            for session in self.channels.values():
                session.write_outcomes()
            self.say(0, Close(Error(condition, why) if condition else None))
        self.shut(why)
