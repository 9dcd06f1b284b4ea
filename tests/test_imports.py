"""The import rule: the pure parts touch neither the world nor what is built on them.

`core`, `planning` and `mqtt` are state machines and solvers: time, randomness and bytes are handed to them. If one of
them reached for a clock or a socket, the simulator would no longer prove anything about the broker that runs.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "overlane"

# fmt: off
WORLD = frozenset({
    "asyncio", "datetime", "io", "kazoo", "multiprocessing", "os", "pathlib", "pyspark",
    "random", "secrets", "select", "selectors", "signal", "socket", "sqlite3", "ssl",
    "subprocess", "tempfile", "threading", "time", "uuid", "uvloop",
})
# fmt: on

# What each pure part may import of ours, besides itself.
MAY_IMPORT = {
    "core": ("overlane.errors", "overlane.planning"),
    "planning": ("overlane.errors",),
    "mqtt": ("overlane.errors", "overlane.core", "overlane.network.units", "overlane.__version__"),
}


def imported(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Every module that the source imports, at any depth, with its line. `package` is where relative imports start."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module, names, level):
                base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                name = ".".join([*base, *([module] if module else [])])
                # `from overlane import node` imports overlane.node: a name may be a module too.
                yield from ((node.lineno, f"{name}.{alias.name}") for alias in names)
            case ast.Call(ast.Name("__import__") | ast.Attribute(attr="import_module"), [ast.Constant(str(name)), *_]):
                yield node.lineno, name


def offences(source: str, part: str, package: str) -> list[str]:
    """What the source of a module in `part` imports against the rule."""
    allowed = (f"overlane.{part}", *MAY_IMPORT[part])
    return [
        f"line {line}: {name}"
        for line, name in imported(source, package)
        if name.split(".")[0] in WORLD
        or (name.split(".")[0] == "overlane" and not any(f"{name}.".startswith(f"{ours}.") for ours in allowed))
    ]


def modules() -> list[tuple[str, Path]]:
    return [(part, path) for part in MAY_IMPORT for path in sorted((PACKAGE / part).rglob("*.py"))]


@pytest.mark.parametrize(("part", "path"), modules(), ids=lambda value: str(value).removeprefix(f"{PACKAGE}/"))
def test_a_pure_part_imports_nothing_of_the_world_nor_of_what_is_above_it(part: str, path: Path) -> None:
    package = ".".join(["overlane", *path.relative_to(PACKAGE).parent.parts])
    assert offences(path.read_text(encoding="utf-8"), part, package) == []


def test_the_guard_sees_the_parts_it_guards() -> None:
    assert {part for part, _ in modules()} >= {"core", "planning"}


@pytest.mark.parametrize(
    ("part", "source", "found"),
    [
        ("core", "import time", ["line 1: time"]),
        ("core", "import os.path as p", ["line 1: os.path"]),
        ("core", "from random import Random", ["line 1: random.Random"]),
        ("planning", "def f():\n    import asyncio\n", ["line 2: asyncio"]),
        ("mqtt", "class A:\n    def f(self):\n        from socket import socket\n", ["line 3: socket.socket"]),
        ("core", "if True:\n    import threading, uuid", ["line 2: threading", "line 2: uuid"]),
        ("core", "__import__('secrets')", ["line 1: secrets"]),
        ("core", "import importlib\nimportlib.import_module('datetime')", ["line 2: datetime"]),
        ("core", "from overlane.sim import clock", ["line 1: overlane.sim.clock"]),
        ("core", "from overlane import node", ["line 1: overlane.node"]),
        ("core", "from .. import sim", ["line 1: overlane.sim"]),
        ("core", "from ..sim.clock import Clock", ["line 1: overlane.sim.clock.Clock"]),
        ("planning", "from overlane.core.topics import matches", ["line 1: overlane.core.topics.matches"]),
        ("planning", "import overlane.core", ["line 1: overlane.core"]),
        ("core", "import overlane.planning_tools", ["line 1: overlane.planning_tools"]),
        ("core", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import socket", ["line 3: socket"]),
        (
            "core",
            "import heapq\nfrom overlane.planning.paths import yen\nfrom . import wire\nfrom .wire import Frame",
            [],
        ),
        ("planning", "import numpy\nfrom overlane.errors import ConfigError\nimport overlane.planning.paths", []),
        ("mqtt", "from overlane.core.topics import matches", []),
    ],
)
def test_the_guard_catches_an_offender_and_nothing_else(part: str, source: str, found: list[str]) -> None:
    assert offences(source, part, f"overlane.{part}") == found
