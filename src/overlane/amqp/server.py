"""An AMQP 1.0 server as a pure state machine, on the publish/subscribe service of the broker (`pubsub.protocol`).

Bytes become frames, and frames go to the part that handles them: opening, sessions, attaching, publishing, settling.
What a client does wrong ends as little as possible: a message is rejected, a link detached, a session ended; bytes that
are not AMQP end the connection.

While the client has to rest or to stop (`pubsub.backpressure`), the messages that it publishes are held, and everything
else is handled: its outcomes make room for others. It has no credit for more than can be held.
"""

from typing import assert_never

from overlane.amqp.attaching import Attaching
from overlane.amqp.codec import composites
from overlane.amqp.codec.framing import AMQP_FRAME, SASL_FRAME
from overlane.amqp.codec.malformed import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    NOT_ALLOWED,
    RESOURCE_LIMIT,
    UNATTACHED_HANDLE,
    AmqpError,
    Malformed,
    TooLarge,
)
from overlane.amqp.codec.performatives import (
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Transfer,
)
from overlane.amqp.codec.transfers import SHORT_TRANSFER, read_transfer
from overlane.amqp.connection import Connection, ConnectionStage
from overlane.amqp.idle import Idle
from overlane.amqp.incoming_link import Delivery
from overlane.amqp.messages.selecting import values_of
from overlane.amqp.opening import CHANNEL_MAX, Opening
from overlane.amqp.outgoing_link import OutgoingLink
from overlane.amqp.publishing import PublishDeliveries
from overlane.amqp.session import HANDLE_MAX, NUMBERS, WINDOW_FRAMES, AmqpSession
from overlane.amqp.settling import Settling
from overlane.core.units import NEVER, Nanos
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.protocol import ProtocolServer
from overlane.pubsub.contract.questions import LoginVerdict
from overlane.pubsub.counters import Refusal
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.service import PubSub
from overlane.pubsub.sessions.lookup import Found


