"""MQTT over WebSocket (MQTT 5, section 6): binary frames, subprotocol `mqtt`; packets may be split across frames.

The state machine of the `websockets` library reads and writes the frames; this module only moves bytes. A text frame,
or a client that does not request the subprotocol, is rejected as the specification says.

    request -- complete and valid --> open -- CONNECT, as over TCP --> known -- any end --> closed
    request -- too late, too long, or invalid --> closed

Data after the request is not processed before the request has been answered. A client that is not authenticated yet
cannot make the broker hold much memory, however it splits its frames.
"""

import asyncio
import logging
from typing import cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from overlane.core.units import SECOND
from overlane.errors import Failure
from overlane.node.clients.client_end import ClientEnd
from overlane.node.clients.connection_limiter import ConnectionDecision, ConnectionLimiter, peer_of
from overlane.pubsub.counters import Refusal
from overlane.turn.client_link import LINGER_S, WRITE_HIGH_BYTES, WRITE_LOW_BYTES
from overlane.turn.lingering import Drain

STRANGER_BYTES_MAX = 64 * 1024
"""Maximum bytes of a client before it is authenticated, including the HTTP request."""
END_OF_REQUEST = b"\r\n\r\n"

_quiet = logging.getLogger("overlane.websocket")
_quiet.setLevel(logging.CRITICAL)


class WebSocketPipe(asyncio.Protocol):
    """The protocol of a transport, and to the client's link a pipe like any other."""

    def __init__(self, limiter: ConnectionLimiter, name: str) -> None:
        self._limiter = limiter
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._link: ClientEnd | None = None
        self._socket = ServerProtocol(
            subprotocols=[Subprotocol("mqtt")],
            max_size=limiter.driver.server.state.limits.packet_bytes,
            logger=_quiet,
        )
        self._since_ns = limiter.driver.clock.now()
        self.tls_late: asyncio.TimerHandle | None = None
        self._late: asyncio.TimerHandle | None = None
        self._request: bytearray | None = bytearray()
        """What is there of the request; None once it is whole."""
        self._strange_bytes = 0
        self._is_turned_away = False
        self._drain: Drain | None = None

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's has all of it, but is no subclass
        if self.tls_late is not None:
            self.tls_late.cancel()
        decision = self._limiter.admit()
        if decision is ConnectionDecision.CLOSE:
            transport.abort()
            return
        self._is_turned_away = decision is ConnectionDecision.REJECT
        transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._transport = transport
        left_ns = self._limiter.left_ns(self._since_ns)
        self._late = asyncio.get_running_loop().call_later(left_ns / SECOND, self._look_at_request)

    def data_received(self, data: bytes) -> None:
        try:
            self._received(data)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """A fault of ours, or of the library."""
        self._limiter.driver.failures.isolated(Failure("websocket", self._name, error))
        self.abort()

    def _received(self, data: bytes) -> None:
        if self._drain is not None:
            self._drain.discard(len(data))
            return
        if self._transport is None or self._count_strange(len(data)):
            return
        if self._request is not None:
            searched = len(self._request)
            self._request += data
            end = self._request.find(END_OF_REQUEST, max(0, searched - len(END_OF_REQUEST)))
            if end < 0:
                return
            end += len(END_OF_REQUEST)
            request, data, self._request = bytes(self._request[:end]), bytes(self._request[end:]), None
            self._feed(request)
        if data:
            self._feed(data)

    def eof_received(self) -> bool:
        try:
            self._socket.receive_eof()
            self._work()
        except Exception as error:
            self._failed(error)
        return False

    def pause_writing(self) -> None:
        if self._link is not None:
            self._link.full()

    def resume_writing(self) -> None:
        if self._link is not None:
            self._link.drained()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        if self._drain is not None:
            self._drain.cancel()
        if self._late is not None:
            self._late.cancel()
        if self._link is not None:
            self._link.lost()
            self._link = None

    def _count_strange(self, more_bytes: int) -> bool:
        """Of a client that is not known: whatever state the frames are in, no more than a little of them is kept."""
        if self._link is not None and not self._link.connection.is_stranger:
            return False
        self._strange_bytes += more_bytes
        if self._strange_bytes <= STRANGER_BYTES_MAX:
            return False
        self._refuse(Refusal.TOO_LARGE, f"more than {STRANGER_BYTES_MAX} bytes before it was accepted")
        self.abort()
        return True

    def _feed(self, data: bytes) -> None:
        self._socket.receive_data(data)
        wrong = self._socket.parser_exc
        if wrong is not None:
            self._refuse(Refusal.MALFORMED, f"WebSocket: {wrong}")
        self._work()

    def _work(self) -> None:
        for event in self._socket.events_received():
            if isinstance(event, Request):
                self._greet(event)
            elif isinstance(event, Frame):
                self._frame(event)
        self._flush()

    def _greet(self, request: Request) -> None:
        response = self._socket.accept(request)
        if response.status_code == 101 and self._socket.subprotocol is None:
            response = self._socket.reject(400, "the subprotocol mqtt is needed\n")
        self._socket.send_response(response)
        self._flush()
        if self._late is not None:
            self._late.cancel()
        if self._socket.state is State.OPEN and self._transport is not None:
            peer = peer_of(self._transport, self._name)
            self._link = self._limiter.driver.attach(self, peer, self._since_ns, self._is_turned_away)
        else:
            self._refuse(Refusal.PROTOCOL, f"WebSocket: {response.status_code} {response.reason_phrase}")

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self._refuse(Refusal.PROTOCOL, "WebSocket: a text frame")
            self._socket.fail(CloseCode.UNSUPPORTED_DATA, "MQTT needs binary frames")
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT) and self._link is not None:
            self._link.received(bytes(frame.data))

    def _flush(self) -> None:
        if self._transport is None:
            return
        for data in self._socket.data_to_send():
            if not data:  # the end, behind which nothing more is said
                if self._socket.close_rcvd is None:
                    self._linger()
                else:
                    self._transport.close()
                return
            self._transport.write(data)

    def _linger(self) -> None:
        """The client has been sent the error of the WebSocket, and may not have read it yet."""
        if self._drain is None and self._transport is not None:
            self._drain = self._limiter.driver.lingering.begin(self._transport)
            asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def _look_at_request(self) -> None:
        if self._link is None and self._transport is not None:
            self._refuse(Refusal.CONNECT_LATE, "no WebSocket request in time")
            self._transport.abort()

    def _refuse(self, why: Refusal, told: str) -> None:
        self._limiter.refuse(why, told, self._link)

    # The client link's side

    def divert(self, end: ClientEnd) -> None:
        """All further bytes of the client, and its end, go there."""
        self._link = end

    def write(self, data: bytes) -> None:
        if self._socket.state is State.OPEN:
            self._socket.send_binary(data)
            self._flush()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The client answers with a close frame of its own, behind all that it has sent before."""
        if self._socket.state is State.OPEN:
            self._socket.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()

    def close(self) -> None:
        self.write_eof()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
