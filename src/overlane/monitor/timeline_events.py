"""Timeline events: what happened to an overlay, as text.

link       a link became suspect, failed, or recovered
route      topics were rerouted, and why
deadline   no path meets the deadline of a topic
broker     a broker was lost, or is back
deed       an action of a user (chaos) or an event of a simulation
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["link", "route", "deadline", "broker", "deed"]
Weight: TypeAlias = Literal["bad", "warning", "good", "note"]

PATHS_SHOWN = 2
TOPICS_SHOWN = 2
DESTINATIONS_SHOWN = 3

_LINK_WEIGHTS: dict[str, Weight] = {"up": "good", "suspect": "warning", "failed": "bad", "down": "bad"}
_LINK_WORDS = {
    "up": "is up",
    "suspect": "is suspected",
    "failed": "has failed",
    "down": "has lost its connection",
}


class TimelineEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`after_ms`: time since the last action, for events that it may have caused."""

    number: int
    at_s: float
    kind: Kind
    weight: Weight
    text: str
    cause: str = ""
    after_ms: float | None = None
    brokers: tuple[str, ...] = ()
    link: str = ""
    filters: tuple[str, ...] = ()


def describe_link(one: str, other: str, state: str) -> tuple[str, Weight]:
    return f"{one} - {other} {_LINK_WORDS.get(state, state)}", _LINK_WEIGHTS.get(state, "note")


def describe_route(
    source: str,
    topics: Sequence[str],
    destinations: Sequence[str],
    paths: Mapping[str, Sequence[Sequence[str]]],
) -> str:
    """Which topics, and over which paths."""
    named = some(topics, TOPICS_SHOWN) or "messages"
    shown = list(dict.fromkeys(" → ".join(path) for to in destinations for path in paths.get(to, ())))
    if not shown:
        return f"{named} from {source} cannot reach {some(destinations, DESTINATIONS_SHOWN)}"
    return f"{named} now over {some(shown, PATHS_SHOWN, ' and ')}"


def some(words: Sequence[str], most: int, between: str = ", ") -> str:
    """The first few, and how many more there are."""
    more = [f"{len(words) - most} more"] if len(words) > most else []
    return between.join([*words[:most], *more])
