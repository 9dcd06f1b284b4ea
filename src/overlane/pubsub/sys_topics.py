"""`$SYS` topics: statistics that a server publishes every few seconds.

The names are those that MQTT servers commonly use (`$SYS/broker/clients/connected`), so that dashboards work unchanged.
"""

from collections.abc import Iterator

from overlane.core.units import SECOND, Nanos
from overlane.pubsub.message import Message
from overlane.pubsub.state import State

EVERY: Nanos = 10 * SECOND


def messages(state: State, version: str, uptime_ns: Nanos, now: Nanos) -> Iterator[Message]:
    for name, value in _values(state, version, uptime_ns):
        yield Message(f"$SYS/broker/{name}", str(value).encode(), retain=True, published_ns=now)


def _values(state: State, version: str, uptime_ns: Nanos) -> Iterator[tuple[str, object]]:
    counters = state.counters
    connected = sum(1 for session in state.sessions.values() if session.consumer is not None)
    yield "version", f"overlane {version}"
    yield "name", state.name
    yield "uptime", f"{uptime_ns // SECOND} seconds"
    yield "clients/connected", connected
    yield "clients/disconnected", len(state.sessions) - connected
    yield "clients/total", len(state.sessions)
    yield "messages/received", counters.messages_in
    yield "messages/sent", counters.messages_out
    yield "publish/messages/dropped", sum(counters.dropped.values())
    yield "bytes/received", counters.bytes_in
    yield "bytes/sent", counters.bytes_out
    yield "subscriptions/count", len(state.subscriptions)
    yield "retained messages/count", len(state.retained)
    yield "dead letters/count", counters.dead_letters
