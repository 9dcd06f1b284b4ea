"""Runs the fuzzer for a while."""

import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import Fuzz
from target import Chain

STEPS = 25
EXAMPLES = 50
"""Sequences of steps of one seed. The first of them is always the simplest there is."""


def fuzz(directory: Path, first_seed: int, seconds: float, shrinks: bool = False, without: tuple[str, ...] = ()) -> str:
    """What was done; Harm, or whatever else went wrong, with the steps that led to it. `without`: rules left out."""
    chain = Chain(directory, shrinks)
    chain.begin()
    chain.until_s = time.monotonic() + seconds
    rounds = 0
    phases = (Phase.generate, Phase.shrink) if shrinks else (Phase.generate,)
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        phases=phases,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    try:
        while True:
            machine = seed(first_seed * 1_000_003 + rounds)(
                type("SeededFuzz", (Fuzz,), {"chain": chain, **dict.fromkeys(without)})
            )
            run_state_machine_as_test(machine, settings=chosen)
            rounds += 1
    except Exception:
        if chain.harm is None and time.monotonic() > chain.until_s:
            return f"{chain.steps} steps; at most {chain.peak_bytes >> 20} MiB"
        if chain.harm is not None and not shrinks:
            raise chain.harm from None
        raise
    finally:
        chain.end()
