"""run_tests.py [OPTIONS OF PYTEST]: the tests in parallel, and a few slow ones that failed once more, alone.

Slow tests start brokers and wait for what these do in real time. On a machine that stands still for seconds one of them
may fail for that alone. So a few that failed are tried again with nothing beside them, as CPython's own suite does
(`regrtest --rerun`). What fails again has failed. What passes then is named at the end: its reason has to be found, for
it may be a race in the code as well as a limit in the test. All other tests depend on no clock, and have one try.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRIED_AGAIN_MAX = 5
"""More do not fail by chance."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Workers share the processors. With more threads, those of numpy keep processors busy while they wait for each other:
tests of planning took four times the CPU time."""
TESTS_FAILED = 1
"""Exit status of pytest; others tell of wrong options, interrupts and faults of its own."""


def main(options: list[str]) -> int:
    compile_tests()
    with tempfile.TemporaryDirectory() as folder:
        failed = Path(folder) / "failed.json"
        status = run([*options, f"--failed-to={failed}"])
        tests: dict[str, bool] = json.loads(failed.read_text()) if failed.exists() else {}
    if status != TESTS_FAILED or not 0 < len(tests) <= TRIED_AGAIN_MAX or not all(tests.values()):
        return status
    print(f"\nTrying {len(tests)} that failed once more, alone:", *tests, sep="\n  ", flush=True)
    if again := run([*options, "-n", "0", *tests]):
        return again
    print("\nUnstable: failed beside other tests and passed alone:", *tests, sep="\n  ", flush=True)
    return 0


def compile_tests() -> None:
    """Once, in a fresh clone: each worker would do it for itself, half a minute of CPU time each."""
    folder = Path("tests")
    if folder.is_dir() and not any(folder.glob("__pycache__/conftest.*-pytest-*.pyc")):
        run(["--collect-only", "-n", "0", "-qqq"], stdout=subprocess.DEVNULL)


def run(options: list[str], stdout: int | None = None) -> int:
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, env={**os.environ, **ONE_THREAD}, stdout=stdout, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
