"""What a broker does without the extras, and what is said where one is missing."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import mqtt5
import pytest
from packaging.requirements import Requirement

from overlane.extras import EXTRAS
from watched import WatchedBroker, let_in

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parent.parent
SOURCES = PROJECT / "src" / "overlane"
MISSING = sorted({package for packages in EXTRAS.values() for package in packages})


def without(packages: list[str], *words: str) -> list[str]:
    """A command in a Python that has not got these packages."""
    script = f"import sys; sys.modules.update(dict.fromkeys({packages!r})); sys.argv = {['overlane', *words]!r}"
    return [sys.executable, "-c", f"{script}\nfrom overlane.cli.start import run\nrun()"]


class Bare(WatchedBroker):
    def command(self) -> list[str]:
        words = super().command()
        return without([*MISSING, *self.also_missing], *words[words.index("broker") :])

    also_missing = ("cryptography", "prometheus_client", "pydantic", "rich")
    """Packages that come with every installation, and that a broker does not import before it needs them."""


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Bare]:
    broker = Bare(tmp_path / "broker")
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def test_a_broker_runs_without_any_extra_and_says_what_it_does_not_do(bare: Bare) -> None:
    with let_in(bare.port, "reader") as reader, let_in(bare.port, "writer") as writer:
        reader.subscribe("t")
        writer.publish("t", b"hello", qos=1)
        assert reader.read(mqtt5.PublishPacket).payload == b"hello"
    bare.stop()
    log = bare.log
    said = "no telemetry is recorded: the package pyarrow is missing; pip install 'overlane[telemetry]'"
    assert log.count(said) == 1
    assert "Traceback" not in log


@pytest.mark.parametrize(("tables", "options"), [("[telemetry]\nenabled = true\n", ()), ("", ("--telemetry", "lake"))])
def test_a_broker_that_is_told_to_record_does_not_start_without_the_extra(
    tmp_path: Path, tables: str, options: tuple[str, ...]
) -> None:
    broker = Bare(tmp_path / "broker", tables, options=options)
    ended = subprocess.run(broker.command(), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "telemetry: the package pyarrow is missing; pip install 'overlane[telemetry]'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        ("plan allocate x.toml", "numpy", "planning"),
        ("plan channels x.toml", "numpy", "planning"),
        ("pipeline run --lake lake --out out", "pyspark", "pipeline"),
        ("testbed x.toml", "pyarrow", "telemetry"),
        ("monitor x.toml --telemetry lake", "pyarrow", "telemetry"),
        ("pipeline sample out", "numpy", "planning"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(words: str, package: str, extra: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        without([package], *words.split()), capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert f"the package {package} is missing; pip install 'overlane[{extra}]'" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", ["--help", "plan --help", "pipeline --help", "plan paths --help", "demo --help"])
def test_what_needs_no_extra_works_without(words: str) -> None:
    ended = subprocess.run(without(MISSING, *words.split()), capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_project_file_gives_each_extra_its_packages_and_none_of_them_to_everybody() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]

    def named(requirements: list[str], package: str) -> bool:
        name = {"jwt": "pyjwt"}.get(package, package.replace("_", "-"))  # as PyPI writes it
        return any(one.startswith(name) and not one[len(name)].isalnum() for one in requirements)

    for extra, packages in EXTRAS.items():
        for package in packages:
            assert named(project["optional-dependencies"][extra], package), (extra, package)
            assert not named(project["dependencies"], package), package


BROKER_BYTES_MAX = 60_000_000


def test_the_packages_of_a_broker_without_extras_take_less_than_60_megabytes() -> None:
    """Without bytecode, which Python writes itself."""
    names, known = ["overlane"], {"overlane"}
    total = sum(file.stat().st_size for file in SOURCES.rglob("*") if file.is_file() and file.suffix != ".pyc")
    while names:
        for told in metadata.requires(names.pop()) or ():
            wanted = Requirement(told)
            is_for_all = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
            if is_for_all and (name := wanted.name.lower()) not in known:
                known.add(name)
                names.append(name)
                total += sum(_size(file) for file in metadata.files(name) or ())
    assert {"cryptography", "uvloop"} <= known
    assert total < BROKER_BYTES_MAX


def _size(file: metadata.PackagePath) -> int:
    path = Path(str(file.locate()))
    return path.stat().st_size if path.is_file() and path.suffix != ".pyc" else 0
