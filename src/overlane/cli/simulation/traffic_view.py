"""Display of traffic: a live line on a terminal, otherwise one line per second; and a summary at the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from overlane.cli.simulation.traffic import Traffic
from overlane.client.clocks import now_ns
from overlane.core.units import NEVER, Nanos
from overlane.quantities import format_duration

LIVE_EVERY_S = 0.25
LINE_EVERY_S = 1.0


@asynccontextmanager
async def shown(traffic: Traffic, verb: str, is_quiet: bool = False) -> AsyncIterator[None]:
    """Show the traffic on standard error while the block runs."""
    if is_quiet:
        yield
        return
    console = Console(stderr=True, highlight=False)
    task = asyncio.create_task(_live(console, traffic, verb) if console.is_terminal else _lines(console, traffic, verb))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _live(console: Console, traffic: Traffic, verb: str) -> None:
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            live.update(Text(_line(traffic, verb, now_ns())), refresh=True)
            await asyncio.sleep(LIVE_EVERY_S)


async def _lines(console: Console, traffic: Traffic, verb: str) -> None:
    while True:
        await asyncio.sleep(LINE_EVERY_S)
        console.print(_line(traffic, verb, now_ns()), soft_wrap=True, markup=False)


def _line(traffic: Traffic, verb: str, now: Nanos) -> str:
    rate, bytes_rate = traffic.recent(now)
    parts = [f"{traffic.messages:,} {verb}", f"{rate:,.0f}/s", f"{_size(bytes_rate)}/s"]
    percentiles = traffic.latencies.percentiles_ms()
    if percentiles is not None:
        parts.append(
            f"p50 {percentiles['p50']:.3g} ms, p99 {percentiles['p99']:.3g} ms, p99.9 {percentiles['p999']:.3g} ms"
        )
        if traffic.deadline_ns < NEVER:
            parts.append(f"{share(traffic.in_time, traffic.latencies.count)} in time")
    return "  ".join(parts)


def summary(console: Console, traffic: Traffic, verb: str, what: str, notes: list[str]) -> None:
    rate = traffic.messages_per_second
    line = f"[bold]{traffic.messages:,}[/] messages {verb}, {_size(traffic.size_bytes)}"
    if rate is not None:
        line += f", in {traffic.seconds:.2f} s: {rate:,.1f}/s, {_size(traffic.size_bytes / traffic.seconds)}/s"
    console.print(line, soft_wrap=True)
    percentiles = traffic.latencies.percentiles_ms()
    if percentiles is not None:
        console.print(
            f"{what} p50 {percentiles['p50']:.4g} ms, p99 {percentiles['p99']:.4g} ms, "
            f"p99.9 {percentiles['p999']:.4g} ms, max {percentiles['max']:.4g} ms",
            soft_wrap=True,
        )
        if traffic.deadline_ns < NEVER:
            within = format_duration(traffic.deadline_ns)
            console.print(f"{share(traffic.in_time, traffic.latencies.count)} in time, within {within}", soft_wrap=True)
    for note in notes:
        console.print(escape(note), soft_wrap=True)


def share(part: int, whole: int) -> str:
    """A percentage, 100 % only if it is all of them."""
    if part == whole:
        return "100 %"
    return f"{min(100 * part / whole, 99.99):.2f} %"


def _size(size_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000 or unit == "GB":
            break
        size_bytes /= 1000
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.3g} {unit}"
