"""The benchmarks, run as the documents say, but small: what they would measure that way means nothing, but they run.

Each runs in a copy of its folder, so that figures that were measured stay. It gets options that make it small, and
where it has none, constants. Of two commands of a script the one that asks for less is not run beside the other. The
one of the whole pipeline uses the Spark of the other tests, with settings for little: it is there, and warm.
"""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from doccommands import Command, commands_in_sentences, commands_of
from docpages import PAGES, PROJECT, read_page

from overlane.pipeline.small_runs import SMALL_RUN_CONF
from overlane.testbed.wide_area import why_not
from sparks import GROUP, need_java, the_address, unmarked

WITHIN_S = 600.0
NUMBER = re.compile(r"[0-9.e]+")


@dataclass(frozen=True)
class Small:
    options: str = ""
    constants: dict[str, str] = field(default_factory=dict)
    needs_root: bool = False
    starts_spark: bool = False
    needs_spark: bool = False
    """One that runs already."""
    needs_zookeeper: bool = False


ONE_ROUND = "--only small --systems overlane --rounds 1 --seconds 0.2"
BRIEFLY = " ".join(f"--conf {name}={value}" for name, value in SMALL_RUN_CONF.items() if name.startswith("spark.sql."))

BENCHMARKS: dict[str, Small] = {
    "adaptive": Small("--quick --only abilene --ways adaptive --flows 1 --seconds 2 --workers 1"),
    "adaptive_onsets": Small("--seeds 1"),
    "amqp": Small("--systems Overlane --rounds 1 --seconds 0.3 --rate 100"),
    "broker": Small(ONE_ROUND),
    "chain": Small(ONE_ROUND, needs_root=True),
    "coordination": Small("--only join --subscribers 100 --join-edges 3", needs_zookeeper=True),
    "channels": Small("--sets 2 --seconds 1"),
    "compare_costs": Small("--only opcodes"),
    "cost": Small("--rounds 1"),
    "covariance": Small("--topics 20 --seconds 100 --memory 1g --rounds 1", starts_spark=True),
    "direct_links": Small("--seconds 2"),
    "emulator": Small("--loads 0 --seconds 0.3", needs_root=True),
    "gateways": Small("--only nats --systems overlane --rounds 1 --seconds 0.2 --no-real-time"),
    "growth": Small("--sizes 6 --seconds 2"),
    "incarnation_proofs": Small(constants={"ROUNDS": "1", "TIMES": "5"}),
    "items": Small("--only risks --quick --samples 1000"),
    "linkqueue": Small(constants={"LENGTHS": "(10,)", "TURNS": "100"}),
    "lone": Small("--rounds 1", {"MESSAGES": "10", "WARM": "10"}),
    "mixed": Small("--quick --only one-1 --systems overlane --rounds 1 --seconds 0.2 --no-real-time"),
    "order": Small(constants={"LONGEST_NS": "1 * SECOND"}),
    "pipeline": Small(f"--rows 1e4 --brokers 3 --topics 10 --once --scratch . {BRIEFLY}", needs_spark=True),
    "pipeline_incremental": Small(
        f"--rows 4e4 --brokers 2 --topics 4 --new 0.4 --quick --scratch . {BRIEFLY}", needs_spark=True
    ),
    "planning_allocation": Small(constants={"SIZES": "((8, 3),)", "CASEBASE": "(8, 3)"}),
    "planning_channels": Small(constants={"SIZES": "((7, 6, 2),)"}),
    "planning_paths": Small(constants={"SIZES": "(10,)", "PAIRS": "2"}),
    "reserved": Small("--seconds 1 --latency 500ms --burst 50"),
    "scale": Small("--sizes 10 --seconds 2", {"QUIET_NS: Nanos": "10 * SECOND"}),
    "scheduling": Small("--loads 0.9 --seeds 1 --seconds 0.2"),
    "store": Small(constants={"ROUNDS": "1", "SECONDS": "0.05"}),
    "takeover": Small("--only throughput", {"ROUNDS": "1", "SECONDS": "0.5"}, needs_zookeeper=True),
    "telemetry": Small("--rounds 1 --seconds 0.1", {"WARM_S": "0.2", "ROWS": "1_000"}),
    "topics": Small(constants={"SIZES": "(100,)", "ROUNDS": "1"}),
    "torture": Small("--seeds 1 --seconds 3 --only bytes"),
    "walk": Small("--verbose"),
    "two_tiers": Small("--sizes 4,6 --topics-per-edge 10 --routers 2 --edges 4 --topics 8 --subscribers 20"),
    "wan": Small("--only bursts --seconds 0.5 --systems overlane", needs_root=True),
}


