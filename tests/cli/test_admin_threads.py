"""Brokers are asked in threads: how their answers are read is settled before these start."""

import subprocess
import sys

ASK = """
import dataclasses, gc, sys, threading
from overlane.cli.admin import admin_client
from overlane.network.schema import Endpoint

def look_for_garbage():
    while True:
        gc.collect()

sys.setswitchinterval(1e-6)
threading.Thread(target=look_for_garbage, daemon=True).start()
admin_client._request = lambda *_: b"{}"
brokers = tuple(admin_client.AdminAddress(str(number), Endpoint("127.0.0.1", 1)) for number in range(4))
for number in range(40):
    inner = dataclasses.make_dataclass("Inner", [(f"a{n}", int | None, None) for n in range(20)])
    outer = dataclasses.make_dataclass("Outer", [(f"b{n}", list[inner], ()) for n in range(5)])
    answers = admin_client.get_all(admin_client.Targets(brokers, None), "/x", {}, outer)
    assert [one.body for one in answers] == [outer()] * 4
"""


def test_answers_of_a_kind_that_was_never_read_before_are_read_in_several_threads() -> None:
    """msgspec crashed the process when two threads were the first to read a dataclass."""
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
