"""The import rule: one table says what each part of the package may import, and everything else fails.

`core`, `planning`, `pubsub`, `mqtt`, `selectors`, `turn`, `recovery` and the decisions of `coordination` are state
machines and solvers: time, randomness and bytes are handed to them. If one of them read a clock or opened a socket,
the simulator would no longer prove anything about the broker that runs. The other parts do I/O, but import only what
the table gives them, so that dependencies point one way. `__all__` of a package lists what other parts may import of
it; the rest is private.
"""

import ast
from collections.abc import Callable, Iterator
from functools import cache
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

PURE = (
    *("core", "membership", "planning", "pubsub", "mqtt", "amqp", "nats", "selectors", "web", "turn", "coordination"),
    *("gateways", "items", "mediation", "recovery", "reservation"),
)
"""Parts that may not import anything of WORLD."""

DRIVERS = (
    "coordination/zookeeper.py",
    "coordination/ensemble/",
    "coordination/access.py",
    "coordination/client.py",
    "coordination/config_store.py",
    "gateways/sides/",
    "gateways/lane_driver.py",
    "gateways/dds/domain.py",
    "gateways/dds/running.py",
    "gateways/running.py",
)
"""Modules and folders of these parts that may: they carry out what the others decide."""

PROTOCOLS = frozenset({"mqtt5"})
MAY_SPEAK = ("mqtt", "client", "sim")
"""Parts that may import the library of a protocol. To all others messages are values, never packets."""

# fmt: off
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # Part: the parts, or modules of parts, that it may import besides itself.
    "__init__.py":   (),
    "__main__.py":   ("cli.start",),
    "build_kind.py": ("__version__",),
    "errors.py":     (),
    "certificates.py": (),
    "extras.py":     (),
    "binding.py":    ("errors", "network.schema"),
    "child_processes.py": (),
    "local_ports.py": (),
    "quantities.py": (),
    "topic_names.py": ("core.topics",),
    "domain_names.py": ("core.topics", "topic_names"),
    "secret.py":     (),
    "secret_file.py": ("errors", "secret"),
    "membership":    ("errors",),
    "planning":      ("errors",),
    "core":          ("errors", "planning"),
    "selectors":     ("errors",),
    "reservation":   ("errors", "planning.reserve", "planning.problem", "core.units"),
    "mediation":     ("errors", "core.topics", "core.units", "selectors"),
    "pubsub":        ("errors", "core", "domain_names", "mediation", "planning.reserve", "planning.problem",
                      "quantities", "secret", "selectors", "topic_names", "__version__"),
    "mqtt":          ("errors", "core", "pubsub", "secret", "__version__"),
    "amqp_connection.py": ("amqp",),
    "amqp":          ("errors", "core", "pubsub", "secret", "selectors"),
    "nats":          ("errors", "core", "pubsub", "secret", "__version__"),
    "web":           ("errors", "core.topics", "core.units", "pubsub", "quantities"),
    "turn":          ("errors", "core", "domain_names", "mediation", "pubsub", "mqtt", "amqp", "nats", "membership",
                      "planning.channels", "planning.reserve", "recovery.replication.stored_record", "reservation"),
    "network":       ("errors", "core", "domain_names", "mediation", "pubsub", "membership", "planning.reserve",
                      "quantities", "selectors", "topic_names"),
    "sim":           ("errors", "core", "pubsub", "mqtt", "turn", "membership", "network", "coordination",
                      "reservation", "items"),
    "telemetry":     ("errors", "core", "pubsub", "mqtt", "network"),
    "coordination":  ("errors", "child_processes", "core.units", "core.bundles", "local_ports", "membership",
                      "network.schema", "secret_file"),
    "recovery":      ("errors", "core.records", "core.units", "core.wire", "coordination.contract",
                      "coordination.records"),
    "items":         ("errors", "core.topics", "core.units", "planning", "coordination.contract",
                      "coordination.follower", "coordination.records", "network.schema", "network.plan"),
    "adminapi":      ("errors", "core.topics", "core.units", "network", "binding", "secret"),
    "node":          ("errors", "core", "planning.channels", "planning.reserve", "pubsub", "mqtt",
                      "amqp.client", "amqp.codec", "amqp.messages", "amqp_connection", "turn", "membership", "network",
                      "telemetry", "adminapi", "coordination", "items", "mediation", "recovery", "web", "binding",
                      "child_processes", "extras", "local_ports", "quantities", "secret", "secret_file", "client",
                      "__version__"),
    "client":        ("errors", "core.topics", "core.units", "pubsub.sessions.deduplication",
                      "pubsub.publishing.message_ids", "items", "mqtt", "quantities"),
    "gateways":      ("errors", "core.topics", "core.units", "network", "adminapi.views", "client", "pubsub.access",
                      "pubsub.message", "pubsub.properties", "topic_names", "extras", "secret_file", "membership",
                      "mqtt.codec", "nats.subjects", "amqp.client", "amqp.codec", "amqp.messages", "amqp_connection"),
    "pipeline":      ("errors", "extras", "planning", "network.plan", "telemetry.schema", "adminapi"),
    "testbed":       ("errors", "certificates", "child_processes", "core", "network", "sim", "telemetry.rows",
                      "adminapi", "client", "local_ports", "quantities", "secret_file"),
    "monitor":       ("errors", "core", "network", "sim", "telemetry.lake_history", "adminapi", "client", "quantities",
                      "secret", "secret_file"),
    "demo":          ("errors", "core.topics", "core.units", "extras", "local_ports", "network", "sim", "adminapi",
                      "client", "coordination", "recovery", "testbed", "monitor"),
    "migration":     ("errors", "core.topics", "pubsub", "membership", "network"),
    "cli":           ("errors", "core.routing.paths", "core.qos", "core.requirements", "core.units", "items",
                      "mediation", "planning", "network", "sim", "adminapi", "client", "coordination", "recovery",
                      "reservation", "pipeline", "testbed", "monitor", "demo", "certificates", "extras", "migration",
                      "local_ports", "quantities", "secret", "secret_file", "build_kind"),
}

