"""A relay between two brokers on one machine, for what a connection and the datagrams beside it may meet on their way.

It has another address of the machine than the broker behind it, and the same port: who dials it gets that broker, and
finds its datagrams there too. Datagrams can be lost, changed, repeated and made up.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

HOST = "127.0.0.2"


class Relay:
    """`alter` gets every datagram and tells what arrives instead of it."""

    def __init__(self, behind: str) -> None:
        host, port = behind.split(":")
        self._behind = host, int(port)
        self.address = f"{HOST}:{port}"
        self.alter: Callable[[bytes], list[bytes]] = lambda datagram: [datagram]
        self.seen: list[bytes] = []
        self._server: asyncio.Server | None = None
        self._front: asyncio.DatagramTransport | None = None
        self._backs: dict[Any, asyncio.DatagramTransport] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Relay":
        loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._connected, HOST, self._behind[1])
        front, _ = await loop.create_datagram_endpoint(lambda: _Ear(self._from_front), (HOST, self._behind[1]))
        self._front = front
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._front is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for transport in (self._front, *self._backs.values()):
            transport.close()

    def inject(self, datagram: bytes) -> None:
        """Made up by somebody else on the same machine."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(datagram, self._behind)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self._behind)
        for task in (_pass(reader, there_writer), _pass(there_reader, writer)):
            running = asyncio.create_task(task)
            self._tasks.add(running)
            running.add_done_callback(self._tasks.discard)

    def _from_front(self, datagram: bytes, address: Any) -> None:
        if address in self._backs:
            self._relay(self._backs[address], datagram, None)
        else:
            task = asyncio.create_task(self._first(datagram, address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _first(self, datagram: bytes, address: Any) -> None:
        loop = asyncio.get_running_loop()
        back, _ = await loop.create_datagram_endpoint(
            lambda: _Ear(lambda answer, _: self._relay(self._front, answer, address)), remote_addr=self._behind
        )
        self._backs[address] = back
        self._relay(back, datagram, None)

    def _relay(self, way: asyncio.DatagramTransport | None, datagram: bytes, address: Any) -> None:
        self.seen.append(datagram)
        for one in self.alter(datagram):
            assert way is not None
            way.sendto(one, address)


class _Ear(asyncio.DatagramProtocol):
    def __init__(self, hear: Callable[[bytes, Any], None]) -> None:
        self._hear = hear

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._hear(data, addr)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
