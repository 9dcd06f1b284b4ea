"""What every solver says when it cannot answer: the problem is wrong, or it has no solution."""

from dataclasses import dataclass, field


class BadProblem(ValueError):
    """The problem contradicts itself or reality: which field, what was found, what is allowed."""

    def __init__(self, field_name: str, found: str, allowed: str) -> None:
        super().__init__(f"{field_name}: found {found}, allowed is {allowed}")
        self.field_name = field_name
        self.found = found
        self.allowed = allowed


@dataclass
class NoSolution(Exception):
    """Nothing satisfies every constraint: what is missing, and the nearest answer that could be had."""

    missing: str
    nearest: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.missing
