"""What a host measures of itself, for its score (`recovery.hosts.scoring`): processors, memory, battery, rates of its
links, and the number that a command of the operator prints.

What cannot be read counts as not measured. The score is rounded, so that it changes seldom: every change is a write to
ZooKeeper that all hosts of the domain read.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from overlane.core.units import SECOND
from overlane.network.schema import Scoring
from overlane.recovery.hosts.scoring import Needs, Resources, Weights, parse_command_output, score

EVERY_S = 10.0
COMMAND_S = 5.0
STEPS = 20
"""Of the score between 0 and 1."""
KIB_PER_GIB = 1 << 20
HOUR = 3_600 * SECOND
CPU_INFO, MEMORY_INFO, POWER = Path("/proc/cpuinfo"), Path("/proc/meminfo"), Path("/sys/class/power_supply")

log = logging.getLogger("overlane.recovery")


class Measuring:
    """Calls `tell` with the score, at the start and whenever it has changed."""

    def __init__(self, scoring: Scoring, rates_bps: Callable[[], Iterable[int]], tell: Callable[[float], None]) -> None:
        self._scoring = scoring
        self._rates_bps = rates_bps
        self._tell = tell
        self._told: float | None = None
        self._task = asyncio.get_running_loop().create_task(self._measure_always())

    def end(self) -> None:
        self._task.cancel()

    async def _measure_always(self) -> None:
        while True:
            found = await self._score()
            if found != self._told:
                self._told = found
                self._tell(found)
            await asyncio.sleep(EVERY_S)

    async def _score(self) -> float:
        scoring = self._scoring
        number = await printed_by(scoring.command) if scoring.command else None
        resources = measured(number, tuple(rate / 1e6 for rate in self._rates_bps()))
        needs = Needs(
            scoring.cpu_needed,
            scoring.memory_needed_bytes / 2**30,
            scoring.bandwidth_needed_bps / 1e6,
            scoring.battery_needed_ns / HOUR,
        )
        weights = Weights(
            scoring.cpu, scoring.memory, scoring.bandwidth, scoring.battery, 1.0 if scoring.command else 0.0
        )
        return round(score(resources, needs, weights).total * STEPS) / STEPS


def measured(command: float | None = None, bandwidth_mbps: tuple[float, ...] = ()) -> Resources:
    count = os.cpu_count() or 1
    memory = _fields(_text(MEMORY_INFO))
    total_kib, free_kib = memory.get("MemTotal"), memory.get("MemAvailable")
    mhz = [value for name, value in _pairs(_text(CPU_INFO)) if name == "cpu MHz"]
    return Resources(
        cpu_ghz=sum(mhz) / 1_000 if mhz else None,
        cpu_used=min(1.0, os.getloadavg()[0] / count),
        memory_gib=total_kib / KIB_PER_GIB if total_kib else None,
        memory_used=1 - free_kib / total_kib if total_kib and free_kib is not None else 0.0,
        battery_hours=_battery_hours(),
        bandwidth_mbps=bandwidth_mbps,
        command=command,
    )


async def printed_by(command: tuple[str, ...]) -> float | None:
    """The number that a command prints; None where it fails, prints none, or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        log.error("%s: %s", command[0], error.strerror)
        return None
    try:
        async with asyncio.timeout(COMMAND_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        log.error("%s did not end within %g s", command[0], COMMAND_S)
        return None
    return parse_command_output(output.decode(errors="replace")) if process.returncode == 0 else None


def _battery_hours() -> float | None:
    """Of a host that runs on its battery."""
    for battery in sorted(POWER.glob("BAT*")):
        energy, power = _number(battery / "energy_now"), _number(battery / "power_now")
        if _text(battery / "status").strip() == "Discharging" and energy is not None and power:
            return energy / power
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    try:
        return float(_text(path))
    except ValueError:
        return None


def _fields(text: str) -> dict[str, float]:
    return dict(_pairs(text))


def _pairs(text: str) -> Iterable[tuple[str, float]]:
    """Lines such as `MemTotal:  16384 kB`."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        try:
            yield name.strip(), float(words[0])
        except (IndexError, ValueError):
            continue
