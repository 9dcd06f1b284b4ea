"""Shared by the commands that solve a problem: read the problem, solve it, print the solution.

Exit status: 0 solved, 2 the problem is invalid, 3 it has no feasible solution.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.console import Console

from overlane.cli.exit_status import fail
from overlane.planning.problem import BadProblem, NoSolution

NO_SOLUTION = 3

ProblemFile = Annotated[str, typer.Argument(metavar="PROBLEM", help="Problem as a JSON file, or - for standard input.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the solution as JSON.")]

Problem = TypeVar("Problem", bound=msgspec.Struct)
Answer = TypeVar("Answer", bound=msgspec.Struct)


def run_solver(
    source: str,
    problem_type: type[Problem],
    solve: Callable[[Problem], Answer],
    show: Callable[[Problem, Answer, Console], None],
    as_json: bool,
) -> None:
    """Read a problem of `problem_type` from `source`, solve it, and print the solution."""
    try:
        problem = msgspec.json.decode(_read(source), type=problem_type)
        found = solve(problem)
    except NoSolution as none:
        if as_json:
            typer.echo(msgspec.json.encode({"missing": none.missing, "nearest": none.nearest}))
        elif none.nearest:
            nearest = msgspec.json.format(msgspec.json.encode(none.nearest), indent=2).decode()
            typer.echo(f"Nearest feasible solution: {nearest}")
        fail(f"no feasible solution: {none.missing}", NO_SOLUTION, NoSolution.error_code)
    except (msgspec.DecodeError, BadProblem) as bad:  # a ValidationError is a DecodeError
        fail(f"{source}: {bad}", code=BadProblem.error_code)
    if as_json:
        typer.echo(msgspec.json.encode(found))
    else:
        show(problem, found, Console())


def _read(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as refused:
        fail(f"cannot read {source}: {refused.strerror}")
