"""Fields of a decoded payload by their paths, as selectors name them: `room.floor`, `readings.0.value`.

A change makes new objects along the path, and leaves the old ones alone: other rules may have them still.
"""

from collections.abc import Sequence

from overlane.mediation.rule import RuleFailed


def with_field(body: object, path: Sequence[str], value: object) -> object:
    """Objects along the path are made where there is nothing. RuleFailed where there is something else."""
    if not path:
        return value
    first, *rest = path
    if isinstance(body, dict):
        return {**body, first: with_field(body.get(first), rest, value)}
    if isinstance(body, list):
        at = _index(first, len(body))
        if at is None:
            raise RuleFailed(f"field {'.'.join(path)}: an array of {len(body)} has no item {first[:20]!a}")
        return [*body[:at], with_field(body[at], rest, value), *body[at + 1 :]]
    if body is None:
        return {first: with_field(None, rest, value)}
    raise RuleFailed(f"field {'.'.join(path)}: its parent is neither an object nor an array")


def without_field(body: object, path: Sequence[str]) -> object:
    """The same where there is no such field."""
    first, *rest = path
    if isinstance(body, dict) and first in body:
        if rest:
            return {**body, first: without_field(body[first], rest)}
        return {name: value for name, value in body.items() if name != first}
    if isinstance(body, list) and (at := _index(first, len(body))) is not None:
        return [*body[:at], *([without_field(body[at], rest)] if rest else []), *body[at + 1 :]]
    return body


def _index(part: str, length: int) -> int | None:
    if not (part.isdecimal() and part.isascii() and len(part) <= 9):
        return None
    return int(part) if int(part) < length else None
