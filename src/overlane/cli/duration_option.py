"""Parser of command-line options that are durations."""

import typer

from overlane.core.units import Nanos
from overlane.quantities import parse_duration


def positive_duration(text: str) -> Nanos:
    try:
        duration_ns = parse_duration(text)
    except ValueError as reason:
        raise typer.BadParameter(f'got {text} ({reason}); expected a duration such as "60s" or "1.5m"') from None
    if duration_ns <= 0:
        raise typer.BadParameter(f"got {text}; expected a duration above 0")
    return duration_ns
