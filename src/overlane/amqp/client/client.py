"""A client of AMQP 1.0 as a state machine: bytes in, events and bytes out; pure.

    SASL -> open -> begin -> receivers attached: `Ready`

One session. A receiver for each source; senders are in `sending.py`. A receiver has credit for `CREDIT` messages that
are not settled, so the input is bounded.

Errors of the peer, and the end of the connection, a receiver or the session, are raised as an AmqpError: the driver
closes, and unsettled messages are delivered again by their broker.
"""

from collections.abc import Sequence
from enum import IntEnum

from overlane.amqp.client.contract import ClientEvent, ClientOptions, Delivered, Ready, Receiver
from overlane.amqp.client.links import CREDIT, UINTS, Outgoing, ReceivingLink, SendingLink
from overlane.amqp.client.sending import LINKS_MAX, WINDOW, Senders, told
from overlane.amqp.codec import composites
from overlane.amqp.codec.framing import (
    AMQP_FRAME,
    EMPTY,
    FRAME_BYTES_MIN,
    PROTOCOL,
    SASL_FRAME,
    SASL_PROTOCOL,
    Framer,
    frame_of,
)
from overlane.amqp.codec.malformed import CONNECTION_FORCED, MESSAGE_SIZE, UNAUTHORIZED, AmqpError, Malformed
from overlane.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Rejected,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from overlane.amqp.codec.transfers import read_transfer
from overlane.amqp.codec.types import Symbol

FRAME_BYTES = 65_536
MESSAGE_BYTES_MAX = 64 * 2**20
IDLE_MS = 10_000
"""What the peer is told: it has to say something so often."""
RELAY, SHARED = "ANONYMOUS-RELAY", "SHARED-SUBS"


class ClientStage(IntEnum):
    SASL_HEADER = 0
    MECHANISMS = 1
    OUTCOME = 2
    HEADER = 3
    OPEN = 4
    BEGIN = 5
    FRAMES = 6