class AmqpServer(ProtocolServer[Connection]):
    def __init__(self, pubsub: PubSub) -> None:
        super().__init__(pubsub)
        self._idle = Idle(pubsub, self._ended)
        self._opening = Opening(pubsub, self._idle)
        self._attaching = Attaching(pubsub)
        self._publishing = PublishDeliveries(pubsub, self._attaching)
        self._settling = Settling(pubsub.delivery, pubsub.returns)
        pubsub.delivery.content_filters.values_of = values_of

    # Connections

    def connected(
        self, peer: Peer, now: Nanos, since_ns: Nanos | None = None, is_turned_away: bool = False
    ) -> Connection:
        connection = Connection(peer, self.state.limits, self.state.touched, now)
        due = (now if since_ns is None else since_ns) + self.state.limits.connect_within_ns
        self._idle.expect_open(connection, due)
        self._admit(connection, is_turned_away)
        return connection

    def receive(self, connection: Connection, data: bytes, now: Nanos, packets_max: int = NEVER) -> None:
        connection.is_behind = connection.holds = False
        if connection.phase is Phase.CLOSED:
            return
        self._count_in(connection, data, now)
        if data:
            connection.framer.feed(data)
        self._handle(connection, now, packets_max)
        connection.passes = False

    def receive_later(self, connection: Connection, data: bytes, now: Nanos) -> bool:
        if connection.phase is not Phase.OPEN:
            return False
        self._count_in(connection, data, now)
        connection.framer.feed(data)
        connection.is_behind = True
        return True

    def receive_ahead(self, connection: Connection, data: bytes, now: Nanos, packets_max: int = NEVER) -> bool:
        if connection.phase is not Phase.OPEN:
            return False
        self._count_in(connection, data, now)
        if data:
            connection.framer.feed(data)
        connection.holds = True
        has_more = self._read(connection, now, packets_max)
        connection.is_behind = connection.waiting_bytes > 0
        return has_more and connection.phase is Phase.OPEN

    def authenticated(
        self,
        connection: Connection,
        verdict: LoginVerdict,
        now: Nanos,
        packets_max: int = NEVER,
        user: str = "",
    ) -> None:
        self._opening.authenticated(connection, verdict, user)
        self._handle(connection, now, packets_max)

    def placed(self, connection: Connection, found: Found, now: Nanos, packets_max: int = NEVER) -> None:
        """No sessions of AMQP are searched for."""

    def writable(self, connection: Connection, now: Nanos) -> None:
        """There is room in the driver's buffer again, or fewer acknowledgements wait for the disk."""
        if connection.phase is Phase.OPEN:
            for link in list(connection.links):
                self._pump(link, now)
            if any(session.owes_credit for session in connection.channels.values()):
                connection.touch()

    def lost(self, connection: Connection, now: Nanos) -> None:
        if connection.phase is Phase.OPEN and connection.waiting_bytes:
            # What a client has said, and had to wait, is not lost with its connection.
            connection.stops_for, connection.passes, connection.holds = None, True, False
            self._handle(connection, now, NEVER)
        self._ended(connection, now)
        self._idle.forget(connection)
        self._forget(connection, now)

    def _ended(self, connection: Connection, now: Nanos) -> None:
        """Nothing more will come of its links."""
        self._opening.gone(connection)
        channels = list(connection.channels.values())
        connection.channels.clear()
        connection.held.clear()
        connection.held_bytes = 0
        for channel in channels:
            self._attaching.leave_all(channel, now)

    # Frames

    def _handle(self, connection: Connection, now: Nanos, packets_max: int) -> None:
        before = connection.messages_in
        packets_max = self._publish_held(connection, now, packets_max)
        has_more = packets_max <= 0 or self._read(connection, now, packets_max)
        connection.is_behind |= (has_more or bool(connection.held)) and connection.phase is Phase.OPEN
        if connection.messages_in != before:
            self._charge(connection, connection.messages_in - before, now)

    def _publish_held(self, connection: Connection, now: Nanos, packets_max: int) -> int:
        """What had to wait comes first; how many more frames may be handled."""
        while connection.held and packets_max > 0 and connection.stops_for is None:
            delivery = connection.held.popleft()
            connection.held_bytes -= len(delivery.payload)
            packets_max -= 1
            if not self._publish(connection, delivery, now):
                connection.held.appendleft(delivery)
                connection.held_bytes += len(delivery.payload)
                break
        return packets_max

    def _read(self, connection: Connection, now: Nanos, packets_max: int) -> bool:
        """Handle frames that have come; whether there are more of them."""
        framer = connection.framer
        try:
            while packets_max > 0:
                if connection.phase is Phase.CLOSED:
                    return False
                if connection.phase is Phase.CHECKING:
                    if framer.waiting_bytes > self.state.limits.packet_bytes_before_connect:
                        raise TooLarge("too much ahead of the answer to sasl-init", RESOURCE_LIMIT)
                    return False
                if connection.stage in (ConnectionStage.HEADER, ConnectionStage.AMQP_HEADER):
                    header = framer.take_protocol()
                    if header is None:
                        return False
                    self._opening.header(connection, header, now)
                else:
                    frame = framer.take_frame()
                    if frame is None:
                        return False
                    self._take(connection, *frame, now)
                packets_max -= 1
        except Malformed as malformed:
            self._violated(connection, malformed, now)
            return False
        return framer.waiting_bytes > 0

    def _violated(self, connection: Connection, malformed: Malformed, now: Nanos) -> None:
        why = Refusal.TOO_LARGE if isinstance(malformed, TooLarge) else Refusal.MALFORMED
        self.state.refuse(why, malformed.told, connection)
        connection.close(malformed.condition, malformed.told)
        self._ended(connection, now)
        self.pubsub.sessions.leave(connection, True, now)

    def _take(self, connection: Connection, kind: int, channel: int, body: bytes, now: Nanos) -> None:
        if connection.stage is ConnectionStage.FRAMES and kind == AMQP_FRAME:
            if body.startswith(SHORT_TRANSFER):
                self._transfer(connection, channel, *read_transfer(body), body, now)
            elif body:
                self._dispatch(connection, channel, *composites.read(body, 0), body, now)
        elif connection.stage is ConnectionStage.SASL_INIT and kind == SASL_FRAME:
            self._opening.sasl_frame(connection, composites.read(body, 0)[0])
        elif connection.stage is ConnectionStage.OPEN and kind == AMQP_FRAME:
            if body:
                self._opening.open(connection, composites.read(body, 0)[0], now)
        else:
            raise Malformed(f"a frame of type {kind} that was not expected", FRAMING_ERROR)

    def _dispatch(self, connection: Connection, channel: int, frame: object, end: int, body: bytes, now: Nanos) -> None:
        if isinstance(frame, Transfer):
            self._transfer(connection, channel, frame, end, body, now)
            return
        if end != len(body):
            raise Malformed("bytes after a performative without payload")
        match frame:
            case Begin():
                self._begin(connection, channel, frame)
            case Open():
                raise Malformed("a second open", NOT_ALLOWED)
            case Close():
                self._close(connection, now)
            case Attach() | Flow() | Disposition() | Detach() | End():
                session = connection.channels.get(channel)
                if session is None:
                    if not isinstance(frame, End):  # which may answer that the broker has ended the session
                        self._check_channel(connection, channel)
                    connection.ending.discard(channel)
                    return
                try:
                    self._in_session(session, channel, frame, now)
                except Malformed:
                    raise
                except AmqpError as error:
                    self._end_session(connection, channel, error, now)
            case _:
                raise Malformed("not a performative")

    @staticmethod
    def _check_channel(connection: Connection, channel: int) -> None:
        """Malformed if the client has not begun a session there; nothing if it does not know of its end yet."""
        if channel not in connection.ending:
            raise Malformed(f"no session on channel {channel}", NOT_ALLOWED)

    def _in_session(
        self, session: AmqpSession, channel: int, frame: Attach | Flow | Disposition | Detach | End, now: Nanos
    ) -> None:
        match frame:
            case Attach():
                self._attach(session, frame, now)
            case Flow():
                self._flow(session, frame, now)
            case Disposition():
                self._settling.disposition(session, frame, now)
            case Detach():
                self._publish_all_held(session.connection, now)
                self._attaching.detach(session, frame, now)
            case End():
                self._publish_all_held(session.connection, now)
                session.write_outcomes()
                del session.connection.channels[channel]
                self._attaching.leave_all(session, now)
                session.say(End())
            case _:
                assert_never(frame)

    def _close(self, connection: Connection, now: Nanos) -> None:
        self._publish_all_held(connection, now)
        connection.close("", "closed by the client")
        self._ended(connection, now)
        self.pubsub.sessions.leave(connection, False, now)

    # Sessions

    def _begin(self, connection: Connection, channel: int, frame: Begin) -> None:
        if channel > CHANNEL_MAX:
            raise Malformed(f"channel {channel}; at most {CHANNEL_MAX} is allowed", NOT_ALLOWED)
        if channel in connection.channels:
            raise Malformed(f"a second begin on channel {channel}", NOT_ALLOWED)
        connection.ending.discard(channel)
        session = AmqpSession(connection, channel, frame.next_outgoing_id, frame.incoming_window)
        connection.channels[channel] = session
        session.say(Begin(channel, session.next_outgoing_id, WINDOW_FRAMES, NUMBERS - 1, HANDLE_MAX))

    def _end_session(self, connection: Connection, channel: int, error: AmqpError, now: Nanos) -> None:
        self.state.refuse(Refusal.PROTOCOL, error.told, connection)
        self._publish_all_held(connection, now)
        session = connection.channels.pop(channel)
        self._attaching.leave_all(session, now)
        session.write_outcomes()
        session.say(End(Error(error.condition, error.told)))
        connection.ending.add(channel)

    # Links

    def _attach(self, session: AmqpSession, frame: Attach, now: Nanos) -> None:
        if frame.handle > HANDLE_MAX:
            raise Malformed(f"handle {frame.handle}; at most {HANDLE_MAX} is allowed", NOT_ALLOWED)
        if frame.handle in session.incoming or frame.handle in session.outgoing:
            raise AmqpError(HANDLE_IN_USE, f"handle {frame.handle} has a link already")
        session.detaching.discard(frame.handle)
        if frame.role is SENDER:
            self._attaching.attach_sender(session, frame, now)
        else:
            self._attaching.attach_receiver(session, frame, now)

    def _flow(self, session: AmqpSession, frame: Flow, now: Nanos) -> None:
        session.client_flow(frame)
        if frame.handle is None:
            if frame.echo:
                session.say(session.flow())
            return
        outgoing = session.outgoing.get(frame.handle)
        if outgoing is not None:
            outgoing.flow(frame)
            self._pump(outgoing, now, is_answer=True)
            outgoing.drained()
            if frame.echo and not outgoing.drains:
                outgoing.tell()
        elif (incoming := session.incoming.get(frame.handle)) is not None:
            if frame.echo:
                incoming.tell_credit()
        elif frame.handle not in session.detaching:
            raise AmqpError(UNATTACHED_HANDLE, f"no link has the handle {frame.handle}")

    def _pump(self, link: OutgoingLink, now: Nanos, is_answer: bool = False) -> None:
        consumer = link if link.queue is None else link.queue
        session = consumer.session
        if session is not None and session.consumer is consumer:
            if is_answer:
                session.window.answered_ns = now
            self.pubsub.delivery.pump(session, consumer, now)

    # Messages

    def _transfer(
        self, connection: Connection, channel: int, frame: Transfer, at: int, body: bytes, now: Nanos
    ) -> None:
        session = connection.channels.get(channel)
        if session is None:
            self._check_channel(connection, channel)
            return
        try:
            session.received_transfer()
            link = session.incoming.get(frame.handle)
            if link is None:
                if frame.handle not in session.detaching:
                    raise AmqpError(UNATTACHED_HANDLE, f"no link has the handle {frame.handle}")
                return
        except Malformed:
            raise
        except AmqpError as error:
            self._end_session(connection, channel, error, now)
            return
        try:
            delivery = link.transfer(frame, body[at:])
        except Malformed:
            raise
        except AmqpError as error:
            self.state.refuse(Refusal.TOO_LARGE, error.told, connection)
            link.drop_partial()
            del session.incoming[frame.handle]
            session.write_outcomes()
            session.say(Detach(frame.handle, True, Error(error.condition, error.told)))
            session.detaching.add(frame.handle)
            return
        if delivery is None:
            return
        if connection.holds or connection.held or not self._publish(connection, delivery, now):
            connection.held.append(delivery)
            connection.held_bytes += len(delivery.payload)

    def _publish(self, connection: Connection, delivery: Delivery, now: Nanos) -> bool:
        """False if the client has to stop first."""
        if connection.stops_for is not None or connection.session is None:
            return False
        try:
            self._publishing.publish(connection, connection.session, delivery, now)
        except backpressure.MustStop:
            return False
        return True

    def _publish_all_held(self, connection: Connection, now: Nanos) -> None:
        """Before links end: what they have brought is taken in, room or not."""
        if connection.held:
            stops_for, connection.stops_for = connection.stops_for, None
            passes, connection.passes = connection.passes, True
            while connection.held:
                delivery = connection.held.popleft()
                connection.held_bytes -= len(delivery.payload)
                if connection.session is not None:
                    self._publishing.publish(connection, connection.session, delivery, now)
                connection.stops_for = None
            connection.passes, connection.stops_for = passes, stops_for
