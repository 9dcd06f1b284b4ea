"""Zenoh in a wide area: a router of a site (`python _wan_zenoh.py '{"listen": ...}'`), and both ends of the stream.

Routers know all links of each other (linkstate) and go around one that is gone; by weights, as quick as it is. That
comes with time for a link that falls silent to be given up: a second here, ten by default.
"""

import json
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping

import zenoh

LEASE_MS = 1000


def router(listen: int, connect: list[str], weights: Mapping[str, int], name: str) -> zenoh.Config:
    config = zenoh.Config()
    config.insert_json5("mode", '"router"')
    config.insert_json5("id", json.dumps(name))
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("scouting/gossip/enabled", "false")
    config.insert_json5("transport/shared_memory/enabled", "false")
    config.insert_json5("transport/link/tx/lease", str(LEASE_MS))
    config.insert_json5("listen/endpoints", f'["tcp/0.0.0.0:{listen}"]')
    config.insert_json5("connect/endpoints", json.dumps([f"tcp/{address}" for address in connect]))
    config.insert_json5("connect/timeout_ms", "-1")
    config.insert_json5("connect/exit_on_failure", "false")
    config.insert_json5("connect/retry", '{"period_init_ms": 500, "period_max_ms": 1000, "period_increase_factor": 2}')
    config.insert_json5(
        "routing/router/linkstate/transport_weights",
        json.dumps([{"dst_zid": other, "weight": weight} for other, weight in weights.items()]),
    )
    return config


def _client(port: int) -> zenoh.Session:
    config = zenoh.Config()
    config.insert_json5("mode", '"client"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("transport/shared_memory/enabled", "false")
    config.insert_json5("connect/endpoints", json.dumps([f"tcp/127.0.0.1:{port}"]))
    try:
        return zenoh.open(config)
    except zenoh.ZError as error:
        raise ConnectionError(str(error)) from None


class ZenohMouth:
    def __init__(self, port: int, topic: str, *, is_urgent: bool) -> None:
        self._session = _client(port)
        self._publisher = self._session.declare_publisher(
            topic,
            congestion_control=zenoh.CongestionControl.BLOCK if is_urgent else zenoh.CongestionControl.DROP,
            priority=zenoh.Priority.REAL_TIME if is_urgent else zenoh.Priority.BACKGROUND,
            express=is_urgent,
        )

    def say(self, payload: bytes) -> None:
        self._publisher.put(payload)

    def close(self) -> None:
        time.sleep(0.5)
        self._session.close()  # type: ignore[no-untyped-call]


class ZenohEar:
    def __init__(self, port: int, topic: str, last_words_s: float) -> None:
        self._session = _client(port)
        self._topic = topic
        self._last_words_s = last_words_s

    def listen(self, heard: Callable[[bytes], None]) -> None:
        turn = threading.Lock()

        def arrived(sample: zenoh.Sample) -> None:
            with turn:
                heard(sample.payload.to_bytes())

        self._session.declare_subscriber(self._topic, arrived)
        select.select([sys.stdin], [], [])
        time.sleep(self._last_words_s)
        self._session.close()  # type: ignore[no-untyped-call]


def main() -> None:
    task = json.loads(sys.argv[1])
    with zenoh.open(router(task["listen"], task["connect"], task["weights"], task["name"])):
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