class AmqpClient:
    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._stage = ClientStage.SASL_HEADER
        self._framer = Framer(FRAME_BYTES)
        self._out: list[bytes] = [SASL_PROTOCOL]
        self._events: list[ClientEvent] = []
        self._peer = Open()
        self._receivers: dict[str, ReceivingLink] = {}
        self._theirs: dict[int, ReceivingLink | SendingLink] = {}
        """By the peer's handle."""
        self._deliveries: dict[int, ReceivingLink] = {}
        """Those that are to be settled."""
        self._next_incoming = 0
        first = len(options.receivers)
        self._senders = Senders(options.container_id, options.node, first, self._say, self._events)
        self._settled: list[int] = []
        """Deliveries whose acceptance is not written yet."""
        self.is_ready = False

    @property
    def peer_idle_ms(self) -> int | None:
        return self._peer.idle_time_out or None

    @property
    def peer_product(self) -> str:
        return str((self._peer.properties or {}).get("product", ""))

    # What the driver calls

    def receive(self, data: bytes) -> list[ClientEvent]:
        """AmqpError: the connection is of no use any more."""
        self._framer.feed(data)
        while self._take():
            pass
        events = list(self._events)
        self._events.clear()
        return events

    def send(self, number: int, address: str, data: bytes, is_settled: bool) -> list[ClientEvent]:
        self._senders.send(address, Outgoing(number, data, is_settled), has_relay=RELAY in self._offered)
        events = list(self._events)
        self._events.clear()
        return events

    def accept(self, delivery_id: int) -> None:
        """Written by `taken`, many at once."""
        link = self._deliveries.pop(delivery_id, None)
        if link is not None:
            self._settled.append(delivery_id)
            link.to_settle -= 1
            self._give_credit(link)

    def reject(self, delivery_id: int, condition: str, reason: str) -> None:
        link = self._deliveries.pop(delivery_id, None)
        if link is not None:
            error = Rejected(Error(Symbol(condition), reason))
            self._say(Disposition(RECEIVER, delivery_id, delivery_id, True, error))
            link.to_settle -= 1
            self._give_credit(link)

    def ping(self) -> None:
        if self._stage is ClientStage.FRAMES:
            self._out.append(EMPTY)

    def close(self) -> None:
        if self._stage > ClientStage.OPEN:
            self._write_settled()
            self._say(Close())

    def taken(self) -> bytes:
        """What is to be written now."""
        self._write_settled()
        data = b"".join(self._out)
        self._out.clear()
        return data

    # Frames

    def _take(self) -> bool:
        if self._stage in (ClientStage.SASL_HEADER, ClientStage.HEADER):
            head = self._framer.take_protocol()
            if head is None:
                return False
            expected = SASL_PROTOCOL if self._stage is ClientStage.SASL_HEADER else PROTOCOL
            if head != expected:
                raise Malformed(f"the broker does not support AMQP 1.0; it sent {head!r}")
            self._stage = ClientStage(self._stage + 1)
            return True
        found = self._framer.take_frame()
        if found is None:
            return False
        kind, channel, body = found
        if not body:
            return True
        if self._stage < ClientStage.HEADER:
            if kind != SASL_FRAME:
                raise Malformed("a frame that does not belong to SASL")
            self._on_sasl(composites.read(body, 0)[0])
            return True
        if kind != AMQP_FRAME or channel != 0:
            raise Malformed(f"a frame of type {kind} on channel {channel}")
        self._on_frame(body)
        return True

    def _on_frame(self, body: bytes) -> None:
        if self._stage is ClientStage.FRAMES and body[1:3] == b"\x53\x14":
            transfer, begin = read_transfer(body)
            self._on_transfer(transfer, body[begin:])
            return
        value, end = composites.read(body, 0)
        match value:
            case Open() if self._stage is ClientStage.OPEN:
                self._on_open(value)
            case Begin() if self._stage is ClientStage.BEGIN:
                self._on_begin(value)
            case Close(error):
                raise AmqpError(CONNECTION_FORCED, f"the broker closed the connection{told(error)}")
            case End(error):
                raise AmqpError(CONNECTION_FORCED, f"the broker ended the session{told(error)}")
            case Attach() if self._stage is ClientStage.FRAMES:
                self._on_attach(value)
            case Flow() if self._stage is ClientStage.FRAMES:
                self._on_flow(value)
            case Transfer() if self._stage is ClientStage.FRAMES:
                self._on_transfer(value, body[end:])
            case Disposition() if self._stage is ClientStage.FRAMES:
                self._senders.disposed(value, self.peer_product)
            case Detach() if self._stage is ClientStage.FRAMES:
                self._on_detach(value)
            case _:
                raise Malformed(f"{type(value).__name__} is not expected now")

    # Opening

    def _on_sasl(self, value: object) -> None:
        options = self._options
        match value:
            case SaslMechanisms(mechanisms) if self._stage is ClientStage.MECHANISMS:
                wanted = "PLAIN" if options.user is not None else "EXTERNAL" if options.has_certificate else "ANONYMOUS"
                if wanted not in mechanisms:
                    offered = ", ".join(map(str, mechanisms))[:200]
                    raise AmqpError(UNAUTHORIZED, f"the broker offers the logins {offered}; {wanted} is needed")
                response = b"\0" + (options.user or "").encode() + b"\0" + (options.password or b"")
                init = SaslInit(Symbol(wanted), response if wanted == "PLAIN" else b"", options.hostname)
                self._out.append(frame_of(0, init, SASL_FRAME))
                self._stage = ClientStage.OUTCOME
            case SaslOutcome(code) if self._stage is ClientStage.OUTCOME:
                if code != 0:
                    raise AmqpError(UNAUTHORIZED, "the broker refused the login")
                self._stage = ClientStage.HEADER
                self._out.append(PROTOCOL)
                self._say(Open(options.container_id, options.hostname, FRAME_BYTES, 0, IDLE_MS))
            case _:
                raise Malformed(f"{type(value).__name__} is not expected now")

    def _on_open(self, value: Open) -> None:
        self._peer = value
        self._senders.frame_bytes = max(FRAME_BYTES_MIN, min(FRAME_BYTES, value.max_frame_size or FRAME_BYTES))
        self._stage = ClientStage.BEGIN
        self._say(Begin(None, 0, WINDOW, WINDOW, LINKS_MAX + len(self._options.receivers)))

    def _on_begin(self, value: Begin) -> None:
        self._stage = ClientStage.FRAMES
        self._next_incoming = value.next_outgoing_id
        self._senders.began(value)
        group = self._options.group
        for receiver in self._options.receivers:
            is_queue = receiver.read_from is None
            if group is not None and not is_queue and SHARED not in self._offered:
                why = "the broker has no shared subscriptions; several gateways to it need `queue`"
                raise AmqpError("amqp:not-implemented", why)
            self._attach_receiver(receiver, None if is_queue else group)
        self._check_ready()

    @property
    def _offered(self) -> tuple[str, ...]:
        return self._peer.offered_capabilities or ()

    def _attach_receiver(self, receiver: Receiver, group: str | None) -> None:
        is_queue = receiver.read_from is None
        name = f"{group or self._options.container_id}-{receiver.address}"
        capabilities = [Symbol("queue" if is_queue else "topic")]
        if group is not None:
            capabilities += [Symbol("shared"), Symbol("global")]
        link = ReceivingLink(name, len(self._receivers), receiver.address, receiver.read_from)
        self._receivers[name] = link
        lasts = self._options.is_durable and self._options.is_reliable and not is_queue
        source = Source(
            address=receiver.address,
            durable=2 if lasts else None,
            expiry_policy=Symbol("never") if lasts else None,
            capabilities=tuple(capabilities),
        )
        mode = 0 if self._options.is_reliable else 1
        self._say(Attach(name, link.handle, RECEIVER, mode, 0, source, Target(), max_message_size=MESSAGE_BYTES_MAX))

    def _check_ready(self) -> None:
        if not self.is_ready and all(one.is_attached for one in self._receivers.values()):
            self.is_ready = True
            self._events.append(Ready())

    # Links

    def _on_attach(self, value: Attach) -> None:
        if value.role == SENDER:
            receiver = self._receivers.get(value.name)
            if receiver is None:
                raise Malformed("an attach of a link that was not requested")
            self._theirs[value.handle] = receiver
            if isinstance(value.source, Source):  # else a detach with the reason follows
                receiver.is_attached = True
                receiver.delivery_count = value.initial_delivery_count or 0
                self._give_credit(receiver)
                self._check_ready()
            return
        link = self._senders.attached(value)
        if link is not None:
            self._theirs[value.handle] = link

    def _on_detach(self, value: Detach) -> None:
        link = self._theirs.pop(value.handle, None)
        if isinstance(link, ReceivingLink):
            raise AmqpError(CONNECTION_FORCED, f"the broker sends no messages of {link.source}{told(value.error)}")
        if link is not None:
            self._senders.detached(link, value.error)

    def _on_flow(self, value: Flow) -> None:
        self._senders.windowed(value)
        link = None if value.handle is None else self._theirs.get(value.handle)
        if isinstance(link, SendingLink):
            self._senders.granted(link, value)
            if value.drain and link.drain():
                self._flow(link.handle, link.delivery_count, 0)
        if value.echo:
            self._flow(None, None, None)

    # Messages that come in

    def _on_transfer(self, value: Transfer, payload: bytes) -> None:
        link = self._theirs.get(value.handle)
        if not isinstance(link, ReceivingLink):
            raise Malformed("a transfer on a link that is no receiver")
        self._next_incoming = (self._next_incoming + 1) % UINTS
        if link.delivery_id < 0:
            if value.delivery_id is None:
                raise Malformed("a delivery without an id")
            if link.credit <= 0:
                raise Malformed("a delivery without credit")
            link.began(value.delivery_id, bool(value.settled))
        link.is_settled = link.is_settled or bool(value.settled)
        if value.aborted:
            link.ended()
            self._give_credit(link)
            return
        link.add(payload, MESSAGE_BYTES_MAX)
        if value.more:
            return
        delivery_id, data = link.delivery_id, b"".join(link.parts)
        link.parts = []
        link.ended()
        if link.is_settled:
            if not link.is_too_large:
                self._events.append(Delivered(data, link.read_from, None))
            self._give_credit(link)
            return
        self._deliveries[delivery_id] = link
        link.to_settle += 1
        if link.is_too_large:
            self.reject(delivery_id, MESSAGE_SIZE, f"more than {MESSAGE_BYTES_MAX} bytes")
        else:
            self._events.append(Delivered(data, link.read_from, delivery_id))

    def _give_credit(self, link: ReceivingLink) -> None:
        if link.is_attached and link.credit_due:
            link.credit = CREDIT - link.to_settle
            self._flow(link.handle, link.delivery_count, link.credit)

    def _write_settled(self) -> None:
        """Deliveries that follow each other in one frame."""
        for first, last in _runs(sorted(self._settled)):
            self._say(Disposition(RECEIVER, first, last, True, Accepted()))
        self._settled.clear()

    # Writing

    def _flow(self, handle: int | None, count: int | None, credit: int | None) -> None:
        self._say(Flow(self._next_incoming, WINDOW, self._senders.next_outgoing, WINDOW, handle, count, credit))

    def _say(self, performative: object) -> None:
        self._out.append(performative if isinstance(performative, bytes) else frame_of(0, performative))


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs
