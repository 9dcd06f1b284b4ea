"""Tunnels: local connections of links whose bytes travel as messages of a foreign broker.

For each neighbour that is carried there is a port on the loopback interface. A connection to it is one to the
neighbour's overlay address: links dial it as any other address, and are measured, encrypted and watched as any other.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Coroutine

from overlane.membership.carrier import Carrier
from overlane.membership.endpoint import Endpoint
from overlane.node.links.carrier.bus import CarrierBus, make_bus
from overlane.node.links.carrier.frames import (
    DATA_BYTES_MAX,
    NONCE_BYTES,
    CarriedConnection,
    CarrierFrame,
    FrameKind,
    FrameSeal,
)
from overlane.secret import Secret

log = logging.getLogger("overlane.link")

LOOPBACK = "127.0.0.1"
PAUSE_S = 1.0
CONNECTIONS_MAX = 64
"""Of one neighbour at a time."""


class CarrierTunnels:
    """All carried neighbours of one broker. `own`: where this broker listens for its neighbours."""

    def __init__(self, me: str, own: Callable[[], Endpoint | None], secret: Secret) -> None:
        self._me = me
        self._own = own
        self._secret = secret
        self._tunnels: dict[str, _Tunnel] = {}

    def set(self, peer: str, carrier: Carrier) -> Endpoint:
        """Carry the link to this neighbour; the address to dial."""
        tunnel = self._tunnels.get(peer)
        if tunnel is None or tunnel.carrier != carrier:
            self.forget(peer)
            tunnel = self._tunnels[peer] = _Tunnel(self._me, peer, carrier, self._secret, self._own)
            tunnel.start()
        return tunnel.endpoint

    def forget(self, peer: str) -> None:
        tunnel = self._tunnels.pop(peer, None)
        if tunnel is not None:
            tunnel.end()

    def end(self) -> None:
        for peer in list(self._tunnels):
            self.forget(peer)


class _Tunnel:
    """All connections between this broker and one neighbour."""

    def __init__(
        self, me: str, peer: str, carrier: Carrier, secret: Secret, own: Callable[[], Endpoint | None]
    ) -> None:
        self.carrier = carrier
        self._me = me
        self._peer = peer
        self._own = own
        self._seal = FrameSeal(secret, me, peer)
        self._unseal = FrameSeal(secret, peer, me)
        self._there = carrier.topic(peer, me)
        self._here = carrier.topic(me, peer)
        self._bus: CarrierBus | None = None
        self._connections: dict[int, _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Bound at once: whoever dials needs the number. Connections wait in it until there is a server.
        self._socket = _listening_socket()
        self.endpoint = Endpoint(LOOPBACK, self._socket.getsockname()[1])

    def start(self) -> None:
        self.spawn(self._run())

    def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self._connections.values()):
            connection.close()
        self._socket.close()

    def spawn(self, running: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(running)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def send(self, frame: CarrierFrame) -> bool:
        """False if the carrier is not connected."""
        if self._bus is None:
            return False
        return await self._bus.publish(self._there, self._seal.seal(frame, os.urandom(NONCE_BYTES)))

    def gone(self, number: int) -> None:
        self._connections.pop(number, None)

    async def _run(self) -> None:
        server = await asyncio.start_server(self._dialled, sock=self._socket)
        try:
            while True:
                name = f"overlane-{self._me}-{self._peer}-{secrets.token_hex(4)}"
                self._bus = make_bus(self.carrier, name)
                reason = await self._bus.run(self._here, self._arrived)
                log.info("carrier %s of the link to %s: %s", self.carrier.url, self._peer, reason)
                self._bus = None
                for connection in list(self._connections.values()):
                    connection.close()
                await asyncio.sleep(PAUSE_S)
        finally:
            server.close()

    async def _arrived(self, message: bytes) -> None:
        frame = self._unseal.open(message)
        if frame is not None:
            await self._received(frame)

    async def _received(self, frame: CarrierFrame) -> None:
        connection = self._connections.get(frame.connection)
        match frame.kind:
            case FrameKind.OPEN:
                if connection is None and len(self._connections) < CONNECTIONS_MAX:
                    self._connections[frame.connection] = connection = _Connection(self, frame.connection)
                    self.spawn(connection.accept(self._own()))
            case FrameKind.CLOSE:
                if connection is not None:
                    connection.close(is_told=True)
            case _ if connection is None:
                await self.send(CarrierFrame(FrameKind.CLOSE, frame.connection))
            case FrameKind.DATA:
                connection.data(frame.sequence, frame.data)
            case FrameKind.TAKEN:
                connection.taken(frame.sequence)

    async def _dialled(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = secrets.randbits(64)
        connection = self._connections[number] = _Connection(self, number)
        if not await self.send(CarrierFrame(FrameKind.OPEN, number)):
            writer.close()
            self.gone(number)
            return
        await connection.run(reader, writer)


class _Connection:
    def __init__(self, tunnel: _Tunnel, number: int) -> None:
        self._tunnel = tunnel
        self._number = number
        self._state = CarriedConnection()
        self._inbox: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self._room = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._closed = asyncio.Event()
        self._is_told = False

    async def accept(self, own: Endpoint | None) -> None:
        try:
            if own is None:
                raise OSError
            host = LOOPBACK if own.is_wildcard() else own.host
            reader, writer = await asyncio.open_connection(host, own.port)
        except OSError:
            await self._end()
            return
        await self.run(reader, writer)

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        tasks = [asyncio.create_task(one) for one in (self._send(reader), self._hand_on(writer), self._closed.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writer.close()
            await self._end()

    def close(self, *, is_told: bool = False) -> None:
        """`is_told`: by the other end."""
        self._is_told |= is_told
        self._closed.set()

    def data(self, sequence: int, data: bytes) -> None:
        match self._state.arrived(sequence):
            case True:
                self._inbox.put_nowait((sequence, data))
            case None:
                self.close()

    def taken(self, sequence: int) -> None:
        self._state.was_taken(sequence)
        self._room.set()

    async def _send(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(DATA_BYTES_MAX):
            while not self._state.has_room:
                self._room.clear()
                await self._room.wait()
            frame = CarrierFrame(FrameKind.DATA, self._number, self._state.next_sequence(), data)
            if not await self._tunnel.send(frame):
                return

    async def _hand_on(self, writer: asyncio.StreamWriter) -> None:
        while True:
            sequence, data = await self._inbox.get()
            writer.write(data)
            if self._inbox.empty() or sequence % 8 == 0:
                await writer.drain()
                await self._tunnel.send(CarrierFrame(FrameKind.TAKEN, self._number, sequence))

    async def _end(self) -> None:
        self._tunnel.gone(self._number)
        if not self._is_told:
            await self._tunnel.send(CarrierFrame(FrameKind.CLOSE, self._number))


def _listening_socket() -> socket.socket:
    bound = socket.socket()
    bound.bind((LOOPBACK, 0))
    bound.listen(16)
    bound.setblocking(False)
    return bound
