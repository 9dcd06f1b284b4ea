"""A session: the frames of one channel, their windows, and the deliveries whose outcome is open (part 2, section 2.5).

Each side tells how many transfer frames it takes. Those for which the client has no window wait here. Deliveries to the
client are numbered by the session; `unsettled` has those that it has not settled, with their link and the tag of the
message in the queue. Deliveries of the client get their outcomes in the order in which they were published.
"""

from collections import deque
from typing import TYPE_CHECKING

from overlane.amqp.codec.framing import frame, frame_of
from overlane.amqp.codec.malformed import WINDOW_VIOLATION, AmqpError
from overlane.amqp.codec.performatives import RECEIVER, SENDER, Accepted, Disposition, Flow

if TYPE_CHECKING:
    from overlane.amqp.connection import Connection
    from overlane.amqp.incoming_link import IncomingLink
    from overlane.amqp.outgoing_link import OutgoingLink

WINDOW_FRAMES = 2_048
"""Transfer frames that a client may send before it is told that there is room again; it is told at half of that."""
NUMBERS = 1 << 32
HANDLE_MAX = 255
"""Links of a session have handles up to this one, so that there are 256 in each direction."""

ACCEPTED = Accepted()


class AmqpSession:
    __slots__ = (
        "_accepted_first",
        "_accepted_last",
        "_blocked",
        "blocked_bytes",
        "channel",
        "client_window",
        "connection",
        "detaching",
        "incoming",
        "next_delivery_id",
        "next_incoming_id",
        "next_outgoing_id",
        "outgoing",
        "unsettled",
        "window",
    )

    def __init__(self, connection: "Connection", channel: int, next_incoming_id: int, client_window: int) -> None:
        self.connection = connection
        self.channel = channel
        self.next_incoming_id = next_incoming_id
        self.window = WINDOW_FRAMES
        """Transfer frames that the client may send."""
        self.client_window = client_window
        """Transfer frames that the client takes."""
        self.next_outgoing_id = 0
        self.next_delivery_id = 0
        self.incoming: dict[int, IncomingLink] = {}
        self.outgoing: dict[int, OutgoingLink] = {}
        """Links on which the client sends, and receives, by the client's handle."""
        self.detaching: set[int] = set()
        """Handles of links that the broker has ended, and whose end the client has not confirmed."""
        self.unsettled: dict[int, tuple[OutgoingLink, int]] = {}
        self._blocked: deque[bytes] = deque()
        """Frames for which the client has no window."""
        self.blocked_bytes = 0
        self._accepted_first = -1
        self._accepted_last = -1

    # Frames

    def say(self, performative: object) -> None:
        self.connection.send(frame_of(self.channel, performative))

    def transfer(self, body: bytes) -> None:
        """A transfer frame to the client, when it has the window for it."""
        data = frame(self.channel, body)
        if self._blocked or self.client_window <= 0:
            self._blocked.append(data)
            self.blocked_bytes += len(data)
            return
        self._send(data)

    def _send(self, data: bytes) -> None:
        self.client_window -= 1
        self.next_outgoing_id = (self.next_outgoing_id + 1) % NUMBERS
        self.connection.send(data)

    def client_flow(self, flow: Flow) -> None:
        """The client tells what it has got and how much more it takes."""
        begins = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        under_way = (self.next_outgoing_id - begins) % NUMBERS
        if under_way > NUMBERS // 2:
            raise AmqpError(WINDOW_VIOLATION, "the client has received frames that were not sent")
        self.client_window = flow.incoming_window - under_way
        while self._blocked and self.client_window > 0:
            data = self._blocked.popleft()
            self.blocked_bytes -= len(data)
            self._send(data)

    def received_transfer(self) -> None:
        """A transfer frame has come; AmqpError if the client was not allowed to send it."""
        if self.window <= 0:
            raise AmqpError(WINDOW_VIOLATION, f"more than {WINDOW_FRAMES} transfer frames")
        self.window -= 1
        self.next_incoming_id = (self.next_incoming_id + 1) % NUMBERS
        if self.window < WINDOW_FRAMES // 2:
            self.connection.touch()

    def flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        available: int | None = None,
        drain: bool | None = None,
    ) -> Flow:
        """The state of the session, with that of a link if it is given."""
        windows = self.next_incoming_id, self.window, self.next_outgoing_id, NUMBERS - 1
        return Flow(*windows, handle, delivery_count, link_credit, available, drain)

    # Deliveries to the client

    def number(self, link: "OutgoingLink", tag: int, is_settled: bool) -> int:
        """The number of the next delivery. `tag`: of the message, 0 if no outcome is needed."""
        delivery_id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) % NUMBERS
        if not is_settled:
            self.unsettled[delivery_id] = link, tag
        return delivery_id

    def numbers(self, first: int, last: int) -> list[int]:
        """The unsettled deliveries from one to the other, however many numbers lie between."""
        span = (last - first) % NUMBERS
        if span < len(self.unsettled):
            return [one for step in range(span + 1) if (one := (first + step) % NUMBERS) in self.unsettled]
        return sorted(
            (one for one in self.unsettled if (one - first) % NUMBERS <= span), key=lambda one: (one - first) % NUMBERS
        )

    def forget(self, link: "OutgoingLink") -> list[int]:
        """The link is gone: the tags of its messages whose outcome is open."""
        gone = [delivery_id for delivery_id, (one, _) in self.unsettled.items() if one is link]
        return [tag for delivery_id in gone if (tag := self.unsettled.pop(delivery_id)[1])]

    # Deliveries of the client

    def accept(self, delivery_id: int) -> None:
        """The delivery is accepted: told at the end of the turn, together with those before it."""
        if self._accepted_first < 0:
            self._accepted_first = delivery_id
        elif delivery_id != self._accepted_last + 1:
            self.write_outcomes()
            self._accepted_first = delivery_id
        self._accepted_last = delivery_id
        self.connection.touch()

    def settle(self, delivery_id: int, outcome: object) -> None:
        """The delivery has another outcome."""
        self.write_outcomes()
        self.say(Disposition(RECEIVER, delivery_id, None, True, outcome))

    def write_outcomes(self) -> None:
        first, last = self._accepted_first, self._accepted_last
        if first >= 0:
            self._accepted_first = -1
            self.say(Disposition(RECEIVER, first, last if last != first else None, True, ACCEPTED))

    def confirm(self, delivery_id: int, outcome: object) -> None:
        """The client has told an outcome without settling: it may forget the delivery."""
        self.say(Disposition(SENDER, delivery_id, None, True, outcome))

    # The end of a turn

    @property
    def owes_credit(self) -> bool:
        return any(link.owes_credit for link in self.incoming.values())

    def flush(self) -> None:
        self.write_outcomes()
        for link in self.incoming.values():
            if link.owes_credit:
                link.give_credit()
        if self.window < WINDOW_FRAMES // 2:
            self.window = WINDOW_FRAMES
            self.say(self.flow())
