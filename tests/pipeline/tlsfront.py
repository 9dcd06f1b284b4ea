"""TLS before an admin listener, which has none of its own."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from overlane.testbed.certificates import Identity


@contextmanager
def tls_in_front(of: str, identity: Identity) -> Iterator[str]:
    """What an operator puts before an admin listener; the address it has."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    host, _, port = of.rpartition(":")

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            sink.write(data)
        sink.close()

    async def relay(inside: asyncio.StreamReader, outside: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(host, int(port))
        await asyncio.gather(carry(inside, requests), carry(answers, outside), return_exceptions=True)

    async def end() -> None:
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(relay, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
