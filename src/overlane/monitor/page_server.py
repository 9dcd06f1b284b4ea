"""Serves the page: a live monitor or a recording, with its HTTP server, from start to end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from overlane.errors import ConfigError, Fault
from overlane.monitor.chaos import BrokerControl, Chaos
from overlane.monitor.history import Head, History
from overlane.monitor.live_monitor import LiveMonitor
from overlane.monitor.overlay_state import OverlayDelta
from overlane.monitor.server import MonitorServer
from overlane.monitor.traffic import TestTraffic
from overlane.network.schema import Endpoint, Network
from overlane.network.syntax.kinds import endpoint
from overlane.secret import Secret
from overlane.secret_file import read_token

DEFAULT_AT = "127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class PageListener:
    """Where a page is served, and the token that it asks for; the brokers' admin API has the same."""

    endpoint: Endpoint
    token: Secret | None


@dataclass(frozen=True, slots=True)
class LiveOverlay:
    """Running brokers. `broker_control` stops and starts them, if available."""

    network: Network
    title: str
    page: PageListener
    is_chaotic: bool
    broker_control: BrokerControl | None


def page_listener(network: Network | None, address: str, token_file: Path | None) -> PageListener:
    """ConfigError if the address is invalid, or not loopback and there is no token."""
    try:
        at = endpoint().read(address)
    except ValueError:
        raise ConfigError([Fault("monitor", 0, "", f'"{address}"', 'an address such as "127.0.0.1:8080"')]) from None
    file = token_file or (network.security.admin_token if network is not None else None)
    token = read_token(file) if file is not None else None
    if token is None and not at.is_loopback():
        allowed = "a loopback address; any other with a token (--token-file, or admin_token in [security])"
        raise ConfigError([Fault("monitor", 0, "", f'"{address}" without a token', allowed)])
    return PageListener(at, token)


@asynccontextmanager
async def serve_live(overlay: LiveOverlay) -> AsyncIterator[str]:
    """Yields the URL of the page; Unavailable if the address cannot be bound."""
    monitor = LiveMonitor(
        overlay.network,
        overlay.title,
        overlay.page.token,
        is_chaotic=overlay.is_chaotic,
        can_restart=overlay.is_chaotic and overlay.broker_control is not None,
    )
    traffic = TestTraffic(overlay.network)
    chaos = Chaos(overlay.network, monitor, overlay.broker_control, traffic) if overlay.is_chaotic else None
    server = MonitorServer(overlay.page.endpoint, monitor.lines, chaos, overlay.page.token)
    await server.start()
    polling = asyncio.create_task(monitor.run())
    try:
        yield server.address
    finally:
        await traffic.stop()
        polling.cancel()
        with suppress(asyncio.CancelledError):
            await polling
        await server.stop()


@asynccontextmanager
async def serve_recording(head: Head, changes: Sequence[OverlayDelta], page: PageListener) -> AsyncIterator[str]:
    """Yields the URL of the page; Unavailable if binding fails."""
    past = History(head, float("inf"), sum(change.size for change in changes) + 1)
    for change in changes:
        past.add(change)

    async def lines() -> AsyncIterator[bytes]:
        for line in past.lines():
            yield line

    server = MonitorServer(page.endpoint, lines, None, page.token)
    await server.start()
    try:
        yield server.address
    finally:
        await server.stop()
