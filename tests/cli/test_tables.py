"""Tables of commands fit the terminal: columns that matter less are left out, unless all are asked for."""

import re
from importlib import import_module
from io import StringIO

import pytest
import typer
from rich.console import Console
from typer.main import get_command

from overlane.adminapi.views import RouteList, RouteView
from overlane.cli import pipeline, plan
from overlane.cli.admin.admin_client import AdminAddress, Response
from overlane.cli.admin.routes import _show as routes_shown
from overlane.cli.commands import COMMANDS
from overlane.cli.output import QueryResult
from overlane.cli.tables import FittedTable, OutputConsole, table
from overlane.network.schema import Endpoint

TERMINAL = {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal of 80 columns."""
    for name, value in TERMINAL.items():
        monkeypatch.setenv(name, value)


def five_columns(name: str = "seattle") -> FittedTable:
    made = table("broker", "state", "up", "memory", "store", numbers=("up",), dropped_first=("store", "up"))
    made.add_row(name, "[green]ready[/]", "1.5 m", "x" * 30, "y" * 30)
    return made


def printed(made: object, capsys: pytest.CaptureFixture[str], **how: bool) -> list[str]:
    OutputConsole(**how).print(made)
    plain = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    return [line.rstrip() for line in plain.splitlines()]


@pytest.mark.usefixtures("terminal")
def test_columns_are_left_out_in_their_order_until_the_rows_fit_and_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert printed(five_columns(), capsys) == [
        "broker   state     up  memory",
        f"seattle  ready  1.5 m  {'x' * 30}",
        "not shown: store (--wide)",
    ]


@pytest.mark.usefixtures("terminal")
def test_a_long_cell_is_wrapped_rather_than_other_columns_left_out_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    made = table("topic", "messages", "bytes", dropped_first=("bytes",))
    made.add_row("t" * 200, "1", "2")
    shown = printed(made, capsys)
    assert shown[0].split() == ["topic", "messages", "bytes"]
    assert max(map(len, shown)) <= 80
    assert "".join(line.split()[0] for line in shown[1:]) == "t" * 200


@pytest.mark.usefixtures("terminal")
def test_wide_shows_all_columns_on_long_lines(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(five_columns(), capsys, is_wide=True)
    assert [line.split() for line in shown] == [
        ["broker", "state", "up", "memory", "store"],
        ["seattle", "ready", "1.5", "m", "x" * 30, "y" * 30],
    ]


@pytest.mark.usefixtures("terminal")
def test_what_is_drawn_again_keeps_to_the_terminal_and_wraps_with_wide(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(five_columns(), capsys, is_wide=True, is_redrawn=True)
    assert shown[0].split() == ["broker", "state", "up", "memory", "store"]
    assert max(map(len, shown)) <= 80


def test_output_that_is_no_terminal_has_all_columns_and_a_line_per_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = printed(five_columns("s" * 90), capsys)
    assert [line.split() for line in shown] == [
        ["broker", "state", "up", "memory", "store"],
        ["s" * 90, "ready", "1.5", "m", "x" * 30, "y" * 30],
    ]


def test_a_path_over_three_brokers_and_its_cause_stay_readable_in_80_columns() -> None:
    route = RouteView(
        id=1,
        version=2,
        topics=("alarms/#",),
        destinations=("washington",),
        paths={"washington": (("seattle", "los-angeles", "washington"),)},
        latency_ms={"washington": 51.2},
        deadline_ms=60.0,
        routing="adaptive",
        reliable=True,
        cause="deadline at risk",
        suspects=(),
        is_established=True,
        unmet={},
    )
    at = AdminAddress("seattle", Endpoint("127.0.0.1", 8001))
    out = StringIO()
    Console(file=out, width=80).print(routes_shown(QueryResult([Response(at, RouteList(items=(route,)))], {}, 0.0)))
    assert [" ".join(line.split()) for line in out.getvalue().splitlines()] == [
        "broker topics to latency paths cause",
        "seattle alarms/# washington 51.2 ms seattle -> los-angeles deadline at risk",
        "-> washington",
        "not shown: deadline, routing (--wide)",
    ]


def _commands() -> dict[str, set[str]]:
    """The options of every command."""
    tables = {"": COMMANDS, "plan ": plan.COMMANDS, "pipeline ": pipeline.COMMANDS}
    found = {}
    for group, commands in tables.items():
        for name, command in commands.items():
            module = import_module(command.module)
            if hasattr(module, "app"):
                made = get_command(module.app)
            else:
                app = typer.Typer(add_completion=False)
                app.command()(getattr(module, name.replace("-", "_")))
                made = get_command(app)
            found[group + name] = {option for one in made.params for option in one.opts}
    return found


def test_every_command_that_asks_brokers_or_zookeeper_again_and_again_has_wide() -> None:
    options = _commands()
    assert {name for name, known in options.items() if {"--watch", "--json"} <= known} == {
        *("status", "clients", "topics", "links", "routes", "gateways", "reservations", "directory"),
        *("brokers", "assignments", "recovery"),
    }
    assert {name for name, known in options.items() if "--wide" in known} == {
        *("status", "clients", "topics", "links", "routes", "gateways", "reservations", "directory"),
        *("brokers", "assignments", "recovery", "retained", "plan show", "pipeline forecast"),
    }
