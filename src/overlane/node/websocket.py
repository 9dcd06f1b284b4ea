"""MQTT in a WebSocket (MQTT 5, section 6): binary frames, subprotocol `mqtt`, any cut of packets into frames.

The frames are read and written by the `websockets` library's own state machine; here are only the bytes' ways. A text
frame, or a client that does not ask for the subprotocol, is refused as the specification says.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from overlane.node.clientlink import WRITE_HIGH_BYTES, WRITE_LOW_BYTES, ClientLink

if TYPE_CHECKING:
    from overlane.node.listeners import Doorman

UNSUPPORTED_DATA = 1003

_quiet = logging.getLogger("overlane.websocket")
_quiet.setLevel(logging.CRITICAL)


class WebSocketPipe(asyncio.Protocol):
    """The protocol of a transport, and to the client's link a pipe like any other."""

    def __init__(self, doorman: "Doorman", name: str) -> None:
        self._doorman = doorman
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._link: ClientLink | None = None
        self._socket = ServerProtocol(
            subprotocols=[Subprotocol("mqtt")],
            max_size=doorman.driver.server.state.limits.packet_bytes,
            logger=_quiet,
        )
        self._late: asyncio.TimerHandle | None = None

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's has all of it, but is no subclass
        if not self._doorman.admits():
            transport.abort()
            return
        transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._transport = transport
        within_s = self._doorman.driver.server.state.limits.connect_within_ns / 1e9
        self._late = asyncio.get_running_loop().call_later(within_s, self._look_at_handshake)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._socket.receive_data(data)
        self._work()

    def eof_received(self) -> bool:
        self._socket.receive_eof()
        self._work()
        return False

    def pause_writing(self) -> None:
        if self._link is not None:
            self._link.full()

    def resume_writing(self) -> None:
        if self._link is not None:
            self._link.drained()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        if self._late is not None:
            self._late.cancel()
        if self._link is not None:
            self._link.lost()
            self._link = None

    def _work(self) -> None:
        for event in self._socket.events_received():
            if isinstance(event, Request):
                self._greet(event)
            elif isinstance(event, Frame):
                self._frame(event)
        self._flush()

    def _greet(self, request: Request) -> None:
        from overlane.node.listeners import peer_of

        response = self._socket.accept(request)
        if response.status_code == 101 and self._socket.subprotocol is None:
            response = self._socket.reject(400, "the subprotocol mqtt is needed\n")
        self._socket.send_response(response)
        self._flush()
        if self._socket.state is State.OPEN and self._transport is not None:
            if self._late is not None:
                self._late.cancel()
            self._link = self._doorman.driver.attach(self, peer_of(self._transport, self._name))

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self._socket.fail(UNSUPPORTED_DATA, "MQTT comes in binary frames")
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT) and self._link is not None:
            self._link.received(bytes(frame.data))

    def _flush(self) -> None:
        if self._transport is None:
            return
        for data in self._socket.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.write_eof() if self._transport.can_write_eof() else self._transport.close()
        if self._socket.close_expected():
            self._transport.close()

    def _look_at_handshake(self) -> None:
        if self._link is None and self._transport is not None:
            self._transport.abort()

    # The client link's side

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

    def close(self) -> None:
        if self._socket.state is State.OPEN:
            self._socket.send_close(1000)
            self._flush()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
