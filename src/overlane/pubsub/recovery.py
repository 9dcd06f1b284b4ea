"""Recovery: the records of an earlier life of the broker become the state of this one.

They are taken table by table, so that each finds what it belongs to: messages before the queues they wait in, sessions
before all that is theirs. A record whose owner was lost is erased, or it would come back with a later owner of the same
name; records of other tables are somebody else's.
"""

from collections.abc import Iterable

from overlane.core.events import Erase
from overlane.core.units import Nanos
from overlane.pubsub import message
from overlane.pubsub.counters import Refusal
from overlane.pubsub.delivery import queue_records
from overlane.pubsub.limits import uncarriable
from overlane.pubsub.retained import messages as retained
from overlane.pubsub.sessions import deduplication, wills
from overlane.pubsub.sessions import session as stored
from overlane.pubsub.sessions.registry import Sessions
from overlane.pubsub.sessions.wills import Wills
from overlane.pubsub.state import State
from overlane.pubsub.streams import backfill, writers
from overlane.pubsub.streams import log as streamlog
from overlane.pubsub.streams.streams import Streams
from overlane.pubsub.streams.writers import Writers
from overlane.pubsub.subscriptions.subscribing import Subscribing

Record = tuple[str, bytes, bytes]

_TABLES = (
    message.TABLE,
    retained.TABLE,
    stored.SESSIONS,
    stored.SUBSCRIPTIONS,
    stored.RECEIVED,
    stored.REPLAYS,
    deduplication.TABLE,
    queue_records.QUEUES,
    wills.TABLE,
    streamlog.STREAMS,
    streamlog.LOGS,
    backfill.TABLE,
    writers.TABLE,
)


class Recovery:
    def __init__(
        self,
        state: State,
        subscribing: Subscribing,
        sessions: Sessions,
        wills: Wills,
        streams: Streams,
        writers: Writers,
    ) -> None:
        self._state = state
        self._subscribing = subscribing
        self._sessions = sessions
        self._wills = wills
        self._streams = streams
        self._writers = writers

    def recover(self, records: Iterable[Record], now: Nanos) -> None:
        for table, key, value in sorted(records, key=_order):
            self._take(table, key, value, now)
        self._state.queue_records.recovered()
        self._writers.recovered()
        self._subscribing.recovered(now)
        self._sessions.recovered(now)
        self._wills.recovered(now)
        self._streams.recovered(now)

    def _take(self, table: str, key: bytes, value: bytes, now: Nanos) -> None:
        state = self._state
        match table:
            case message.TABLE:
                state.queue_records.restore_message(key, message.restored(value))
            case retained.TABLE:
                if not self._is_set_aside(uncarriable("", key.decode())):
                    state.retained.restore(value)
            case stored.SESSIONS:
                session = stored.restored(key, value)
                state.sessions[session.client_id] = session
            case stored.SUBSCRIPTIONS | stored.RECEIVED | stored.REPLAYS | deduplication.TABLE:
                self._take_part(table, key, value)
            case queue_records.QUEUES:
                found = state.queue_records.restore_entry(key, value)
                if found is not None and (owner := state.sessions.get(found[0])) is not None:
                    owner.window.restore(found[1])
                elif found is not None:
                    state.queue_records.take(*found)
            case wills.TABLE:
                self._wills.restore(key, value)
            case streamlog.STREAMS:
                self._streams.restore(key, value, now)
            case streamlog.LOGS:
                self._streams.restore_message(key, value)
            case backfill.TABLE:
                self._streams.restore_backfill(key, value)
            case writers.TABLE:
                self._writers.restore(key, value)

    def _take_part(self, table: str, key: bytes, value: bytes) -> None:
        """What belongs to a session."""
        client_id, rest = stored.owner(key)
        owner = self._state.sessions.get(client_id)
        if owner is None:
            self._state.effects.append(Erase(table, key))
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
            owner.received[int.from_bytes(rest)] = None

    def _is_set_aside(self, told: str | None, client_id: str = "") -> bool:
        """Whether a record of an earlier version cannot be used: it stays in the store, and operators are told."""
        if told is not None:
            self._state.refuse(Refusal.TOO_LARGE, f"a stored record is set aside: {told}", client_id=client_id)
        return told is not None


def _order(record: Record) -> tuple[int, bytes]:
    return (_TABLES.index(record[0]) if record[0] in _TABLES else len(_TABLES)), record[1]