MODULE_MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # Single modules that may import more than their part: those that run brokers or manage a broker's files.
    "cli/brokers/broker.py": ("node.node", "node.options", "node.coordination", "node.recovery", "node.logs.lines",
                              "node.supervision.service_manager"),
    "cli/brokers/gateway.py": ("gateways.dds.running", "gateways.running", "node.logs.lines"),
    "cli/brokers/up.py":     ("node.supervision", "node.logs.lines"),
    "cli/brokers/startup_report.py": ("node.end_signals",),
    "cli/brokers/two_tiers.py": ("node.supervision",),
    "cli/brokers/passwd.py": ("node.security.users",),
    "cli/brokers/check.py":  ("node.checking",),
}

CORE_CONTRACT = ("core.bundles", "core.config", "core.events", "core.federation", "core.limits", "core.qos",
                 "core.records", "core.requirements", "core.topic_cache", "core.topics", "core.units")

ROOM_MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # Folders of a part whose order matters: what else of the same part they may import. Each room uses those above it.
    "core/wire":    CORE_CONTRACT,
    "core/links":   (*CORE_CONTRACT, "core.wire"),
    "core/gossip":  (*CORE_CONTRACT, "core.wire", "core.links"),
    "core/routing": (*CORE_CONTRACT, "core.wire", "core.links", "core.gossip"),
    "core/flows":   (*CORE_CONTRACT, "core.wire", "core.links", "core.gossip", "core.routing"),
}
# fmt: on

NOT_FOR_USERS = {"client": ("clocks", "qos")}
"""Modules that other parts may import, of a package whose `__all__` is what applications may use."""

KNOWN_CYCLES: set[frozenset[str]] = set()


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


def offences(source: str, path: str) -> list[str]:
    """The imports against the rule in the source of the module at `path`, relative to the package."""
    part, _, inside = path.partition("/")
    package = ".".join(["overlane", *path.split("/")[:-1]])
    room = "/".join(path.split("/")[:2])
    inner = (*ROOM_MAY_IMPORT[room], room.replace("/", ".")) if room in ROOM_MAY_IMPORT else (part,)
    allowed = [*MAY_IMPORT[part], *MODULE_MAY_IMPORT.get(path, ()), *(inner if inside else ())]
    return [
        f"line {line}: {name}"
        for line, name in imported(source, package)
        if (part in PURE and not path.startswith(DRIVERS) and name.split(".")[0] in WORLD)
        or (part not in MAY_SPEAK and name.split(".")[0] in PROTOCOLS)
        or (name.split(".")[0] == "overlane" and not any(f"{name}.".startswith(f"overlane.{one}.") for one in allowed))
    ]


