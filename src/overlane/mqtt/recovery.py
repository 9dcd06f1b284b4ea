"""Recovery: the records of an earlier life of the broker become the state of this one.

They are taken table by table, so that each finds what it belongs to: messages before the queues they wait in, sessions
before all that is theirs. A record whose owner was lost is erased, or it would come back with a later owner of the same
name; records of other tables are somebody else's.
"""

from collections.abc import Iterable

from overlane.core.events import Erase
from overlane.core.units import Nanos
from overlane.mqtt import beginning, message, once, retained, shelf, streamlog, wills, writers
from overlane.mqtt import session as stored
from overlane.mqtt.sessions import Sessions
from overlane.mqtt.state import State
from overlane.mqtt.streams import Streams
from overlane.mqtt.subscribing import Subscribing
from overlane.mqtt.wills import Wills
from overlane.mqtt.writers import Writers

Record = tuple[str, bytes, bytes]

_TABLES = (
    message.TABLE,
    retained.TABLE,
    stored.SESSIONS,
    stored.SUBSCRIPTIONS,
    stored.RECEIVED,
    stored.PASTS,
    once.TABLE,
    shelf.QUEUES,
    wills.TABLE,
    streamlog.STREAMS,
    streamlog.LOGS,
    beginning.TABLE,
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
        self._state.shelf.recovered()
        self._writers.recovered()
        self._subscribing.recovered(now)
        self._sessions.recovered(now)
        self._wills.recovered(now)
        self._streams.recovered(now)

    def _take(self, table: str, key: bytes, value: bytes, now: Nanos) -> None:
        state = self._state
        match table:
            case message.TABLE:
                state.shelf.restore_message(key, message.restored(value))
            case retained.TABLE:
                state.retained.restore(value)
            case stored.SESSIONS:
                session = stored.restored(key, value)
                state.sessions[session.client_id] = session
            case stored.SUBSCRIPTIONS | stored.RECEIVED | stored.PASTS | once.TABLE:
                self._take_part(table, key, value)
            case shelf.QUEUES:
                found = state.shelf.restore_entry(key, value)
                if found is not None and (owner := state.sessions.get(found[0])) is not None:
                    owner.window.restore(found[1])
                elif found is not None:
                    state.shelf.take(*found)
            case wills.TABLE:
                self._wills.restore(key, value)
            case streamlog.STREAMS:
                self._streams.restore(key, value, now)
            case streamlog.LOGS:
                self._streams.restore_message(key, value)
            case beginning.TABLE:
                self._streams.restore_beginning(key, value)
            case writers.TABLE:
                self._writers.restore(key, value)

    def _take_part(self, table: str, key: bytes, value: bytes) -> None:
        """What belongs to a session."""
        client_id, rest = stored.owner(key)
        owner = self._state.sessions.get(client_id)
        if owner is None:
            self._state.effects.append(Erase(table, key))
        elif table == stored.SUBSCRIPTIONS:
            self._subscribing.restore(stored.restored_subscription(owner, rest.decode(), value))
        elif table == stored.PASTS:
            owner.past[rest.decode()] = value.decode()
        elif table == once.TABLE:
            owner.once.restore(rest, value)
            owner.window.go_on_at(owner.once.reserved)
        else:
            owner.received.add(int.from_bytes(rest))


def _order(record: Record) -> tuple[int, bytes]:
    return (_TABLES.index(record[0]) if record[0] in _TABLES else len(_TABLES)), record[1]
