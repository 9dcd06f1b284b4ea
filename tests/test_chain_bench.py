"""The parts of bench/chain.py: it waits until subscribers are reached, and sees when messages come again."""

import math
import socket
import threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("bench_folder")

PAYLOAD_BYTES = 64


def test_messages_pass_through_a_row_of_brokers_and_arrive_as_they_were_sent(tmp_path: Path) -> None:
    from _chain_measures import latency
    from _chain_peers import OverlaneBrokers, row
    from _turns import Extent

    with row(OverlaneBrokers(), tmp_path) as brokers:
        figures = latency(brokers, Extent(0.2))
    assert (figures["lost"], figures["disorder"]) == (0, 0)
    assert figures["p50_us"] > 0


def test_a_subscriber_far_away_waits_until_it_is_reached_and_keeps_nothing_of_the_probes() -> None:
    from _wire import Far, Mqtt, packet, read_exactly

    deaf_to = 3
    heard = list[bytes]()
    is_handed_over = threading.Event()
    probe = Mqtt().published("plant/7", 8).message

    def serve(listening: socket.socket) -> None:
        """A broker with two clients that passes on what one publishes, but for the first few messages."""
        subscriber, _ = listening.accept()
        read_exactly(subscriber, len(packet(0x82, b"\0\1\0\7plant/7\0")))
        subscriber.sendall(packet(0x90, b"\0\1\0"))
        publisher, _ = listening.accept()
        read_exactly(publisher, len(packet(0x10, b"\0\4MQTT\4\2\0\0\0\7probing")))
        publisher.sendall(b"\x20\2\0\0")
        while got := publisher.recv(len(probe), socket.MSG_WAITALL):
            heard.append(got)
            if len(heard) > deaf_to:
                subscriber.sendall(got)
        publisher.close()
        is_handed_over.wait(10)
        subscriber.sendall(b"what is measured")
        subscriber.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        broker = threading.Thread(target=serve, args=(listening,))
        broker.start()
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            reached = Far(Mqtt(), port).subscribe(connection, ["plant/7"])
            is_handed_over.set()
            found = reached.recv(100)
            broker.join(10)
    assert (found, heard) == (b"what is measured", [probe] * (deaf_to + 1))


def test_recovery_is_when_the_first_message_arrives_that_was_sent_after_the_end_of_a_broker() -> None:
    import numpy as np

    from _chain_measures import Struck, recovery
    from _load import Latencies

    ms = 1_000_000
    sent = [0, 10, 20, 60, 70]
    arrived = [1, 11, 45, 61, 85]  # the third was under way when the broker ended
    sent_ns, arrived_ns = (np.array(times, np.int64) * ms for times in (sent, arrived))
    latencies = Latencies(sent_ns.tobytes(), arrived_ns.tobytes(), 0)
    assert recovery(latencies, Struck(15 * ms, 21 * ms)) == {"first_ms": 46.0, "silence_ms": 46.0}


def test_what_never_comes_again_is_said() -> None:
    from _chain_measures import Struck, recovery
    from _crew import LoadFailed
    from _load import Latencies

    with pytest.raises(LoadFailed, match="nothing has arrived"):
        recovery(Latencies(b"", b"", 0), Struck(1, 2))


def test_aims_are_judged_by_ratios_within_a_round() -> None:
    from _chain_tables import aims
    from _turns import Found

    small: Found = {
        "Overlane": [{"per_second": 300.0}, {"per_second": 30.0}],
        "Mosquitto": [{"per_second": 100.0}, {"per_second": 10.0}],
        "NATS": [{"per_second": 1000.0}, {"per_second": 100.0}],
    }
    latency: Found = {"Overlane": [{"p99_us": 140.0}], "NATS": [{"p99_us": 100.0}], "Zenoh": [{"p99_us": math.inf}]}
    assert aims({"small": small, "latency": latency}) == {
        "64 bytes at QoS 0: 3.00 x Mosquitto, at least 2.5": True,
        "64 bytes at QoS 0: 0.30 x NATS, at least 0.5": False,
        "p99: 1.40 x NATS, the best; at most 1.5": True,
    }
