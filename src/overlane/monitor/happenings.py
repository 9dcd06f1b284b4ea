"""Happenings: what happened to an overlay, in words. Each is an entry of the timeline.

link       a link became suspect, failed, or came back
route      topics take another way, and why
deadline   no way is quick enough for a topic
broker     a broker is lost, or is back
deed       somebody did something to the overlay: a chaos button, or an event of a simulation
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["link", "route", "deadline", "broker", "deed"]
Weight: TypeAlias = Literal["bad", "warning", "good", "note"]

PATHS_TOLD = 2
TOPICS_TOLD = 2
DESTINATIONS_TOLD = 3

_LINK_WEIGHTS: dict[str, Weight] = {"up": "good", "suspect": "warning", "failed": "bad", "down": "bad"}
_LINK_WORDS = {
    "up": "is up",
    "suspect": "is suspected",
    "failed": "has failed",
    "down": "has lost its connection",
}


class Happening(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`after_ms`: how long after the last deed, for what a deed may have brought about."""

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


def link_words(one: str, other: str, state: str) -> tuple[str, Weight]:
    return f"{one} - {other} {_LINK_WORDS.get(state, state)}", _LINK_WEIGHTS.get(state, "note")


def route_words(
    source: str,
    topics: Sequence[str],
    destinations: Sequence[str],
    paths: Mapping[str, Sequence[Sequence[str]]],
) -> str:
    """Which topics, from where to where, and over which ways."""
    named = some(topics, TOPICS_TOLD) or "messages"
    ways = list(dict.fromkeys(" → ".join(path) for to in destinations for path in paths.get(to, ())))
    if not ways:
        return f"{named} from {source} cannot reach {some(destinations, DESTINATIONS_TOLD)}"
    return f"{named} now over {some(ways, PATHS_TOLD, ' and ')}"


def some(words: Sequence[str], most: int, between: str = ", ") -> str:
    """The first few of them, and how many more there are."""
    more = [f"{len(words) - most} more"] if len(words) > most else []
    return between.join([*words[:most], *more])
