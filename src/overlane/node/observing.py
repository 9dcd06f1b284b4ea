"""Observing: reports the effects of a broker's turns to the log and to observers.

Observers have low priority: deliveries are reported some at a time, after clients and neighbours have got what they
wait for. An observer that fails does not affect others: its exception is a failure of its own.
"""

import logging
from collections.abc import Callable, Iterable
from typing import assert_never

from overlane.core.events import (
    BrokersRefused,
    DeadlineUnmeetable,
    DirectLinksWanted,
    LaterIncarnationKnown,
    LinkChanged,
    NameConflict,
    PathSuspected,
    PathTrusted,
    RefusedAtBorder,
    ReportedEffect,
    RequirementChanged,
    RouteChanged,
    ScopeChanged,
    ScopeDigest,
)
from overlane.core.units import MS
from overlane.errors import Failure
from overlane.mqtt.arrival_counts import tally
from overlane.node.failures import Failures
from overlane.node.telemetry import TelemetryObserver
from overlane.turn.timers import LoopTimers
from overlane.turn.turn import Delivered

SHOWN_WITHIN_S = 0.02
SHOWN_TOGETHER = 64
"""How long, and how many, deliveries wait to be shown to observers."""

log = logging.getLogger("overlane.node")


class Observing:
    def __init__(self, timers: LoopTimers, failures: Failures, outlived: Callable[[int, str], None]) -> None:
        """`outlived` is called when the broker is to begin anew with at least an incarnation, and who has told so."""
        self.observers: list[TelemetryObserver] = []
        self._timers = timers
        self._failures = failures
        self._outlived = outlived
        self.on_scope_changed: Callable[[ScopeDigest], None] = lambda _: None
        self.on_direct_links_wanted: Callable[[DirectLinksWanted], None] = lambda _: None
        """Called with the bundles that clients use, whenever these are others than before."""
        self.on_link_changed: Callable[[LinkChanged], None] = lambda _: None
        self._delivered: list[Delivered] = []
        """What the observers have not been shown yet."""

    def delivered(self, delivered: Iterable[Delivered]) -> None:
        for one in delivered:
            if not self._delivered:
                self._timers.call_later(SHOWN_WITHIN_S, self.show)
            self._delivered.append(one)
            if len(self._delivered) == SHOWN_TOGETHER:
                self._timers.call_soon(self.show)

    def show(self) -> None:
        delivered, self._delivered = self._delivered, []
        tallies = [tally(effect, mixed) for effect, mixed in delivered]
        for observer in self.observers:
            for one in tallies:
                try:
                    observer.delivered(one)
                except Exception as error:
                    self._observer_failed(observer, error)

    def tell(self, effect: LaterIncarnationKnown | ScopeChanged | DirectLinksWanted | ReportedEffect) -> None:
        match effect:
            case ScopeChanged(digest):
                self.on_scope_changed(digest)
            case DirectLinksWanted():
                self.on_direct_links_wanted(effect)
            case LaterIncarnationKnown(incarnation, told_by):
                self._outlived(incarnation, told_by)
            case _:
                self._tell_happening(effect)

    def _tell_happening(self, effect: ReportedEffect) -> None:
        match effect:
            case LinkChanged(peer, state):
                log.info("link to %s is %s", peer, state)
                self.on_link_changed(effect)
            case RouteChanged():
                log.info("route to %s moved: %s", ", ".join(effect.destinations), effect.cause)
            case DeadlineUnmeetable(_, destination, latency_ns):
                log.warning("no route to %s meets the deadline: the best takes %.1f ms", destination, latency_ns / MS)
            case RequirementChanged(_, unmet, is_met):
                if is_met:
                    log.info("requirement met again: %s of %s", unmet.requirement, unmet.destination)
                else:
                    nearest = "nothing is sent there" if unmet.is_trust else "the nearest route is used"
                    log.warning("requirement not met to %s: %s; %s", unmet.destination, unmet, nearest)
            case PathSuspected(destination, path, hops, _):
                log.warning(
                    "messages to %s over %s are acknowledged hop by hop but do not arrive; avoiding %s",
                    destination,
                    " -> ".join(path[1:-1]),
                    ", ".join(hops),
                )
            case PathTrusted(destination, _, hops):
                log.warning("messages to %s over %s arrive again; no longer avoiding it", destination, ", ".join(hops))
            case BrokersRefused(neighbour, adverts, brokers_max):
                log.error(
                    "%s advertises more brokers than [limits] brokers = %d allows; %d adverts ignored",
                    neighbour,
                    brokers_max,
                    adverts,
                )
            case RefusedAtBorder(origin, topic, messages):
                log.warning(
                    "refused at the border: %d messages from %s, for example on %s", messages, origin, topic[:100]
                )
            case NameConflict(broker, detail):
                log.error("another broker runs under the name %s: %s", broker, detail)
            case _:
                assert_never(effect)
        for observer in self.observers:
            try:
                observer.happened(effect)
            except Exception as error:
                self._observer_failed(observer, error)

    def _observer_failed(self, observer: TelemetryObserver, error: Exception) -> None:
        self._failures.isolated(Failure("observer", type(observer).__name__, error))
