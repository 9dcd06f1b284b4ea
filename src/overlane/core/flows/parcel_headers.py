"""Parcel headers: the headers of this broker's own parcels, each with the next sequence number."""

from dataclasses import dataclass

from overlane.core.flows.outflow import Retained
from overlane.core.qos import DEADLINE_US_MAX, QosClass, Routing
from overlane.core.routing.route import Route
from overlane.core.units import NEVER, US, Nanos
from overlane.core.wire.frame_codec import AGE_US_MAX, ENCRYPTED_ONLY, Header, ParcelFlag

_CONFIRM = int(ParcelFlag.CONFIRM)
_DIRECT = int(ParcelFlag.DIRECT)
_HISTORY = int(ParcelFlag.HISTORY)
_OWN_DEADLINE = int(ParcelFlag.OWN_DEADLINE)
_RELIABLE = int(ParcelFlag.RELIABLE)
_REPAIR = int(ParcelFlag.REPAIR)
_ACK_REQUESTED = int(ParcelFlag.ACK_REQUESTED)


@dataclass(slots=True)
class Headers:
    identity: int
    incarnation: int
    sequence: int = 0
    """The number of the last parcel."""

    def on_route(self, qos: QosClass, route: Route, age_us: int, messages: int, history: bool = False) -> Header:
        """On a route that may not be able to meet the deadline."""
        flags, deadline_us = _flags(qos, history), 0
        if qos.deadline_ns < NEVER:
            deadline_us = qos.deadline_us
            # A deadline that cannot be met, because of the route or because the message was held before it could be
            # sent, would have every hop give the message up: it is carried as well as it can be. What was held is as
            # urgent as what is published now, or later messages would overtake it.
            held_us = 0 if qos.reliable else age_us
            if held_us or route.slack_ns < 0:
                bearable_us = 2 * route.latency_ns // US  # latencies are what others claim
                if route.slack_ns >= 0:
                    bearable_us = min(bearable_us, deadline_us)
                deadline_us = min(DEADLINE_US_MAX, max(deadline_us, held_us + bearable_us))
                flags |= _OWN_DEADLINE
        self.sequence += 1
        return Header(
            flags,
            route.version,
            self.identity,
            self.incarnation,
            self.sequence,
            route.id,
            age_us,
            deadline_us,
            messages,
            0,
        )

    def on_path(self, qos: QosClass, parcel: Retained, now: Nanos) -> Header:
        """Of a parcel that carries its own path."""
        flags = (_flags(qos, parcel.history) | _DIRECT) & ~_REPAIR
        self.sequence += 1
        return Header(
            flags,
            ENCRYPTED_ONLY if qos.requires.encrypted else 0,
            self.identity,
            self.incarnation,
            self.sequence,
            0,
            age_us(parcel, now),
            qos.deadline_us,
            parcel.messages,
            0,
        )

    def copy_on_path(self, qos: QosClass, header: Header) -> Header:
        """Of a copy that takes a path of its own, and asks to be confirmed."""
        self.sequence += 1
        flags = (header.flags | _DIRECT | _CONFIRM) & ~(_REPAIR | _OWN_DEADLINE)
        version = ENCRYPTED_ONLY if qos.requires.encrypted else 0
        return header._replace(flags=flags, version=version, sequence=self.sequence, route=0)


def age_us(parcel: Retained, now: Nanos) -> int:
    return max(0, min(AGE_US_MAX, (now - parcel.published_ns) // US))  # a clock may have gone back over a restart


def _flags(qos: QosClass, history: bool) -> int:
    flags = (_RELIABLE if qos.reliable else 0) | (_HISTORY if history else 0)
    if qos.deadline_ns < NEVER:
        flags |= _ACK_REQUESTED
        if qos.routing in (Routing.ADAPTIVE, Routing.THRIFTY):
            flags |= _REPAIR
    return flags
