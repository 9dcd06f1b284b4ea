"""The measurement of the emulator: that it runs, and that what it tells fits together."""

import json
import subprocess
import sys
from pathlib import Path

from ground import needs_a_wide_area

BENCH = Path(__file__).parents[2] / "bench" / "emulator.py"


@needs_a_wide_area
def test_it_tells_what_the_emulator_carried_and_what_that_added_to_probes() -> None:
    argv = [sys.executable, str(BENCH), "--json", "--seconds", "1", "--loads", "0,2000"]
    idle, loaded = json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=120).stdout)
    assert idle.keys() == loaded.keys()
    assert (idle["load_per_s"], idle["carried_per_s"]) == (0, 0)
    assert loaded["carried_per_s"] > 0
    for row in (idle, loaded):
        assert row["probes"] == 200
        assert 0 <= row["late"] <= row["probes"]
        assert row["machine_max_ms"] > 0.0
        # Packets go at most one grain of time too early.
        assert -0.1 <= row["excess_p50_ms"] <= row["excess_p99_ms"] <= row["excess_max_ms"]
