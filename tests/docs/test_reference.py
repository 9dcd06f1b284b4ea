"""The reference of the network file says what the code does."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def test_the_tables_of_the_network_file_are_what_the_code_asks_for() -> None:
    script = PROJECT / "scripts" / "write_reference.py"
    run = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
