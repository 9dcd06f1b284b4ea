"""Two brokers, to be told apart: one goes on, the other has imported its sessions, and both hear the same story.

A story is a list of deeds. It is told to the first broker; then the sessions are exported to bytes and imported into a
second broker, whose clock shows another time and which knows what is retained; every connection ends; and a second
story is told to both. Whatever a client gets from one of them it must get from the other: the same packets, with the
same packet identifiers and flags, in the same order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mqtt5
from clients import NEVER_S, Bench, Client

from overlane.core.units import SECOND, Nanos
from overlane.pubsub.retained.messages import TABLE as RETAINED
from overlane.pubsub.sessions.deduplication import PROPERTY
from overlane.pubsub.sessions.session_export import decode_session, encode_session

CLOCKS_APART: Nanos = 777_777 * SECOND
CLIENTS = 3
EXPIRIES = (0, 20, 3_600, NEVER_S)
FILTERS = ("t/#", "t/a", "+/b", "$share/{client}/t/#")
TOPICS = ("t/a", "t/b", "u/b")


@dataclass(frozen=True)
class Deed:
    """`what` says which of the numbers mean something."""

    what: str
    who: int
    first: int
    second: int


DEEDS = (
    *("connect", "drop", "disconnect", "subscribe", "unsubscribe"),
    *("publish", "publish", "publish", "answer", "manners", "wait", "crash"),
)


def tell(bench: Bench, deeds: Iterable[Deed]) -> None:
    for deed in deeds:
        _do(bench, bench.clients[deed.who], deed)


def _do(bench: Bench, client: Client, deed: Deed) -> None:
    if deed.what == "wait":
        bench.wait(deed.first * 3)
    elif deed.what == "crash":
        bench.crash()
    elif deed.what == "manners":
        client.polite = not client.polite
    elif deed.what == "connect":
        will = None
        if deed.second % 2 and client.version == 5:  # 3.1.1 has no delay
            topic, qos = TOPICS[deed.second % 3], mqtt5.QoS(deed.second % 3)
            will = mqtt5.Will(topic, payload=b"will", qos=qos, will_delay_interval=5)
        client.connect(expiry=EXPIRIES[deed.first % 4], clean=False, will=will)
    elif client.is_open and client.connack is not None and not client.refusal:
        _say(client, deed)


def _say(client: Client, deed: Deed) -> None:
    first, second = deed.first, deed.second
    if deed.what == "drop":
        client.drop()
    elif deed.what == "disconnect":
        client.disconnect(reason=0x04 if first % 2 else 0)
    elif deed.what == "subscribe":
        identifier = second + 1 if client.version == 5 else None
        client.subscribe(FILTERS[first % 4].format(client=client.id), qos=second % 3, identifier=identifier)
    elif deed.what == "unsubscribe":
        client.unsubscribe(FILTERS[first % 4].format(client=client.id))
    elif deed.what == "publish" and len(client.owed) < client.bench.settings.limits.in_flight:
        is_retained = second == 5
        given: dict[str, Any] = {"message_expiry_interval": 10} if second == 4 and client.version == 5 else {}
        payload = b"%d" % client.next_id()
        client.publish(TOPICS[first % 3], payload, qos=second % 3, retain=is_retained, **given)
    elif deed.what == "answer" and client.held_ids:
        client.ack(mqtt5.PubRecPacket, min(client.held_ids))


def new_bench() -> Bench:
    bench = Bench(in_flight=3, tries=100, session_expiry_s_max=NEVER_S)
    for number in range(CLIENTS):
        wishes = {"user_properties": [(PROPERTY, "run")]} if number == 0 else {}
        bench.stranger(f"c{number}", version=4 if number == 2 else 5, **wishes)
    return bench


def exports(bench: Bench) -> dict[str, bytes]:
    pubsub = bench.server.pubsub
    return {
        client_id: encode_session(pubsub.export_session(client_id, bench.now))
        for client_id, session in sorted(pubsub.state.sessions.items())
        if session.is_durable
    }


def transplanted(bench: Bench) -> Bench:
    """Another broker with the sessions of this one; its clients know what those of the first know."""
    other = new_bench()
    other.settings = bench.settings
    other.now = bench.now + CLOCKS_APART
    other.store = {name: value for name, value in bench.store.items() if name[0] == RETAINED}
    other.start()
    for exported in exports(bench).values():
        other.server.pubsub.import_session(decode_session(exported), other.now)
    other.end_turn()
    for mine, theirs in zip(other.clients, bench.clients, strict=True):
        mine.expiry, mine.polite, mine.wishes = theirs.expiry, theirs.polite, dict(theirs.wishes)
        mine.owed, mine.held_ids, mine._packet_id = dict(theirs.owed), set(theirs.held_ids), theirs._packet_id
    return other


def end_connections(bench: Bench) -> None:
    """All at once, without a word."""
    connections = [wire.connection for wire in bench.wires]
    for wire in bench.wires:
        wire.is_broken = True
    bench.wires = []
    for client in bench.clients:
        client.is_open, client.wire = False, None
    bench.server.pubsub.state.connections.difference_update(connections)
    bench.server.pubsub.sessions.leave_all(connections, bench.now)
    bench.end_turn()


def heard(bench: Bench) -> list[list[str]]:
    """What each client has heard since this was last asked."""
    return [[repr(packet) for packet in client.saw()] for client in bench.clients]


def finish(bench: Bench) -> None:
    """Everybody comes back, and takes and answers everything."""
    for client in bench.clients:
        client.polite = True
        client.connect(expiry=3_600, clean=False, will=None)
    bench.wait(1)
