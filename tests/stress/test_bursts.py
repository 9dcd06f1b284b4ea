"""A burst of several times what a reader's queue may hold: what is dropped is told, message by message."""

import select
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from faithful import packet, text
from stage import StrainedBroker, strained

from waiting import eventually

pytestmark = pytest.mark.slow

QUEUE_MESSAGES = 50
WRITERS = 20
OF_EACH = 40
WITHIN_S = 60.0


class Client:
    """A client of MQTT 3.1.1 that answers only when told to."""

    def __init__(self, port: int, name: str, is_clean: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        self.bodies: list[bytes] = []
        self.acknowledged = 0
        self._unread = b""
        self._answered: list[int] = []
        self.socket.sendall(packet(0x10, text("MQTT") + bytes((4, 2 * is_clean, 0, 0)) + text(name)))
        self.read_until(lambda: 0x20 in self._answered)

    def subscribe(self, topic_filter: str) -> None:
        self.socket.sendall(packet(0x82, b"\0\1" + text(topic_filter) + b"\1"))
        self.read_until(lambda: 0x90 in self._answered)

    def read_until(self, holds: Callable[[], bool]) -> None:
        eventually(lambda: holds() or self.read(), "read", WITHIN_S)

    def read(self) -> bool:
        """What has come, and answer it; False."""
        while select.select([self.socket], [], [], 0)[0]:
            data = self.socket.recv(65_536)
            assert data
            self._unread += data
            while len(self._unread) >= 2 and len(self._unread) >= (end := 2 + self._unread[1]):
                first, body, self._unread = self._unread[0], self._unread[2:end], self._unread[end:]
                self._answered.append(first)
                self.acknowledged += first == 0x40
                if first & 0xF0 == 0x30:
                    at = 2 + int.from_bytes(body[:2])
                    self.bodies.append(body[at + 2 :])
                    self.socket.sendall(packet(0x40, body[at : at + 2]))
        return False


def test_of_a_burst_for_a_slow_reader_each_acknowledged_message_is_delivered_or_told_as_dropped(tmp_path: Path) -> None:
    """Up to twice its limits a queue keeps what comes for a reader that is there; of the rest each is a dead letter."""
    with strained(StrainedBroker(tmp_path, f"queue_messages = {QUEUE_MESSAGES}\n")) as broker:
        reader = Client(broker.port, "reader", is_clean=False)
        reader.subscribe("burst/#")
        watcher = Client(broker.port, "watcher")
        watcher.subscribe("$dead-letter/#")
        writers = [Client(broker.port, f"writer-{number}") for number in range(WRITERS)]
        sent = {b"%d/%d" % (writer, number) for writer in range(WRITERS) for number in range(OF_EACH)}
        for place, writer in enumerate(writers):
            messages = [
                packet(0x32, text(f"burst/{place}") + (number + 1).to_bytes(2) + b"%d/%d" % (place, number))
                for number in range(OF_EACH)
            ]
            writer.socket.sendall(b"".join(messages))

        def all_acknowledged() -> bool:
            watcher.read()
            for writer in writers:
                writer.read()
            return all(writer.acknowledged == OF_EACH for writer in writers)

        eventually(all_acknowledged, "acknowledged", WITHIN_S)

        def is_read() -> bool:
            reader.read()
            watcher.read()
            return not any(
                broker.get(f"/clients/{name}")["client"]["queue"]["messages"] for name in ("reader", "watcher")
            )

        eventually(is_read, "read", WITHIN_S)
        delivered, letters = set(reader.bodies), set(watcher.bodies)
        dropped = broker.status()["dropped"]
        print(f"{len(sent)} acknowledged, {len(delivered)} delivered, {len(letters)} dead letters, dropped {dropped}")
        assert delivered <= sent
        assert len(reader.bodies) == len(delivered) >= 2 * QUEUE_MESSAGES
        missing = sent - delivered
        assert missing
        assert letters <= missing
        # A watcher that does not keep up misses letters, and that is counted too.
        assert dropped == {"queue full": len(missing) + len(missing - letters)}
