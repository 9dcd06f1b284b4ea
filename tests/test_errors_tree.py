"""Errors are one tree with codes, which docs/errors.md explains."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import overlane
from overlane.cli import start
from overlane.errors import ConfigError, Fault, OverlaneError, Unavailable, coded
from overlane.network.plan import BadPlan

PAGE = (Path(__file__).parents[1] / "docs" / "errors.md").read_text()


def exceptions() -> Iterator[type[BaseException]]:
    for module in pkgutil.walk_packages(overlane.__path__, "overlane."):
        if module.name.endswith("__main__"):
            continue
        for one in vars(importlib.import_module(module.name)).values():
            if isinstance(one, type) and issubclass(one, BaseException) and one.__module__ == module.name:
                yield one


def test_every_public_exception_is_in_the_tree() -> None:
    public = [one for one in exceptions() if not one.__name__.startswith("_")]
    assert [one for one in public if not issubclass(one, OverlaneError)] == []
    assert len(public) > 30


INTERNAL = {"InternalError", "MustStop", "NotPrimary"}
"""Always caught by another part of the broker or of the simulator, or a defect by itself."""


def test_every_exception_that_can_reach_a_user_has_a_code() -> None:
    uncoded = {
        one.__name__
        for one in exceptions()
        if issubclass(one, OverlaneError) and one is not OverlaneError and one.error_code == OverlaneError.error_code
    }
    assert {name for name in uncoded if not name.startswith("_")} == INTERNAL


@pytest.mark.parametrize(
    ("error", "status"), [(BadPlan("epoch", "-1", "0 or more"), 2), (Unavailable("spark", "no Java"), 1)]
)
def test_an_error_that_a_command_does_not_expect_is_one_line_with_its_code(
    error: OverlaneError, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise error

    monkeypatch.setattr(start, "_run", command)
    with pytest.raises(SystemExit) as end:
        start.run()
    assert end.value.code == status
    assert capsys.readouterr().err == f"overlane: {error} [{error.error_code}]\n"


def test_a_code_belongs_to_one_exception_and_is_explained() -> None:
    own = [(one.__dict__["error_code"], one.__qualname__) for one in exceptions() if "error_code" in vars(one)]
    codes = [code for code, _ in own]
    assert len(codes) == len(set(codes)), sorted(own)
    explained = re.findall(r"^\| (OVL-\d{3}) \|", PAGE, re.MULTILINE)
    assert explained == sorted(explained)
    assert set(explained) == {*codes, "OVL-102"}  # of the words of a command, for which there is no exception


def test_a_code_stands_at_the_end_of_each_line() -> None:
    faults = [Fault("a.toml", line, "", "x", "y") for line in (1, 2)]
    assert ConfigError(faults).with_code().splitlines() == [
        "a.toml:1: found x, allowed is y [OVL-101]",
        "a.toml:2: found x, allowed is y [OVL-101]",
    ]
    assert coded("", "OVL-201") == " [OVL-201]"
