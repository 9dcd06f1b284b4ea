"""A broker that is killed under load: what it has accepted of AMQP clients is not lost."""

import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from proton_clients import proton

from brokers import Overlane, free_port
from waiting import eventually

proton_core: Any = proton()
utils: Any = proton("proton.utils")

KILLS = 3
MESSAGES_BETWEEN = 60


class Writer(threading.Thread):
    """Sends numbers to a queue, each until it is accepted; connects again when the connection is lost."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.accepted: list[int] = []
        self.ends = False

    def has_accepted(self, count: int) -> bool:
        return len(self.accepted) >= count

    def run(self) -> None:
        number = 0
        while not self.ends:
            try:
                number = self._send_from(number)
            except (proton_core.ProtonException, OSError):
                # Nobody knows whether the last one was accepted; the broker is being started again.
                number = self.accepted[-1] + 2 if self.accepted else 1
                time.sleep(0.05)

    def _send_from(self, number: int) -> int:
        connection = utils.BlockingConnection(self._url, timeout=10)
        sender = connection.create_sender("queue://ledger")
        while not self.ends:
            sender.send(proton_core.Message(body=number))
            self.accepted.append(number)
            number += 1
        connection.close()
        return number


@pytest.mark.slow
def test_nothing_accepted_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    port = free_port()
    broker = Overlane(tmp_path, "[telemetry]\nenabled = false\n", f'amqp = "127.0.0.1:{port}"\n')
    broker.start()
    writer = Writer(f"amqp://127.0.0.1:{port}")
    try:
        writer.start()
        for kill in range(1, KILLS + 1):
            wanted = kill * MESSAGES_BETWEEN
            eventually(partial(writer.has_accepted, wanted), f"{wanted} accepted", 120)
            broker.kill()
            broker.start()
        writer.ends = True
        writer.join(60)
        connection = utils.BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=30)
        receiver = connection.create_receiver("queue://ledger", credit=1_000)
        missing, got = set(writer.accepted), []
        while missing:
            got.append(receiver.receive(30).body)
            receiver.accept()
            missing.discard(got[-1])
        connection.close()
        first = list(dict.fromkeys(got))
        assert first == sorted(first)
    finally:
        writer.ends = True
        broker.kill()
