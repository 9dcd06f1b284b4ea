"""The driver of a session may end at any time, and whoever waits for it is told."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from sparks import GROUP, need_java, unmarked

pytestmark = GROUP

ASKS_FOR_LONG = """
from overlane.pipeline.brevity import BRIEF
from overlane.pipeline.session import open_session

with open_session("local[1]", conf=BRIEF) as spark:
    print("asking", flush=True)
    spark.range(10**13).selectExpr("sum(id)").collect()
"""


def test_who_waits_for_a_driver_that_is_killed_is_told_so() -> None:
    need_java()
    with subprocess.Popen(
        [sys.executable, "-c", ASKS_FOR_LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=unmarked()
    ) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "asking\n"
        os.kill(driver_of(asking.pid), signal.SIGKILL)
        _, said = asking.communicate(timeout=120)
    assert asking.returncode == 1
    assert said.splitlines()[-1].endswith("its driver ended in the middle of the work")


def driver_of(process: int) -> int:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return next(int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "java\n")