@cache
def declared(package: str) -> tuple[str, ...]:
    """What `__all__` of a package lists: modules, folders and names that other parts may use."""
    for node in ast.parse((PACKAGE / package / "__init__.py").read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign([ast.Name("__all__")], value) | ast.AnnAssign(ast.Name("__all__"), _, ast.expr() as value):
                return tuple(ast.literal_eval(value))
    raise AssertionError(f"{package} declares no public names")


def undeclared(source: str, path: str) -> list[str]:
    """What the source imports of other parts though they do not declare it."""
    found = []
    for line, name in imported(source, ".".join(["overlane", *path.split("/")[:-1]])):
        package, *steps = name.split(".")
        if package != "overlane" or not steps or steps[0] == path.split("/")[0]:
            continue
        within = ["/".join(steps[:depth]) for depth in range(1, len(steps))]
        used = zip((one for one in within if (PACKAGE / one / "__init__.py").exists()), steps[1:], strict=False)
        if any(step not in (*declared(where), *NOT_FOR_USERS.get(where, ())) for where, step in used):
            found.append(f"line {line}: {name}")
    return found


def packages() -> list[str]:
    found = (str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("__init__.py"))
    return sorted(one for one in found if one != ".")


def modules() -> list[str]:
    return sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


def everywhere(wrong_imports: Callable[[str, str], list[str]]) -> dict[str, list[str]]:
    """What is wrong with the imports of each module. One test for all: a test for each took a minute of every run."""
    found = {path: wrong_imports((PACKAGE / path).read_text(encoding="utf-8"), path) for path in modules()}
    return {path: wrong for path, wrong in found.items() if wrong}


def test_modules_import_only_what_the_table_allows() -> None:
    assert everywhere(offences) == {}


def test_modules_import_only_what_other_parts_declare() -> None:
    assert everywhere(undeclared) == {}


def missing(package: str) -> set[str]:
    """What the package declares and does not have."""
    found = {path.name.removesuffix(".py") for path in (PACKAGE / package).iterdir()}
    for node in ast.parse((PACKAGE / package / "__init__.py").read_text(encoding="utf-8")).body:
        match node:
            case ast.ImportFrom(_, names):
                found |= {alias.asname or alias.name for alias in names}
            case ast.FunctionDef(name):
                found.add(name)
    return set(declared(package)) - found


def test_what_packages_declare_exists() -> None:
    assert {package: found for package in packages() if (found := missing(package))} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from overlane.core.events import Save\nfrom overlane.core import limits", []),
        ("from overlane.core.wire import frame_codec\nfrom overlane.core.wire.parcel import Message", []),
        ("from overlane.core.flows.sink import Sink", ["line 1: overlane.core.flows.sink.Sink"]),
        ("from overlane.core.links import link_queue", ["line 1: overlane.core.links.link_queue"]),
        ("import overlane.core.link_supervisor", ["line 1: overlane.core.link_supervisor"]),
        ("from overlane.network import Network\nfrom overlane.network.schema import Topic", []),
        ("from overlane.network.sections import brokers", ["line 1: overlane.network.sections.brokers"]),
        ("from overlane.pubsub.retained.replay import Replay", ["line 1: overlane.pubsub.retained.replay.Replay"]),
    ],
)
def test_what_a_package_does_not_declare_is_private(source: str, found: list[str]) -> None:
    assert undeclared(source, "node/module.py") == found


def test_the_table_names_every_part_and_no_other() -> None:
    assert {path.split("/")[0] for path in modules()} == set(MAY_IMPORT)
    assert set(MODULE_MAY_IMPORT) <= set(modules())
    rooms = {"/".join(path.split("/")[:2]) for path in modules() if path.count("/") > 1}
    assert {room for room in rooms if room.startswith("core/")} == set(ROOM_MAY_IMPORT)


def test_dependencies_point_one_way() -> None:
    uses = {
        name.removesuffix(".py"): {one.split(".")[0] for one in allowed} - {name}
        for name, allowed in MAY_IMPORT.items()
    }
    for module, allowed in MODULE_MAY_IMPORT.items():
        uses[module.split("/")[0]] |= {one.split(".")[0] for one in allowed}

    def reaches(start: str) -> set[str]:
        found: set[str] = set()
        pending = [start]
        while pending:
            for one in uses.get(pending.pop(), set()) - found:
                found.add(one)
                pending.append(one)
        return found

    cycles = {frozenset({one, other}) for one in uses for other in uses[one] if one in reaches(other)}
    assert cycles == KNOWN_CYCLES


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
            "import heapq\nfrom overlane.planning.paths import yen\nfrom . import wire\nfrom .wire import frame_codec",
            [],
        ),
        ("planning", "import numpy\nfrom overlane.errors import ConfigError\nimport overlane.planning.paths", []),
        ("mqtt", "import mqtt5\nfrom overlane.core.topics import matches\nfrom overlane.pubsub.state import State", []),
        ("pubsub", "import mqtt5", ["line 1: mqtt5"]),
        ("pubsub", "from overlane.mqtt.codec import writing", ["line 1: overlane.mqtt.codec.writing"]),
        ("network", "from overlane.mqtt.server import Server", ["line 1: overlane.mqtt.server.Server"]),
    ],
)
def test_the_guard_catches_an_offender_and_nothing_else(part: str, source: str, found: list[str]) -> None:
    assert offences(source, f"{part}/module.py") == found


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        ("cli/brokers/broker.py", "from overlane.node.node import Node", []),
        ("cli/admin/status.py", "from overlane.node.node import Node", ["line 1: overlane.node.node.Node"]),
        ("cli/pipeline/run.py", "from ...node import node", ["line 1: overlane.node.node"]),
        ("adminapi/client.py", "import socket\nfrom overlane.core.topics import matches", []),
        ("adminapi/client.py", "from overlane.core.broker import Broker", ["line 1: overlane.core.broker.Broker"]),
        ("errors.py", "from overlane.core import units", ["line 1: overlane.core.units"]),
        ("core/links/link_queue.py", "from ..wire.parcel import Message\nfrom overlane.core.units import MS", []),
        ("core/links/link_queue.py", "from overlane.core.flows import sink", ["line 1: overlane.core.flows.sink"]),
        ("core/wire/parcel.py", "from overlane.core.broker import Broker", ["line 1: overlane.core.broker.Broker"]),
    ],
)
def test_a_module_may_import_more_than_its_part_and_a_room_less(path: str, source: str, found: list[str]) -> None:
    assert offences(source, path) == found
