"""What a client of AMQP 1.0 sends: its sending links, credit, the window of the session, outcomes; pure.

A link for the anonymous relay where the peer offers it, otherwise one for each address, at most `LINKS_MAX`: one that
has nothing to do is detached for another. While all have, messages for other addresses wait, in their order.

    waiting for a link -> for its credit -> for the window of the session -> not settled -> `Sent` or `NotSent`
"""

from collections import deque
from collections.abc import Callable

from overlane.amqp.client.contract import ClientEvent, NotSent, Sent
from overlane.amqp.client.links import UINTS, Outgoing, SendingLink
from overlane.amqp.codec import composites
from overlane.amqp.codec.framing import FRAME_BYTES_MIN, frame, transfer_body
from overlane.amqp.codec.malformed import (
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    UNAUTHORIZED,
    Malformed,
)
from overlane.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Error,
    Flow,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from overlane.amqp.codec.types import Symbol

WINDOW = 65_535
LINKS_MAX = 200
TRANSFER_BYTES = 64
"""Enough for the performative in front of a part of a message."""
FINAL_CONDITIONS = frozenset({UNAUTHORIZED, NOT_ALLOWED, INVALID_FIELD, NOT_IMPLEMENTED})
"""Of a refused link. Others may pass: an address that is not found may be made."""
RABBITMQ = "RabbitMQ"


