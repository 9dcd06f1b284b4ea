"""What all plan commands share: read a problem, refuse a bad one, print the answer, say how it ended.

Exit status: 0 solved, 2 the problem is bad, 3 it has no feasible answer.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import msgspec
import typer
from rich.console import Console

from overlane.planning.problem import BadProblem, NoSolution

BAD_PROBLEM = 2
NO_SOLUTION = 3

ProblemFile = Annotated[str, typer.Argument(metavar="PROBLEM", help="A JSON file, or - for standard input.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]

Problem = TypeVar("Problem", bound=msgspec.Struct)
Answer = TypeVar("Answer", bound=msgspec.Struct)


def answer(
    source: str,
    problem_type: type[Problem],
    solve: Callable[[Problem], Answer],
    show: Callable[[Problem, Answer, Console], None],
    as_json: bool,
) -> None:
    """Read a problem of `problem_type` from `source`, solve it and print the answer; exit as the module says."""
    try:
        problem = msgspec.json.decode(_read(source), type=problem_type)
        found = solve(problem)
    except NoSolution as none:
        if as_json:
            typer.echo(msgspec.json.encode({"missing": none.missing, "nearest": none.nearest}))
        elif none.nearest:
            nearest = msgspec.json.format(msgspec.json.encode(none.nearest), indent=2).decode()
            typer.echo(f"The nearest that can be had: {nearest}")
        _stop(f"no feasible answer: {none.missing}", NO_SOLUTION)
    except (msgspec.DecodeError, BadProblem) as bad:  # a ValidationError is a DecodeError
        _stop(f"{source}: {bad}", BAD_PROBLEM)
    if as_json:
        typer.echo(msgspec.json.encode(found))
    else:
        show(problem, found, Console())


def _read(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as refused:
        _stop(f"{source}: cannot be read: {refused.strerror}", BAD_PROBLEM)


def _stop(reason: str, status: int) -> NoReturn:
    typer.echo(f"overlane: {reason}", err=True)
    raise typer.Exit(status)
