"""Every protocol to every protocol, across two brokers, with clients of others; the table in docs is what was seen.

OVERLANE_WRITE_MATRIX=1 .venv/bin/python -m pytest -n 0 tests/matrix     # write the table anew
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from protocol_peers import CONTENT_TYPE, EXPIRY_S, PROPERTIES, PROTOCOLS, Protocol, Seen, Sent, is_needed

from brokers import free_port
from overlays import RealOverlay
from waiting import eventually

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "interoperability.md"
MARKED = re.compile(r"(<!-- matrix -->\n\n)((?:\|.*\n)*)")
COLUMNS = ("at least once", "order", "binary", "properties", "content type", "expiry", "retained")
COUNT = 20
BINARY = bytes(range(256))
LISTENERS = {"MQTT 3.1.1": "mqtt", "MQTT 5": "mqtt", "AMQP 1.0": "amqp", "NATS": "nats", "HTTP": "http"}


class Two:
    """Two linked brokers, with all listeners."""

    def __init__(self, directory: Path) -> None:
        self.net = RealOverlay(directory, {"a-b": 'latency = "1ms"'})
        self.addresses: dict[tuple[str, str], str] = {}
        text = self.net.file.read_text()
        for name in ("a", "b"):
            self.addresses[name, "mqtt"] = self.net[name].mqtt
            lines = f"[brokers.{name}]\n"
            for listener in ("amqp", "nats", "http"):
                self.addresses[name, listener] = f"127.0.0.1:{free_port()}"
                lines += f'{listener} = "{self.addresses[name, listener]}"\n'
            text = text.replace(f"[brokers.{name}]\n", lines)
        self.net.file.write_text(text)
        self.net.start()

    def at(self, broker: str, protocol: Protocol) -> str:
        return self.addresses[broker, LISTENERS[protocol.name]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    both = Two(tmp_path_factory.mktemp("matrix"))
    yield both
    both.net.end()


def level_of(protocol: Protocol) -> str:
    return protocol.name.lower().replace(" ", "-").replace(".", "_")


def published(two: Two, source: Protocol, target: Protocol) -> None:
    topic = f"m/{level_of(source)}/{level_of(target)}"
    source.publish(two.at("a", source), [Sent(topic, b"%03d" % number + BINARY) for number in range(COUNT)])


def row(source: Protocol, target: Protocol, seen: list[Seen], retained: Seen | None) -> list[str]:
    """What reached the reader of what the publisher said."""
    one = seen[0]
    found = {
        "at least once": "yes" if one.qos == 1 else "no",
        "order": "yes" if [each.payload[:3] for each in seen] == [b"%03d" % n for n in range(COUNT)] else "no",
        "binary": "yes" if all(each.payload[3:] == BINARY for each in seen) else "no",
        "properties": "yes" if PROPERTIES.items() <= dict(one.properties).items() else "no",
        "content type": "yes" if one.content_type == CONTENT_TYPE else "no",
        "expiry": "yes" if one.expiry_s is not None and EXPIRY_S - 300 < one.expiry_s <= EXPIRY_S else "no",
        "retained": "yes" if retained is not None else "no",
    }
    return [source.name, target.name, *(found[column] for column in COLUMNS)]


def read_retained(two: Two, target: Protocol, sources: list[Protocol]) -> dict[str, Seen]:
    """What a reader gets that comes after the messages, by their topics. NATS has no retained messages: it gets what
    is published behind them."""
    last = "r/last/" + level_of(target)
    reader = target.read(two.at("b", target), f"r/+/{level_of(target)}")
    try:
        eventually(lambda: is_needed(two.at("a", PROTOCOLS[1]), last), "needed at a")
        PROTOCOLS[1].publish(two.at("a", PROTOCOLS[1]), [Sent(last, b"last")])
        found: dict[str, Seen] = {}
        while last not in found:
            [one] = reader.take(1)
            found[one.topic] = one
    finally:
        reader.close()
    return {source.name: found[topic] for source in sources if (topic := retained_topic(source, target)) in found}


def retained_topic(source: Protocol, target: Protocol) -> str:
    return f"r/{level_of(source)}/{level_of(target)}"


def measured(two: Two) -> list[list[str]]:
    can_retain = [one for one in PROTOCOLS if one.can_retain]
    for source in can_retain:
        messages = [Sent(retained_topic(source, target), BINARY, retain=True) for target in PROTOCOLS]
        source.publish(two.at("a", source), messages)
    mqtt = PROTOCOLS[1]
    kept = mqtt.read(two.at("b", mqtt), "r/#")
    kept.take(len(can_retain) * len(PROTOCOLS))  # so that all of them are known at b
    kept.close()
    rows = []
    for target in PROTOCOLS:
        retained = read_retained(two, target, can_retain)
        reader = target.read(two.at("b", target), f"m/+/{level_of(target)}")
        try:
            probed = f"m/probe/{level_of(target)}"
            eventually(lambda probed=probed: is_needed(two.at("a", mqtt), probed), "needed at a")  # type: ignore[misc]
            for source in PROTOCOLS:
                published(two, source, target)
                seen = reader.take(COUNT)
                assert {one.topic for one in seen} == {f"m/{level_of(source)}/{level_of(target)}"}
                rows.append(row(source, target, seen, retained.get(source.name)))
        finally:
            reader.close()
    return sorted(rows, key=lambda one: [each.name for each in PROTOCOLS].index(one[0]))


def test_every_protocol_reaches_every_protocol_as_the_table_says(two: Two) -> None:
    rows = measured(two)
    assert len(rows) == len(PROTOCOLS) ** 2
    head = ["from", "to", *COLUMNS]
    table = "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rows])
    page = PAGE.read_text()
    if os.environ.get("OVERLANE_WRITE_MATRIX"):
        PAGE.write_text(MARKED.sub(lambda found: found[1] + table, page))
        return
    found = MARKED.search(page)
    assert found is not None
    assert found[2] == table
