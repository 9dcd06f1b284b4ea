"""Recovery: the records of an earlier run of the broker become the state of this one.

They are read in the order of `record_kinds.KINDS`, so that each comes after those it depends on. A record whose owner
was lost is erased; otherwise it would appear with a later owner of the same name.
"""

from collections.abc import Iterable

from overlane.core.events import Erase
from overlane.core.records import Record, restore
from overlane.core.units import Nanos
from overlane.pubsub import message
from overlane.pubsub.counters import Refusal
from overlane.pubsub.delivery import queue_records
from overlane.pubsub.limits import uncarriable
from overlane.pubsub.publishing import mediating
from overlane.pubsub.publishing.mediating import Mediating
from overlane.pubsub.record_kinds import KINDS
from overlane.pubsub.retained import handouts, removals
from overlane.pubsub.retained import messages as retained
from overlane.pubsub.retained.handouts import Handouts
from overlane.pubsub.sessions import deduplication, wills
from overlane.pubsub.sessions import session as stored
from overlane.pubsub.sessions.registry import Sessions
from overlane.pubsub.sessions.wills import Wills
from overlane.pubsub.state import State
from overlane.pubsub.streams import backfill, callbacks, writers
from overlane.pubsub.streams import log as streamlog
from overlane.pubsub.streams.callbacks import Callbacks
from overlane.pubsub.streams.streams import Streams
from overlane.pubsub.streams.writers import Writers
from overlane.pubsub.subscriptions.subscribing import Subscribing


class Recovery:
    def __init__(
        self,
        state: State,
        subscribing: Subscribing,
        sessions: Sessions,
        wills: Wills,
        streams: Streams,
        writers: Writers,
        handouts: Handouts,
        callbacks: Callbacks,
        mediating: Mediating,
    ) -> None:
        self._state = state
        self._handouts = handouts
        self._subscribing = subscribing
        self._sessions = sessions
        self._wills = wills
        self._streams = streams
        self._writers = writers
        self._callbacks = callbacks
        self._mediating = mediating

    def recover(self, records: Iterable[Record], now: Nanos) -> None:
        state = self._state
        restore(
            KINDS,
            records,
            {
                message.TABLE: lambda key, value: state.queue_records.restore_messages(
                    key, message.restored_run(value)
                ),
                retained.TABLE: self._take_retained,
                removals.TABLE: state.retained.removed.restore,
                handouts.TABLE: self._handouts.restore,
                stored.SESSIONS: self._take_session,
                stored.SUBSCRIPTIONS: lambda key, value: self._take_part(stored.SUBSCRIPTIONS, key, value),
                stored.RECEIVED: lambda key, value: self._take_part(stored.RECEIVED, key, value),
                stored.REPLAYS: lambda key, value: self._take_part(stored.REPLAYS, key, value),
                deduplication.TABLE: lambda key, value: self._take_part(deduplication.TABLE, key, value),
                queue_records.QUEUES: self._take_entries,
                wills.TABLE: self._wills.restore,
                streamlog.STREAMS: lambda key, value: self._streams.restore(key, value, now),
                streamlog.LOGS: self._streams.restore_message,
                backfill.TABLE: self._streams.restore_backfill,
                writers.TABLE: self._writers.restore,
                callbacks.TABLE: self._callbacks.restore,
                mediating.TABLE: self._mediating.restore,
            },
        )
        self._state.queue_records.recovered()
        self._writers.recovered()
        self._subscribing.recovered(now)
        self._sessions.recovered(now)
        self._wills.recovered(now)
        self._streams.recovered(now)
        self._callbacks.recovered()
        self._mediating.recovered(now)

    def _take_retained(self, key: bytes, value: bytes) -> None:
        if not self._is_set_aside(uncarriable("", key.decode())):
            self._state.retained.restore(value)

    def _take_session(self, key: bytes, value: bytes) -> None:
        session = stored.restored(key, value)
        self._state.sessions[session.client_id] = session

    def _take_entries(self, key: bytes, value: bytes) -> None:
        state = self._state
        client_id, entries = state.queue_records.restore_entries(key, value)
        owner = state.sessions.get(client_id)
        for entry in entries:
            if owner is not None:
                owner.window.restore(entry)
            else:
                state.queue_records.take(entry)

    def _take_part(self, table: str, key: bytes, value: bytes) -> None:
        """What belongs to a session."""
        client_id, rest = stored.owner(key)
        owner = self._state.sessions.get(client_id)
        if owner is None:
            self._state.batch.add(Erase(table, key))
        elif table == stored.SUBSCRIPTIONS:
            subscription = stored.restored_subscription(owner, rest.decode(), value)
            if not self._is_set_aside(uncarriable(subscription.group, subscription.filter), client_id):
                self._subscribing.restore(subscription)
        elif table == stored.REPLAYS:
            owner.replays[rest.decode()] = value.decode()
        elif table == deduplication.TABLE:
            owner.deduplication.restore(rest, value)
            owner.window.go_on_at(owner.deduplication.reserved)
        else:
            owner.received[stored.restored_identifier(rest)] = None

    def _is_set_aside(self, told: str | None, client_id: str = "") -> bool:
        """Whether a record of an earlier version cannot be used: it stays in the store, and is reported."""
        if told is not None:
            self._state.refuse(Refusal.TOO_LARGE, f"a stored record was quarantined: {told}", client_id=client_id)
        return told is not None
