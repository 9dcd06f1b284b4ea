"""The compiled wheel: built from these sources, and a part of the tests run on it.

Left out are tests that replace a method of an object by another: compiled classes do not allow it.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from overlane import __version__

ROOT = Path(__file__).parent.parent.parent
MODULES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"][
    "custom"
]["compiled"]
SMOKE = (
    "tests/core/wire/test_frame_codec.py",
    "tests/core/wire/test_mixed_run.py",
    "tests/core/links/test_neighbour.py",
    "tests/core/links/test_link_queue.py",
    "tests/turn/test_turn.py",
    "tests/turn/test_clientlink.py",
    "tests/turn/test_backpressure.py",
    "tests/mqtt/test_arrivals.py",
    "tests/mqtt/test_publish.py",
    "tests/overlay/test_crossing.py::test_messages_come_once_and_in_order_two_hops_away",
)
"""The last one with real brokers."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def build() -> Path:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/compiled_build.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def run(build: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(build)}
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_every_listed_module_is_compiled_and_there_as_source(build: Path) -> None:
    compiled = sorted(
        str(path.relative_to(build / "overlane")).partition(".")[0] for path in (build / "overlane").rglob("*.so")
    )
    assert compiled == sorted(MODULES)
    assert [module for module in MODULES if not (build / f"overlane/{module}.py").exists()] == []


@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_the_version_tells_that_it_is_the_compiled_build(build: Path, words: list[str]) -> None:
    assert run(build, "-m", "overlane", *words).stdout == f"{__version__} (compiled)\n"


def test_the_wheel_says_for_which_python_and_machine_it_is(build: Path) -> None:
    (told,) = build.glob("overlane-*.dist-info/WHEEL")
    (tag,) = [line for line in told.read_text().splitlines() if line.startswith("Tag: ")]
    assert tag.startswith(f"Tag: cp{sys.version_info.major}{sys.version_info.minor}-")
    assert "Root-Is-Purelib: false" in told.read_text()


def test_the_usual_wheel_is_pure(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OVERLANE_COMPILE"}
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", tmp_path, ROOT], env=environment, check=True)
    assert [path.name for path in tmp_path.iterdir()] == [f"overlane-{__version__}-py3-none-any.whl"]


def test_nothing_compiled_is_left_among_the_sources(build: Path) -> None:
    assert build.exists()
    assert [*(ROOT / "src").rglob("*.so")] == []


def test_a_part_of_the_tests_passes_on_the_compiled_build(build: Path) -> None:
    done = run(build, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SMOKE)
    assert done.returncode == 0, done.stdout[-8_000:]
