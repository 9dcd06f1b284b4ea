"""What `python bench/torture.py` runs: each part for each seed, one after the other; what held, and what did not."""

import argparse
import asyncio
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from random import Random

import msgspec
from fuzzrun import fuzz
from nemesis import WEIGHTS
from trial import Outcome, Settings, Trial
from trials import TRIALS

from _torture_options import FUZZ, OVERLAY, PARTS, parsed

SHOWN = 5
"""Violations of each kind and seed."""


def main() -> int:
    options = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # brokers and disks do not outlive it
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every line that a killed broker leaves behind
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    parts = [options.only] if options.only else list(PARTS)
    _say(options, f"seeds {seeds.start} to {seeds.stop - 1}")
    is_held = True
    results: list[dict[str, object]] = []
    for part in parts:
        if part == OVERLAY:
            held, told = _overlays(seeds, options)
            results += told
        else:
            held = True
            for seed in seeds:
                held &= _alone(part, seed, options, results)
        is_held &= held
    if options.json:
        print(msgspec.json.format(msgspec.json.encode({"held": is_held, "results": results}), indent=1).decode())
    return not is_held


def _say(options: argparse.Namespace, text: str) -> None:
    print(text, flush=True, file=sys.stderr if options.json else sys.stdout)


def _alone(part: str, seed: int, options: argparse.Namespace, results: list[dict[str, object]]) -> bool:
    """A part that has nothing to count."""
    luck = Random(f"{seed} {part}")
    held, told = True, ""
    with tempfile.TemporaryDirectory(prefix="torture-") as directory:
        try:
            if part == FUZZ:
                told = fuzz(Path(directory), seed, options.seconds, options.shrink, tuple(options.without))
            else:
                told = TRIALS[part](Path(directory), luck, time.monotonic() + options.seconds)
        except Exception as wrong:  # whatever it is, the other parts are tried all the same
            held, told = False, f"{type(wrong).__name__}: {wrong}"
    _say(options, f"{part:7} {'holds' if held else 'FAILS'} (seed {seed}): {told}")
    results.append({"part": part, "seed": seed, "held": held, "told": told})
    return held


# Five brokers


def _overlays(seeds: range, options: argparse.Namespace) -> tuple[bool, list[dict[str, object]]]:
    sabotage = dict(one.split("=", 1) for one in options.sabotage.split(",") if one)
    settings = Settings(options.seconds, options.rate, options.settle, sabotage, _kinds(options.faults))
    outcomes, results = list[Outcome](), list[dict[str, object]]()
    _say(options, HEAD)
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="torture-") as directory:
            trial = Trial(
                Path(directory), seed, settings, lambda text: _say(options, text) if options.verbose else None
            )
            try:
                outcome = asyncio.run(trial.run())
            except Exception as wrong:
                told = f"could not be run: {type(wrong).__name__}: {wrong}"
                _say(options, f"seed {seed} {told}")
                results.append({"part": OVERLAY, "seed": seed, "held": False, "told": told})
                _keep(options, Path(directory), seed)
            else:
                outcomes.append(outcome)
                results.append({"part": OVERLAY, "held": outcome.is_clean, **asdict(outcome)})
                _report(options, outcome, Path(directory), is_first=len(outcomes) == 1)
            finally:
                trial.cluster.close()
    _say(options, totals(outcomes))
    return all(one["held"] for one in results), results


def _kinds(faults: str) -> tuple[str, ...]:
    named = tuple(faults.split(","))
    if unknown := [kind for kind in named if kind not in (*WEIGHTS, "all", "none")]:
        raise SystemExit(f"--faults {unknown[0]}: expected all, none or some of {', '.join(WEIGHTS)}")
    return tuple(WEIGHTS) if "all" in named else tuple(kind for kind in named if kind != "none")


def _report(options: argparse.Namespace, outcome: Outcome, directory: Path, is_first: bool) -> None:
    if is_first:
        for word in outcome.told:
            _say(options, f"note: {word}")
    _say(options, row(outcome))
    for kind, found in outcome.violations.items():
        for one in found[:SHOWN]:
            _say(options, f"    {kind}: {one}")
        if len(found) > SHOWN:
            _say(options, f"    {kind}: and {len(found) - SHOWN} more")
    if not outcome.is_clean:
        _keep(options, directory, outcome.seed)


def _keep(options: argparse.Namespace, directory: Path, seed: int) -> None:
    if options.keep is not None:
        where = options.keep / str(seed)
        shutil.copytree(directory, where, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.reserve", "telemetry"))
        _say(options, f"    logs and data: {where}")


COLUMNS = (
    *("seed", "faults", "published", "acked", "refused", "delivered", "again", "qos 0 lost", "away", "late", "on way"),
    *("lost", "twice", "reordered", "tracebacks", "died", "dishonest", "other", "settled", "MiB"),
)
HEAD = "  ".join(f"{name:>9}" for name in COLUMNS)


def row(outcome: Outcome) -> str:
    return _row(str(outcome.seed), [outcome], f"{outcome.settled_s:.1f} s")


def totals(outcomes: list[Outcome]) -> str:
    faults: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
        counted.update(outcome.counted)
    longest_s = max((one.settled_s for one in outcomes), default=0.0)
    told, lost = (", ".join(f"{n} {kind}" for kind, n in sorted(one.items())) or "none" for one in (faults, counted))
    counts = f"faults: {told}\ncounted as lost by brokers since their last start: {lost}"
    return f"{_row('total', outcomes, f'{longest_s:.1f} s')}\n{counts}"


def _row(name: str, outcomes: list[Outcome], settled: str) -> str:
    verdicts = [one.verdict for one in outcomes]
    expected, missing = sum(one.qos0_expected for one in verdicts), sum(one.qos0_missing for one in verdicts)
    away, late = sum(one.qos0_away for one in verdicts), sum(one.qos0_late for one in verdicts)

    def share(count: int) -> str:
        return f"{100 * count / expected:.1f} %" if expected else "-"

    def count(*kinds: str) -> int:
        return sum(len(one.violations.get(kind, ())) for one in outcomes for kind in kinds)

    cells = (
        name,
        sum(sum(one.faults.values()) for one in outcomes),
        sum(one.published for one in verdicts),
        sum(one.acknowledged for one in verdicts),
        sum(one.refused for one in verdicts),
        sum(one.delivered for one in verdicts),
        sum(one.repeated for one in verdicts),
        *map(share, (missing, away, late, missing - away - late)),
        count("lost"),
        count("duplicated"),
        count("reordered"),
        count("tracebacks"),
        count("died"),
        count("dishonest"),
        count("corrupted", "protocol", "unsettled", "memory"),
        settled,
        max((one.peak_bytes >> 20 for one in outcomes), default=0),
    )
    return "  ".join(f"{cell!s:>9}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