class Senders:
    def __init__(
        self,
        container_id: str,
        node: str,
        first_handle: int,
        say: Callable[[object | bytes], None],
        events: list[ClientEvent],
    ) -> None:
        """`say` writes a performative, or a frame that is bytes already. `events`: where to put them."""
        self._container_id = container_id
        self._node = node
        self._say = say
        self._events = events
        self.frame_bytes = FRAME_BYTES_MIN
        self._free = list(range(first_handle + LINKS_MAX - 1, first_handle - 1, -1))
        """Handles, the next at the end."""
        self._links: dict[str | None, SendingLink] = {}
        """By their address, the least recently used first."""
        self._parked: deque[tuple[str | None, Outgoing]] = deque()
        """For addresses that have no link, and there is no handle for one."""
        self._unsettled: dict[int, SendingLink] = {}
        self._next_delivery = 0
        self._next_frame = 0
        self._window = 0
        """So many transfers the peer takes."""
        self._frames: deque[bytes] = deque()
        """Transfers that wait for that."""

    @property
    def next_outgoing(self) -> int:
        return (self._next_frame - len(self._frames)) % UINTS

    def send(self, address: str, message: Outgoing, *, has_relay: bool) -> None:
        wanted = None if has_relay else address
        self._parked.append((wanted, message))
        self._unpark()

    # What the peer says

    def began(self, value: Begin) -> None:
        self._window = value.incoming_window
        if value.handle_max is not None:
            self._free = [handle for handle in self._free if handle <= value.handle_max]

    def attached(self, value: Attach) -> SendingLink | None:
        link = next((one for one in self._links.values() if one.name == value.name), None)
        if link is not None and value.target is not None:  # without a target a detach with the reason follows
            link.is_attached = True
            link.message_bytes_max = value.max_message_size or 0
        return link

    def detached(self, link: SendingLink, error: object) -> None:
        self._free.append(link.handle)
        if link.is_detached:  # by us
            self._unpark()
            return
        link.is_detached = True
        self._say(Detach(link.handle, True))
        self._links.pop(link.address, None)
        condition = error.condition if isinstance(error, Error) else ""
        reason = f"the broker refuses {link.address or 'the anonymous relay'}{told(error)}"
        for delivery, number in link.unsettled.items():
            del self._unsettled[delivery]
            self._events.append(NotSent(number, reason, False))
        for one in link.waiting:
            self._events.append(NotSent(one.number, reason, condition in FINAL_CONDITIONS))
        link.unsettled.clear()
        link.waiting.clear()
        self._unpark()

    def windowed(self, value: Flow) -> None:
        known = 0 if value.next_incoming_id is None else value.next_incoming_id
        left = (known + value.incoming_window - self.next_outgoing) % UINTS
        self._window = left if left < UINTS // 2 else 0
        self._write()

    def granted(self, link: SendingLink, value: Flow) -> None:
        link.granted(value.delivery_count, value.link_credit or 0)
        self._pump(link)

    def disposed(self, value: Disposition, product: str) -> None:
        outcome = value.state
        if value.role != RECEIVER or outcome is None or isinstance(outcome, Received):
            return
        count = ((value.first if value.last is None else value.last) - value.first) % UINTS + 1
        if count > 2 * WINDOW:
            raise Malformed("a disposition of more deliveries than were sent")
        for at in range(count):
            delivery = (value.first + at) % UINTS
            link = self._unsettled.pop(delivery, None)
            if link is not None:
                self._events.append(_answer(link.unsettled.pop(delivery), outcome, product))
                if not value.settled:
                    self._say(Disposition(SENDER, delivery, delivery, True, outcome))
        self._unpark()

    # Inside

    def _unpark(self) -> None:
        while self._parked:
            address, message = self._parked[0]
            link = self._link(address)
            if link is None:
                return
            self._parked.popleft()
            link.waiting.append(message)
            self._pump(link)

    def _link(self, address: str | None) -> SendingLink | None:
        """None: when there is a handle again."""
        link = self._links.pop(address, None)
        if link is None:
            if not self._free:
                self._detach_idle()
                return None
            handle = self._free.pop()
            link = SendingLink(address, f"{self._container_id}-out-{address or ''}", handle)
            target = Target(address, capabilities=None if address is None else (Symbol(self._node),))
            # Settle mode 2, mixed: QoS 0 is settled when it is sent.
            self._say(Attach(link.name, handle, SENDER, 2, 0, Source(), target, initial_delivery_count=0))
        self._links[address] = link
        return link

    def _detach_idle(self) -> None:
        idle = next((one for one in self._links.values() if one.is_idle), None)
        if idle is not None:
            del self._links[idle.address]
            idle.is_detached = True
            self._say(Detach(idle.handle, True))

    def _pump(self, link: SendingLink) -> None:
        while link.waiting and link.credit > 0 and link.is_attached:
            one = link.waiting.popleft()
            if 0 < link.message_bytes_max < len(one.data):
                why = f"{len(one.data)} bytes; the broker takes {link.message_bytes_max}"
                self._events.append(NotSent(one.number, why, True))
                continue
            delivery, self._next_delivery = self._next_delivery, (self._next_delivery + 1) % UINTS
            link.sent()
            self._split(link.handle, delivery, one)
            if one.is_settled:
                self._events.append(Sent(one.number))
            else:
                link.unsettled[delivery] = one.number
                self._unsettled[delivery] = link
        self._write()

    def _split(self, handle: int, delivery: int, one: Outgoing) -> None:
        room = self.frame_bytes - TRANSFER_BYTES
        parts = [one.data[at : at + room] for at in range(0, len(one.data), room)]
        for at, part in enumerate(parts):
            more = at < len(parts) - 1
            if at == 0:
                body = transfer_body(handle, delivery, delivery.to_bytes(4), one.is_settled, more)
            else:
                body = composites.write(Transfer(handle, more=more))
            self._frames.append(frame(0, body + part))
            self._next_frame = (self._next_frame + 1) % UINTS

    def _write(self) -> None:
        while self._frames and self._window > 0:
            self._window -= 1
            self._say(self._frames.popleft())


def _answer(number: int, outcome: object, product: str) -> Sent | NotSent:
    match outcome:
        case Accepted():
            return Sent(number)
        case Rejected(error):
            return NotSent(number, f"rejected{told(error)}", True)
        case Released() if product == RABBITMQ:  # its answer where no queue is bound: as nobody subscribes in MQTT
            return NotSent(number, "released: no queue there takes it", True)
        case Modified(_, undeliverable):
            return NotSent(number, "not delivered", bool(undeliverable))
        case _:
            return NotSent(number, "released", False)


def told(error: object) -> str:
    """The reason of the peer, behind a colon."""
    return f": {(error.description or error.condition)[:300]}" if isinstance(error, Error) else ""
