"""Hundreds of clients that never get to the point are cut off when their time is over, and hold nobody up."""

import time
from pathlib import Path

import pytest
from dawdlers import CONNECT, FRAME_BEGUN, REQUEST, Crowd, Dawdler, client_hello
from stage import Bystanders, StrainedBroker, strained

from overlane.testbed.certificates import Authority

pytestmark = pytest.mark.slow

WITHIN_S = 4
PATIENCE_S = 30.0
CONNECT_MS_MAX = 1_000.0
OF_A_KIND = 40


def crowd_at(broker: StrainedBroker) -> Crowd:
    hello, crowd = client_hello(), Crowd()
    for _ in range(OF_A_KIND):
        for dawdler in (
            Dawdler("says nothing", broker.port, b""),
            Dawdler("half a CONNECT", broker.port, CONNECT[: len(CONNECT) // 2]),
            Dawdler("a byte at a time", broker.port, CONNECT[:2], CONNECT[2:-1]),
            Dawdler("TLS: says nothing", broker.tls_port, b""),
            Dawdler("TLS: half a hello", broker.tls_port, hello[: len(hello) // 2]),
            Dawdler("TLS: only a hello", broker.tls_port, hello),
            Dawdler("TLS: a byte at a time", broker.tls_port, hello[:5], hello[5:-1]),
            Dawdler("WebSocket: says nothing", broker.websocket_port, b""),
            Dawdler("WebSocket: half a request", broker.websocket_port, REQUEST[:-2]),
            Dawdler("WebSocket: a byte at a time", broker.websocket_port, REQUEST[:9], REQUEST[9:-1]),
            Dawdler("WebSocket: only a request", broker.websocket_port, REQUEST),
            Dawdler("WebSocket: half a frame", broker.websocket_port, REQUEST + FRAME_BEGUN),
        ):
            crowd.add(dawdler)
    return crowd


def test_clients_that_dawdle_are_cut_off_in_time_and_hold_nobody_up(tmp_path: Path) -> None:
    limits = f'connect_within = "{WITHIN_S}s"\nconnections_per_second = 100000\n'
    broker = StrainedBroker(tmp_path, limits, authority=Authority(tmp_path))
    with strained(broker), Bystanders(broker.port) as bystanders:
        before = bystanders.window_of(200)
        crowd = crowd_at(broker)
        try:
            crowd.watch(until_s=time.monotonic() + PATIENCE_S)
            meanwhile = bystanders.window()
            assert not crowd.left(), crowd.left()
        finally:
            crowd.close()
        meanwhile.judge(before)
        assert meanwhile.connects > 0
        assert meanwhile.connect_max_ms < max(CONNECT_MS_MAX, 8 * before.connect_max_ms), (meanwhile, before)

        lasted_s = {one.kind: one.lasted_s or 0.0 for one in crowd.dawdlers}
        print(f"cut off after {lasted_s}; {meanwhile}")
        # Nobody before the time; and as a machine may be busy, most of them not much after it.
        assert all((one.lasted_s or 0.0) > WITHIN_S * 0.95 for one in crowd.dawdlers), lasted_s
        typical_s = {
            kind: sorted(one.lasted_s or 0.0 for one in crowd.dawdlers if one.kind == kind)[OF_A_KIND // 2]
            for kind in lasted_s
        }
        assert max(typical_s.values()) < 1.75 * WITHIN_S, typical_s
        status = broker.wait_for_status(lambda status: status["connections"] == 2, "only the bystanders are left")
        assert status["refused"]["no CONNECT in time"] == len(crowd.dawdlers), status["refused"]
