"""Clients of other implementations: rhea (Node.js), and the AMQP library in Azure's packages for Python."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers import Overlane, free_port

NODE = shutil.which("node")
MODULES = os.pathsep.join((os.environ.get("NODE_PATH", ""), str(Path(sys.prefix) / "node_modules")))
WITHIN_S = 60


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    number = free_port()
    directory = tmp_path_factory.mktemp("amqp")
    broker = Overlane(directory, "[telemetry]\nenabled = false\n", f'amqp = "127.0.0.1:{number}"\n')
    broker.start()
    yield number
    broker.kill()


def has_rhea() -> bool:
    if NODE is None:
        return False
    environment = {**os.environ, "NODE_PATH": MODULES}
    looked = subprocess.run([NODE, "-e", "require('rhea')"], env=environment, capture_output=True, check=False)
    return looked.returncode == 0


@pytest.mark.skipif(not has_rhea(), reason="Node.js or rhea is missing")
def test_rhea_sends_and_receives(port: int) -> None:
    assert NODE is not None
    script = str(Path(__file__).parent / "rhea_peer.js")
    ran = subprocess.run(
        [NODE, script, str(port)],
        env={**os.environ, "NODE_PATH": MODULES},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [[number, number, f"id-{number}"] for number in range(10)]


def test_azures_library_sends_and_receives(port: int) -> None:
    pyamqp: Any = pytest.importorskip("azure.eventhub._pyamqp")
    messages: Any = pytest.importorskip("azure.eventhub._pyamqp.message")
    authentication: Any = pytest.importorskip("azure.eventhub._pyamqp.authentication")
    login = authentication.SASLPlainAuth(authcid="anyone", passwd="anything")
    place = {"auth": login, "network_trace": False, "use_tls": False, "retry_total": 0}
    receiver = pyamqp.ReceiveClient(f"127.0.0.1:{port}", "azure/#", link_credit=20, **place)
    sender = pyamqp.SendClient(f"127.0.0.1:{port}", "azure/1", **place)
    receiver.open()
    try:
        while not receiver.client_ready():
            pass
        for number in range(10):
            sender.send_message(messages.Message(data=[b"%d" % number]), timeout=WITHIN_S)
        got: list[Any] = []
        while len(got) < 10:
            got += receiver.receive_message_batch(max_batch_size=10, timeout=WITHIN_S)
        assert [b"".join(message.data) for message in got] == [b"%d" % number for number in range(10)]
    finally:
        sender.close()
        receiver.close()
