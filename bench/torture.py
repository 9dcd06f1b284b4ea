"""Torture test of brokers, as long as wanted: all kinds of faults in an overlay of five, a fuzzer, floods, many
clients, kills.

    python bench/torture.py [--seconds N] [--seeds N] [--first-seed S] [--only PART] [--json]

A longer version of tests/torture, tests/fuzz and tests/stress. Prints the results of all checks; the status is 1 if any
failed, and the seed repeats the faults. The proof of an overlay is --only overlay --seeds 20 --seconds 60.

As root, some brokers have small disks of their own, in a mount namespace that ends with the run.
"""

import os
import shutil
import sys
from pathlib import Path

from _torture_options import parsed

TESTS = Path(__file__).resolve().parents[1] / "tests"

if __name__ == "__main__":
    parsed()
    folders = (TESTS, TESTS / "stress", TESTS / "fuzz", Path(__file__).parent)
    paths = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(TESTS / "torture" / "command.py"), *sys.argv[1:]]
    unshare = shutil.which("unshare")
    if os.geteuid() == 0 and unshare is not None:
        environment["TORTURE_OWN_MOUNTS"] = "1"
        command = [unshare, "--mount", *command]
    os.execve(command[0], command, environment)
