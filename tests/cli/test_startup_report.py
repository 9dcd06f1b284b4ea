"""What `overlane up` says while it starts and stops."""

import asyncio
import subprocess
import sys

from overlane.cli.brokers.startup_report import StartupReport
from waiting import eventually_async

SIGNALLED = """
import asyncio, os, signal
from overlane.cli.brokers.startup_report import StartupReport

async def story():
    report = StartupReport(lambda who, text: print(who, text))
    report.stop_on_signals(lambda: print("stop"), lambda: print("end"))
    os.kill(os.getpid(), signal.SIGTERM)
    report.ready(lambda: print("ready"))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

asyncio.run(story())
"""


def test_what_is_missing_is_said_until_all_is_ready() -> None:
    async def story() -> list[tuple[str, str]]:
        told: list[tuple[str, str]] = []
        report = StartupReport(lambda who, text: told.append((who, text)), 0.0, 0.0)
        missing = ["a (to start)"]
        report.awaited = lambda: missing[0]
        running = asyncio.create_task(report.run())
        await eventually_async(lambda: bool(told), "told")
        missing[0] = ""
        report.ready(lambda: told.append(("up", "ready")))
        await running
        return list(dict.fromkeys(told))

    assert asyncio.run(story()) == [("up", "waiting for a (to start)"), ("up", "ready")]


def test_nothing_is_ready_from_the_moment_of_a_signal_on_and_a_second_one_hurries() -> None:
    done = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["up stopping", "stop", "up ending at once", "end"], done.stderr
