"""Streams: durable logs of subscriptions, by name.

A stream is created with a filter and lasts until it is removed, or has not been used for the time in the limits. All
messages that match and that its user may receive go into its log, whether or not it is read. It is one of the
subscriptions, like a client that never disconnects, and cannot be confused with a client: its identifier has a prefix
that no client identifier has.

Streams of one name at several brokers form one stream in parts if each logs messages published `here`: then every
message is in exactly one of them. A stream that logs messages published `everywhere` needs no others.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from overlane.core.events import Erase
from overlane.core.records import OwnerKind, subscriber_name
from overlane.core.topics import check_filter
from overlane.core.units import SECOND, Nanos
from overlane.errors import OverlaneError
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.sessions.session import FOR_EVER_S, Session
from overlane.pubsub.state import State
from overlane.pubsub.streams import backfill
from overlane.pubsub.streams import log as streamlog
from overlane.pubsub.streams.backfill import Backfills
from overlane.pubsub.streams.log import Gone, Logged, Scope, StreamLog
from overlane.pubsub.subscriptions.table import Subscription

if TYPE_CHECKING:
    from overlane.pubsub.subscriptions.subscribing import Subscribing

IDENTIFIER = subscriber_name(OwnerKind.STREAM)
"""What the identifiers of streams begin with: no client's identifier has a null character."""

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class Unwelcome(OverlaneError):
    """A stream that cannot be made, and why. `is_denied`: for want of rights."""

    error_code = "OVL-118"

    def __init__(self, told: str, is_denied: bool = False) -> None:
        super().__init__(told)
        self.is_denied = is_denied


class _Stream:
    __slots__ = ("log", "subscription", "used_ns")

    def __init__(self, log: StreamLog, subscription: Subscription, now: Nanos) -> None:
        self.log = log
        self.subscription = subscription
        self.used_ns = now


class Streams:
    def __init__(self, state: State, delivery: Delivery, subscribing: "Subscribing") -> None:
        self._state = state
        self._delivery = delivery
        self._subscribing = subscribing
        self._backfills = Backfills(state, delivery)
        self._streams: dict[str, _Stream] = {}

    def names(self) -> list[str]:
        return sorted(self._streams)

    def get(self, name: str) -> StreamLog | None:
        found = self._streams.get(name)
        return None if found is None else found.log

    # Coming and going

    def create(
        self, name: str, topic_filter: str, scope: Scope, user: str | None, with_retained: bool, now: Nanos
    ) -> StreamLog:
        """A stream that was not there. BadTopic if the filter is none, Unwelcome if it is not to be had."""
        state = self._state
        if not NAME.fullmatch(name):
            raise Unwelcome(f"{name[:60]!a}: the name of a stream has 1 to 128 of the characters A-Z a-z 0-9 _ . -")
        check_filter(topic_filter)
        if topic_filter.startswith("$"):
            raise Unwelcome("topics that begin with $ have no streams")
        if told := state.limits.too_long(topic_filter):
            raise Unwelcome(told)
        if topic_filter.count("/") >= state.limits.filter_levels:
            raise Unwelcome(f"a filter of more than {state.limits.filter_levels} levels")
        count, size = state.uplink.needs_size()
        if count >= state.limits.filters or size + len(topic_filter.encode()) > state.limits.filter_bytes:
            raise Unwelcome("no room for more filters")
        if len(self._streams) >= state.limits.streams:
            raise Unwelcome(f"more than {state.limits.streams} streams")
        if state.is_store_failing:
            raise Unwelcome("the durable store cannot write at the moment")
        log = StreamLog(name, topic_filter, scope, user, now, lambda: state.limits)
        session = _session(log)
        if user is not None and not state.settings.access.may_subscribe(user, session.client_id, topic_filter):
            raise Unwelcome(f"not allowed to subscribe to {topic_filter[:100]}", is_denied=True)
        state.batch.add(log.saved())
        stream = self._enter(log, session, now)
        self._subscribing.enter_log(stream.subscription, now)
        if with_retained:
            self._backfills.begin(log, session, now)
        return log

    def when_begun(self, log: StreamLog, call: Callable[[], object]) -> None:
        """Called when everything is in the log that it is to begin with: now, if it is."""
        self._backfills.when_begun(log, call)

    def remove(self, name: str, now: Nanos) -> bool:
        stream = self._streams.pop(name, None)
        if stream is None:
            return False
        self._subscribing.leave_log(stream.subscription, now)
        self._backfills.forget(stream.log)
        self._state.batch.extend(stream.log.erased())
        return True

    def _enter(self, log: StreamLog, session: Session, now: Nanos) -> _Stream:
        is_local = log.scope is Scope.HERE
        subscription = Subscription(session, log.filter, "", log.filter, 2, retain_as_published=True, is_local=is_local)
        stream = self._streams[log.name] = _Stream(log, subscription, now)
        self._watch(stream)
        return stream

    def _watch(self, stream: _Stream) -> None:
        due = stream.used_ns + self._state.limits.stream_expiry_s * SECOND
        self._state.timers.at(due, lambda now: self._look(stream, now))

    def _look(self, stream: _Stream, now: Nanos) -> None:
        if self._streams.get(stream.log.name) is not stream:
            return
        if now >= stream.used_ns + self._state.limits.stream_expiry_s * SECOND:
            self.remove(stream.log.name, now)
        else:
            self._watch(stream)

    # Using

    def written(self, log: StreamLog) -> int:
        return log.written(self._state.durable_turn)

    def read(
        self, log: StreamLog, start: int, end: int, messages_max: int, bytes_max: int, now: Nanos
    ) -> tuple[list[tuple[int, Logged]], int]:
        """As the log has them, without those whose topics its user may not receive any more; Gone."""
        stream = self._streams[log.name]
        stream.used_ns = now
        found, following = log.read(start, end, self._state.durable_turn, messages_max, bytes_max)
        session = stream.subscription.session
        return [one for one in found if self._state.may_receive(session, one[1].topic)], following

    def commit(self, log: StreamLog, to: int, now: Nanos) -> None:
        """Gone if there is no such offset."""
        self._streams[log.name].used_ns = now
        self._state.batch.extend(log.commit(to, self._state.durable_turn))

    # Recovery

    def restore(self, key: bytes, value: bytes, now: Nanos) -> None:
        state = self._state
        log = streamlog.restored(key, value, lambda: state.limits)
        stream = self._enter(log, _session(log), now)
        state.subscriptions.add(stream.subscription)

    def restore_message(self, key: bytes, value: bytes) -> None:
        name, offset = streamlog.owner(key)
        stream = self._streams.get(name)
        if stream is None or offset < stream.log.first:
            self._state.batch.add(Erase(streamlog.LOGS, key))
        else:
            stream.log.restore(offset, value)

    def restore_backfill(self, key: bytes, value: bytes) -> None:
        name, topic = backfill.owner(key)
        stream = self._streams.get(name)
        if stream is None:
            self._state.batch.add(Erase(backfill.TABLE, key))
        else:
            self._backfills.restore(stream.log, stream.subscription.session, topic, value)

    def recovered(self, now: Nanos) -> None:
        self._backfills.recovered(now)


def _session(log: StreamLog) -> Session:
    session = Session(IDENTIFIER + log.name, log.user, FOR_EVER_S)
    session.log = log
    session.is_operators = log.user is None
    return session


__all__ = ["Gone", "Logged", "Scope", "StreamLog", "Streams", "Unwelcome"]
