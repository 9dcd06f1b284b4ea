"""Errors of the solvers: the problem is invalid, or has no solution."""

from dataclasses import dataclass, field

from overlane.errors import OverlaneError


class BadProblem(OverlaneError, ValueError):
    """The problem is invalid: the field, its value, and what is expected."""

    error_code = "OVL-105"

    def __init__(self, field_name: str, found: str, allowed: str) -> None:
        super().__init__(f"{field_name}: got {found}; expected {allowed}")
        self.field_name = field_name
        self.found = found
        self.allowed = allowed


@dataclass
class NoSolution(OverlaneError):
    """No solution satisfies all constraints: what is missing, and the nearest solution."""

    error_code = "OVL-106"

    missing: str
    nearest: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.missing
