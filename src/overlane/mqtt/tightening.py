"""Tightening: what a client asks of the overlay beyond what the network file gives its topic.

    overlane-deadline      "60ms"
    overlane-reliability   "reliable" or "best-effort"

as user properties of a PUBLISH or SUBSCRIBE. They can only ask for more: an earlier deadline, reliable instead of best
effort.
"""

from collections.abc import Iterable
from dataclasses import replace

from overlane.core.qos import QosClass
from overlane.core.units import NEVER, Nanos
from overlane.network.units import parse_duration

DEADLINE = "overlane-deadline"
RELIABILITY = "overlane-reliability"
RELIABILITIES = {"reliable": True, "best-effort": False}


class BadWish(ValueError):
    """A user property of ours whose value means nothing."""


def wishes(user_properties: Iterable[tuple[str, str]]) -> tuple[Nanos, bool]:
    """The deadline and whether it must be reliable; of several the strictest."""
    deadline_ns, reliable = NEVER, False
    for name, value in user_properties:
        if name == DEADLINE:
            deadline_ns = min(deadline_ns, _deadline(value))
        elif name == RELIABILITY:
            if value not in RELIABILITIES:
                raise BadWish(f"{RELIABILITY}: {value[:40]!a} is neither reliable nor best-effort")
            reliable |= RELIABILITIES[value]
    return deadline_ns, reliable


def tightened(qos: QosClass, deadline_ns: Nanos, reliable: bool) -> QosClass:
    if deadline_ns >= qos.deadline_ns and reliable <= qos.reliable:
        return qos
    return replace(qos, deadline_ns=min(qos.deadline_ns, deadline_ns), reliable=qos.reliable or reliable)


def _deadline(text: str) -> Nanos:
    try:
        deadline_ns = parse_duration(text)
    except ValueError:
        deadline_ns = 0
    if deadline_ns <= 0:
        raise BadWish(f'{DEADLINE}: {text[:40]!a} is no duration such as "60ms"')
    return deadline_ns
