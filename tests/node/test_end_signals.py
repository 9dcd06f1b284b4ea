"""Signals that end a broker: heeded in the event loop, and not forgotten before that."""

import subprocess
import sys

import pytest

STORY = """
import asyncio, os, signal, uvloop
from overlane.node.end_signals import heed_end_signals, was_told_to_end

async def story():
    ended = asyncio.Event()
    heed_end_signals(asyncio.get_running_loop(), ended.set)
    assert not was_told_to_end()
    os.kill(os.getpid(), signal.{name})
    known, is_called = was_told_to_end(), ended.is_set()
    await asyncio.wait_for(ended.wait(), 20)
    print(known, is_called)

{run}(story())
print("over", flush=True)
os.kill(os.getpid(), signal.{name})
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("run", ["asyncio.run", "uvloop.run"])
def test_a_signal_is_known_at_once_and_told_in_the_loop_and_ends_a_process_without_one(name: str, run: str) -> None:
    told = [sys.executable, "-c", STORY.format(name=name, run=run)]
    ended = subprocess.run(told, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.splitlines() == ["True False", "over"], ended.stderr
    assert ended.returncode != 0
