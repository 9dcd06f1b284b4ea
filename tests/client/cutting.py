"""A line between client and broker that is cut, again and again, wherever chance wants it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK_BYTES = 4096


class CuttingLine:
    """Passes bytes on in both directions. Each connection may carry a drawn number of bytes, then it is cut."""

    def __init__(self, target_port: int, seed: int, bytes_max: int) -> None:
        self._target_port = target_port
        self._luck = random.Random(seed)
        self._bytes_max = bytes_max
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts = 0
        self.is_healed = False
        self.address = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator["CuttingLine"]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def heal(self) -> None:
        """No more cuts on connections to come."""
        self.is_healed = True

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        left = [1 << 60 if self.is_healed else self._luck.randrange(1, self._bytes_max)]
        ways = [
            asyncio.create_task(self._pass_on(reader, far_writer, left)),
            asyncio.create_task(self._pass_on(far_reader, writer, left)),
        ]
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            # Both ends learn of it the hard way, and bytes under way are lost.
            writer.transport.abort()
            far_writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                writer.write(data[: left[0]])
                left[0] -= len(data)
                if left[0] <= 0:
                    # What was let through arrives; what was too much never does.
                    await writer.drain()
                    self.cuts += 1
                    return
                await writer.drain()
