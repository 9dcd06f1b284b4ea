"""Torture a broker for as long as wanted: bad bytes, floods, comings and goings, and kill -9 under load.

    python bench/torture.py [--seconds N] [--seed S] [--only bytes|floods|crowds|kills]

The same that tests/stress does briefly, with chances of the seed's own. Each part gets its share of the time. Prints
what held and what did not; the status is 1 if anything did not, and the seed repeats it.
"""

import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"

if __name__ == "__main__":
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    os.execve(sys.executable, [sys.executable, str(TESTS / "stress" / "trials.py"), *sys.argv[1:]], environment)
