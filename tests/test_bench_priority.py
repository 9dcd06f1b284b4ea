"""A benchmark that goes first leaves the priority of whoever started it as it was."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
GROUP = Path("/proc/self/autogroup")
SWITCH = Path("/proc/sys/kernel/sched_autogroup_enabled")
GROUPS_ARE_ON = SWITCH.exists() and SWITCH.read_text().strip() == "1"
GO_FIRST = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from _priority import go_first
go_first(-5)
print(pathlib.Path("/proc/self/autogroup").read_text())
"""


@pytest.mark.skipif(not GROUPS_ARE_ON, reason="the kernel does not schedule sessions as groups")
def test_a_benchmark_that_goes_first_has_a_group_of_its_own() -> None:
    before = GROUP.read_text().split()  # empty in the group that the kernel starts with
    done = subprocess.run([sys.executable, "-c", GO_FIRST, str(BENCH)], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:1] not in ([], before[:1])
    assert GROUP.read_text().split() == before
