"""To go before everything else on the machine, and to be as before afterwards."""

import json
import subprocess
import sys

FIFO, DEADLINE = 1, 6
HURRYING = """
import json, os, subprocess, sys
from overlane.testbed.realtime_priority import reset_priority, raise_priority
policy = lambda: os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
asked = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK)"]
before = policy()
told, in_haste = raise_priority(), policy()
child = int(subprocess.run(asked, capture_output=True, check=True).stdout) if in_haste == 6 else before
reset_priority()
print(json.dumps([before, told, in_haste, child, policy()]))
"""


def test_who_hurries_is_told_whether_it_may_and_neither_its_children_nor_itself_later_are_in_a_hurry() -> None:
    ran = subprocess.run([sys.executable, "-c", HURRYING], capture_output=True, check=True, timeout=60)
    before, told, in_haste, child, after = json.loads(ran.stdout)
    assert told == (in_haste in (FIFO, DEADLINE))
    assert told or in_haste == before
    assert (before, child, after) == (0, 0, 0)
