"""Kinds of strain on one broker, each for as long as wanted: parts of `python bench/torture.py`."""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

from floods import SMALL_BUFFER_BYTES, Flood, Heard, Keen, connected, subscribed
from fuzzing import Fuzzer
from idlers import Idlers, most, room_for
from killing import LIMITS, Killing, left_in
from stage import DEFECT, Bystanders, StrainedBroker, strained

from watched import WatchedBroker

MIB = 1 << 20
QUEUE_BYTES = 8 * MIB
CROWD = 2_000
GROWTH_MAX = 1.3
"""Of the broker's memory, from the third crowd that came and went to the last."""

Trial = Callable[[Path, Random, float], str]
"""In a directory, with this luck, until a time by the monotonic clock; what is to be told of it."""


def bytes_(directory: Path, luck: Random, until_s: float) -> str:
    """Bytes that are almost MQTT."""
    broker = StrainedBroker(directory, 'connections_per_second = 100000\npacket = "64KiB"\n')
    with strained(broker), Bystanders(broker.port) as bystanders:
        before, count = bystanders.window_of(200), 0
        fuzzer = Fuzzer(broker.port, broker.websocket_port, luck.randrange(1 << 32))
        while time.monotonic() < until_s:
            try:
                fuzzer.attack()
            except AssertionError as wrong:
                raise AssertionError(f"{wrong}; sent {fuzzer.last}") from wrong
            count += 1
            if count % 500 == 0:
                broker.check_unharmed()
        bystanders.window().judge(before)
        return f"{count} connections, {dict(fuzzer.outcomes)}"


def floods(directory: Path, luck: Random, until_s: float) -> str:
    """Publishers that never stop and subscribers that never read."""
    broker = StrainedBroker(directory, f'queue = "{QUEUE_BYTES // MIB}MiB"\nconnections_per_second = 100000\n')
    rounds = messages = 0
    with strained(broker), Bystanders(broker.port) as bystanders:
        before, empty_bytes = bystanders.window_of(300), broker.peak_bytes
        while time.monotonic() < until_s:
            rounds += 1
            qos, deaf, publishers = luck.randrange(2), luck.randrange(3), luck.randrange(1, 6)
            payload_bytes = luck.choice((150, 1_000, 8_000))
            wanted = luck.randrange(5_000_000, 50_000_000) // payload_bytes
            with ExitStack() as stack:
                keen = stack.enter_context(Keen(broker.port, f"keen-{rounds}", f"flood/{rounds}/#", qos))
                for number in range(deaf):
                    line = connected(broker.port, f"deaf-{rounds}-{number}", buffer_bytes=SMALL_BUFFER_BYTES)
                    subscribed(stack.enter_context(line), f"flood/{rounds}/#", qos)
                crowd = [
                    Flood(broker.port, f"flood-{rounds}-{one}", f"flood/{rounds}/{one}", qos, payload_bytes, one)
                    for one in range(publishers)
                ]
                while (total := sum(flood.sent for flood in crowd)) < wanted:
                    for flood in crowd:
                        flood.pour(64)
                        if qos:
                            flood.settle(64)
                told = (
                    f"round {rounds}: QoS {qos}, {deaf} deaf, {publishers} publishers, {payload_bytes} bytes, {total}"
                )
                assert (heard := keen.heard(total)) == Heard(total), f"{told}: {heard}"
                for flood in crowd:
                    flood.close()
            messages += total
            grown_bytes = broker.peak_bytes - empty_bytes
            assert grown_bytes < 12 * QUEUE_BYTES, f"{told}: grown by {grown_bytes} bytes"
        meanwhile = bystanders.window()
        meanwhile.judge(before)
        return f"{rounds} floods of {messages} messages, grown by {grown_bytes / MIB:.0f} MiB, others {meanwhile}"


def crowds(directory: Path, luck: Random, until_s: float) -> str:
    """Thousands who come, subscribe, and leave or vanish."""
    broker = StrainedBroker(directory, "connections_per_second = 1000000\n")
    count, grown = most(CROWD), list[int]()
    with strained(broker), Bystanders(broker.port) as bystanders, room_for(count):
        before = bystanders.window_of(300)
        while time.monotonic() < until_s or len(grown) < 4:
            idlers = Idlers(broker.port)
            idlers.come(luck.randrange(count // 2, count))
            idlers.subscribe(f"crowd/{luck.randrange(1_000_000)}")
            idlers.go(politely=luck.random() < 0.5)
            broker.wait_for_status(lambda status: status["connections"] <= 3, "all gone")
            grown.append(broker.memory_bytes)
        bystanders.window().judge(before)
        assert grown[-1] < grown[2] * GROWTH_MAX, f"it grows: {grown}"
        return f"{len(grown)} crowds; memory {grown[2] / MIB:.0f} MiB after the third, {grown[-1] / MIB:.0f} at the end"


def kills(directory: Path, luck: Random, until_s: float) -> str:
    """Kill -9 under load."""
    broker = WatchedBroker(directory, LIMITS)
    broker.start()
    try:
        killing = Killing(broker, luck.randrange(1 << 32))
        ledger = asyncio.run(killing.run(lambda _: time.monotonic() < until_s))
        assert ledger.is_clean, str(ledger)
        assert broker.terminate()() == 0
        left = left_in(directory)
        assert left.keys() == {"mqtt.session", "mqtt.subscription", "mqtt.retained", "store"}, f"left behind: {left}"
        assert not DEFECT.search(broker.log), broker.log
    finally:
        broker.kill()
    return f"{killing.kills} kills: {ledger}"


TRIALS: dict[str, Trial] = {"bytes": bytes_, "floods": floods, "crowds": crowds, "kills": kills}
