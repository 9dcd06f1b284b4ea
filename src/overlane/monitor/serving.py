"""A page being served: a watch of running brokers, or a recording, and the server before it, from start to end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from overlane.errors import ConfigError, Fault
from overlane.monitor.chaos import Chaos, Keeper
from overlane.monitor.past import Past
from overlane.monitor.recordfile import read_recording
from overlane.monitor.server import Server
from overlane.monitor.streams import Streams
from overlane.monitor.watch import Watch
from overlane.mqtt.secret import Secret
from overlane.network.kinds import endpoint
from overlane.network.schema import Endpoint, Network
from overlane.node.secretfile import read_token

DEFAULT_AT = "127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Page:
    """Where a page is served, and the token that it asks for; the brokers' admin API has the same."""

    endpoint: Endpoint
    token: Secret | None


@dataclass(frozen=True, slots=True)
class Watched:
    """Running brokers. `keeper` starts and stops them, where somebody can."""

    network: Network
    title: str
    page: Page
    is_chaotic: bool
    keeper: Keeper | None


def page_at(network: Network | None, address: str, token_file: Path | None) -> Page:
    """ConfigError where the address is none, or one that others can reach and there is no token."""
    try:
        at = endpoint().read(address)
    except ValueError:
        raise ConfigError(
            [Fault("the monitor", 0, "", f'"{address}"', 'an address such as "127.0.0.1:8080"')]
        ) from None
    file = token_file or (network.security.admin_token if network is not None else None)
    token = read_token(file) if file is not None else None
    if token is None and not at.is_loopback():
        allowed = "a loopback address; any other with a token (--token-file, or admin_token in [security])"
        raise ConfigError([Fault("the monitor", 0, "", f'"{address}" without a token', allowed)])
    return Page(at, token)


@asynccontextmanager
async def serving_live(watched: Watched) -> AsyncIterator[str]:
    """The address of the page; Unavailable if it cannot be had."""
    watch = Watch(
        watched.network,
        watched.title,
        watched.page.token,
        is_chaotic=watched.is_chaotic,
        can_restart=watched.is_chaotic and watched.keeper is not None,
    )
    streams = Streams(watched.network)
    chaos = Chaos(watched.network, watch, watched.keeper, streams) if watched.is_chaotic else None
    server = Server(watched.page.endpoint, watch.lines, chaos, watched.page.token)
    await server.start()
    watching = asyncio.create_task(watch.run())
    try:
        yield server.address
    finally:
        await streams.stop()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await server.stop()


@asynccontextmanager
async def serving_recording(file: Path, page: Page) -> AsyncIterator[str]:
    """The address of the page; ConfigError if the file is no recording, Unavailable if the address cannot be had."""
    head, changes = read_recording(file)
    past = Past(head, float("inf"), sum(change.size for change in changes) + 1)
    for change in changes:
        past.add(change)

    async def lines() -> AsyncIterator[bytes]:
        for line in past.lines():
            yield line

    server = Server(page.endpoint, lines, None, page.token)
    await server.start()
    try:
        yield server.address
    finally:
        await server.stop()
