"""The options of torture.py."""

import argparse
import time
from pathlib import Path

OVERLAY, FUZZ = "overlay", "fuzz"
PARTS = (OVERLAY, FUZZ, "bytes", "floods", "crowds", "kills")


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torture.py", description="Torture brokers.")
    parser.add_argument("--seconds", type=float, default=30.0, help="time for each part and seed (default 30)")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds (default 1)")
    parser.add_argument("--first-seed", "--seed", type=int, default=time.time_ns() & 0xFFFF_FFFF, help="first seed")
    parser.add_argument("--only", choices=PARTS, help="one part alone (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--rate", type=float, default=4.0, help="overlay: messages a second, publisher and topic")
    parser.add_argument("--settle", type=float, default=120.0, help="overlay: seconds to settle after the faults")
    parser.add_argument("--faults", default="all", help="overlay: kinds of faults, KIND,..., or none (default: all)")
    parser.add_argument("--sabotage", default="", help="overlay: BROKER=DEFECT,... (sabotage.py), to test the checker")
    parser.add_argument(
        "--without", action="append", default=[], help="fuzz: leave out a rule (machine.py); may repeat"
    )
    parser.add_argument(
        "--shrink", action="store_true", help="fuzz: look for the fewest steps that do harm; takes long"
    )
    parser.add_argument("--keep", type=Path, help="keep logs and data of what failed in this directory")
    parser.add_argument("--verbose", action="store_true", help="print each fault when it begins")
    return parser.parse_args(words)
