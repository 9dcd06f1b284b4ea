"""Policies of publishers and subscribers, as applications ask for them and learn of them.

A publisher offers a lease, a period and a strength with its messages; a subscriber requests the longest lease and
period that it accepts, and the kind of ownership. Brokers tell what happens on topics of their own, which are read
here.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from overlane.client.errors import InvalidRequest
from overlane.client.subscription import Subscription
from overlane.quantities import parse_duration

LIVELINESS_TOPIC = "$overlane/liveliness/"
INCOMPATIBLE_TOPIC = "$overlane/incompatible/"
OWNERSHIPS = ("shared", "exclusive")

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Liveliness:
    """A publisher of a topic is lost, or alive again. `owner`: of a topic with exclusive ownership, whose messages are
    delivered from now on."""

    topic: str
    publisher: str
    is_alive: bool
    alive: tuple[str, ...]
    owner: str | None


@dataclass(frozen=True, slots=True)
class Incompatible:
    """A subscriber requests more than a publisher offers."""

    topic: str
    publisher: str
    subscriber: str
    policy: str
    offered: str
    requested: str


class _LivelinessReport(msgspec.Struct):
    publisher: str
    state: str
    alive: tuple[str, ...] = ()
    owner: str | None = None


class _IncompatibleReport(msgspec.Struct):
    publisher: str
    subscriber: str
    policy: str
    offered: str
    requested: str


_read_liveliness = msgspec.json.Decoder(_LivelinessReport).decode
_read_incompatible = msgspec.json.Decoder(_IncompatibleReport).decode


async def liveliness_reports(subscription: Subscription) -> AsyncIterator[Liveliness]:
    async with subscription:
        async for message in subscription:
            told = _read_liveliness(message.body)
            topic = message.topic.removeprefix(LIVELINESS_TOPIC)
            yield Liveliness(topic, told.publisher, told.state == "alive", told.alive, told.owner)


async def incompatible_reports(subscription: Subscription) -> AsyncIterator[Incompatible]:
    async with subscription:
        async for message in subscription:
            told = _read_incompatible(message.body)
            topic = message.topic.removeprefix(INCOMPATIBLE_TOPIC)
            yield Incompatible(topic, told.publisher, told.subscriber, told.policy, told.offered, told.requested)


def offered(lease: str | None, period: str | None, strength: int | None) -> Pairs:
    """User properties of a message."""
    pairs = _durations((("overlane-lease", lease), ("overlane-period", period)))
    if strength is None:
        return pairs
    if not 0 <= strength < 2**31:
        raise InvalidRequest(f"got strength={strength}; expected 0 to {2**31 - 1}")
    return (*pairs, ("overlane-strength", str(strength)))


def requested(liveliness: str | None, period: str | None, ownership: str | None) -> Pairs:
    """User properties of a subscription."""
    pairs = _durations((("overlane-liveliness", liveliness), ("overlane-period", period)))
    if ownership is None:
        return pairs
    if ownership not in OWNERSHIPS:
        raise InvalidRequest(f"got ownership={ownership!r}; expected one of {', '.join(OWNERSHIPS)}")
    return (*pairs, ("overlane-ownership", ownership))


def _durations(given: tuple[tuple[str, str | None], ...]) -> Pairs:
    found = []
    for name, text in given:
        if text is None:
            continue
        try:
            parse_duration(text)
        except ValueError:
            field = name.removeprefix("overlane-")
            raise InvalidRequest(f'got {field}={text!r}; expected a duration such as "2s"') from None
        found.append((name, text))
    return tuple(found)
