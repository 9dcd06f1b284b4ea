"""Backpressure: publishers stop while the first link for their messages is full, and slow down for slow readers.

Best-effort messages that can wait are not dropped at a full queue. Before such a message is accepted, the queue of its
first link is checked; if it is full, the message is not accepted and its publisher is not read from until there is
room, so that the publisher's own connection fills up. Messages with a deadline are accepted at once, since the order of
the queue lets them overtake; then their publisher stops for no longer than a part of the deadline. Reliable messages
have an end-to-end send window of their own.

A stop is limited. Without a deadline it lasts while the queue makes progress, but no longer than STOP_MAX, or half the
keep-alive of a client with a short one, since the client receives nothing meanwhile. If there is no progress for
PATIENCE, the messages that were read are accepted, and the excess is dropped and counted.

A publisher to a local queue that fills up pauses after each read, longer the fuller the queue is: so a reader that is
slow but connected loses nothing. A reader that is offline, or does not answer, is not waited for.
"""

from collections.abc import Hashable

from overlane.core.qos import QosClass
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.errors import OverlaneError
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.contract.consumer import Publisher

STOP_SHARE = 0.5
GO_SHARE = 0.25
PATIENCE: Nanos = SECOND
STOP_MAX: Nanos = 10 * SECOND
DEADLINE_PART = 8

CROWDED = 0.25
"""The share of a queue from which on publishers to it rest."""
REST: Nanos = 2 * MS
REST_DOUBLINGS = 7
"""From a queue that begins to be crowded to a full one."""


class MustStop(OverlaneError):
    """The way of a message is full: it was not accepted, and its publisher has to stop."""


def stops_when_full(qos: QosClass) -> bool:
    """Whether publishers of the class are stopped before a message is accepted for which the way has no room."""
    return not qos.reliable and qos.deadline_ns >= NEVER


def stop_if_full(uplink: Uplink, publisher: Publisher, topic: str, qos: QosClass, now: Nanos) -> bool:
    """Before a message on the topic is accepted, of a class that `stops_when_full`: stop its publisher if the way is
    full; whether that was done."""
    if publisher.passes or uplink.way_share(topic, qos) <= STOP_SHARE:
        return False
    _stop(uplink, publisher, topic, qos, PATIENCE, now)
    return True


def stop_for(publisher: Publisher, way: Hashable, wait_ns: Nanos, now: Nanos) -> bool:
    """Before a message is accepted that has to wait for so long: stop its publisher; whether that was done."""
    if publisher.passes or wait_ns <= 0:
        return False
    publisher.stops_for, publisher.stops_until_ns, publisher.waits_on = way, now + wait_ns, False
    return True


def stop_for_deadline(uplink: Uplink, publisher: Publisher, topic: str, qos: QosClass, now: Nanos) -> None:
    """After a message with a deadline was accepted: stop its publisher if the way is full."""
    if qos.deadline_ns < NEVER and not qos.reliable and uplink.way_share(topic, qos) > STOP_SHARE:
        _stop(uplink, publisher, topic, qos, min(PATIENCE, qos.deadline_ns // DEADLINE_PART), now)


def _stop(uplink: Uplink, publisher: Publisher, topic: str, qos: QosClass, patience_ns: Nanos, now: Nanos) -> None:
    publisher.stops_for = uplink.way_of(topic, qos)
    publisher.stops_until_ns = now + patience_ns
    publisher.waits_on = qos.deadline_ns >= NEVER


def stop_max_ns(publisher: Publisher) -> Nanos:
    """How long a client may be stopped at a time."""
    return min(STOP_MAX, publisher.keep_alive_ns // 3)  # this is 1.5 times the keep-alive of the client


def rest_ns(crowding: float) -> Nanos:
    """How long a publisher rests after it has published to a queue that is so full; 0 if it need not."""
    if crowding <= CROWDED:
        return 0
    return int(REST * 2 ** (REST_DOUBLINGS * (crowding - CROWDED) / (1 - CROWDED)))