def test_every_benchmark_is_run() -> None:
    assert {script.stem for script in (PROJECT / "bench").glob("[!_]*.py")} == set(BENCHMARKS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[GROUP] if small.needs_spark else []) for name, small in BENCHMARKS.items()]
)
def test_a_benchmark_runs_as_the_documents_say(name: str, tmp_path: Path) -> None:
    small = BENCHMARKS[name]
    if small.needs_root and (reason := why_not()):
        pytest.skip(reason)
    if small.starts_spark or small.needs_zookeeper:
        need_java()
    lay_out(tmp_path, name, small)
    where = ["--remote", the_address()] if small.needs_spark else []
    for words in distinct(told(f"bench/{name}.py"), small.options.split()):
        given = (*words, *small.options.split(), *where)
        run(tmp_path, f"bench/{name}.py", *given, environment=unmarked() if small.starts_spark else None)


def test_a_soak_runs_as_the_documents_say() -> None:
    (words,) = distinct(told("tests/mqtt/mqtt_soak.py"), [])
    assert len(words) == 2
    run(PROJECT, "tests/mqtt/mqtt_soak.py", words[0], "3")


def test_of_two_commands_the_one_that_asks_for_less_is_left_out() -> None:
    commands = [[], ["--rounds", "3"], ["--rounds", "3", "--nice", "-10"], ["casebase"]]
    assert distinct(commands, ["--rounds", "1"]) == [["--nice", "-10"], ["casebase"]]
    assert distinct([[], ["--rounds", "3"]], ["--rounds", "1"]) == [[]]
    assert distinct([["--rows", "1e7", "1e8", "--plans"]], ["--rows", "1e4"]) == [["--plans"]]


def told(script: str) -> list[list[str]]:
    """What the documents give this script; nothing is what `make bench` gives it."""
    commands = [one for name in PAGES for one in _commands(name)]
    parts = [re.sub(r"^([A-Z_]+=\S+ )*", "", one.text).split() for one in commands]
    return [[], *(words[2:] for words in parts if words[:2] == ["python", script])]


def _commands(name: str) -> list[Command]:
    page = read_page(name)
    return [*commands_of(page), *commands_in_sentences(page)]


def distinct(commands: list[list[str]], small: list[str]) -> list[list[str]]:
    """Without what `small` says otherwise, and without those of which another has all words and more."""
    found: list[list[str]] = []
    for words in commands:
        left = [word for word in words if not word.startswith("[")]
        for option in (word for word in small if word.startswith("--") and word in left):
            at = left.index(option)
            del left[at : at + 2]
            while NUMBER.fullmatch(" ".join(left[at : at + 1])):  # several, as sizes are
                del left[at]
        if left not in found:
            found.append(left)
    return [one for one in found if not any(set(one) < set(other) for other in found)]


def lay_out(place: Path, name: str, small: Small) -> None:
    (place / "bench").mkdir()
    for file in (*(PROJECT / "bench").glob("*.py"), PROJECT / "bench" / "costs.json"):
        shutil.copy(file, place / "bench")
    for folder in ("examples", "tests"):
        (place / folder).symlink_to(PROJECT / folder)
    script = place / "bench" / f"{name}.py"
    for constant, value in small.constants.items():
        text, count = re.subn(rf"^{constant} = .*$", f"{constant} = {value}", script.read_text(), flags=re.MULTILINE)
        assert count == 1, f"{constant} in {script.name}"
        script.write_text(text)


def run(place: Path, *words: str, environment: dict[str, str] | None = None) -> None:
    command = [sys.executable, *words]
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    assert done.stdout, " ".join(words)
