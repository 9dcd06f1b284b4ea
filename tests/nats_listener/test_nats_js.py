"""nats.js, the client of NATS for Node.js, at a broker."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from brokers import Overlane, free_port

NODE = shutil.which("node")
MODULES = os.pathsep.join((os.environ.get("NODE_PATH", ""), str(Path(sys.prefix) / "node_modules")))
WITHIN_S = 90


def has_nats_js() -> bool:
    if NODE is None:
        return False
    environment = {**os.environ, "NODE_PATH": MODULES}
    looked = subprocess.run([NODE, "-e", "require('nats')"], env=environment, capture_output=True, check=False)
    return looked.returncode == 0


@pytest.mark.skipif(not has_nats_js(), reason="Node.js or nats.js is missing")
def test_nats_js_publishes_with_headers_shares_in_a_queue_group_and_asks(tmp_path: Path) -> None:
    assert NODE is not None
    port = free_port()
    broker = Overlane(tmp_path, "[telemetry]\nenabled = false\n", f'nats = "127.0.0.1:{port}"\n')
    broker.start()
    try:
        ran = subprocess.run(
            [NODE, str(Path(__file__).parent / "nats_peer.js"), str(port)],
            env={**os.environ, "NODE_PATH": MODULES},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    finally:
        broker.kill()
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "got": [[f"js.plant.{number}", f"body {number}", str(number)] for number in range(10)],
        "shared": 10,
        "answer": "hello!",
        "nobody": "503",
    }
