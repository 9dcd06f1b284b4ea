"""Source files that process one QoS 1 message over three brokers, and the calls between them.

    python bench/walk.py [--verbose]

The brokers a - b - c of `bench/lone.py`, in memory. The walk begins with the bytes of PUBLISH at a. It ends when a has
the acknowledgement of c, the publisher its PUBACK, and c the PUBACK of the subscriber.

    files        source files of `overlane` in which a function runs
    hand-overs   pairs of files, one of which calls a function of the other

Work that is not done for every message (pings, timers, refreshes) is excluded. `--verbose` lists the files in the order
in which the message reaches them, each with the files that it calls.
"""

import argparse
import sys
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import mqtt5
from rich.console import Console

import overlane
from _lone_row import PAYLOAD, TOPIC, LoneRow

SOURCE = Path(overlane.__file__).parent
MESSAGES = 20
WARM = 5
TURNS = 3
"""At each broker, until what a commit has held back is sent as well."""
PACKET_ID = 1
PUBLISH = mqtt5.PublishPacket(TOPIC, PAYLOAD, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=PACKET_ID).write()

HandOver = tuple[str, str]


class AssuredRow(LoneRow):
    """Messages of QoS 1, acknowledged by the subscriber."""

    def __init__(self) -> None:
        super().__init__(message=PUBLISH)

    def accept(self, data: bytes) -> bool:
        if not data:
            return False
        packet, _ = mqtt5.read(memoryview(data))
        if not isinstance(packet, mqtt5.PublishPacket) or packet.payload != PAYLOAD or packet.packet_id is None:
            return False
        self.subscriber.received(mqtt5.PubAckPacket(packet.packet_id).write())
        return True


class Walk:
    """The files that called functions of others, in the order in which that happened first."""

    def __init__(self) -> None:
        self.hand_overs: dict[HandOver, None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or frame.f_back is None:
            return
        called = _file_of(frame)
        caller: FrameType | None = frame.f_back
        while caller is not None and not _file_of(caller):  # a library in between, such as msgspec or the loop
            caller = caller.f_back
        if called and caller is not None and (by := _file_of(caller)) != called:
            self.hand_overs[by, called] = None


def _file_of(frame: FrameType) -> str:
    return _within_source(frame.f_code.co_filename)


@cache
def _within_source(name: str) -> str:
    return str(Path(name).relative_to(SOURCE)) if name.startswith(f"{SOURCE}/") else ""


def walk_of(row: AssuredRow) -> Walk:
    """One message, until nobody has to do anything more for it."""
    walk = Walk()
    row.settle()
    sys.setprofile(walk)
    row.publish()
    for _ in range(TURNS):
        row.settle()
    row.check()
    for _ in range(TURNS):
        row.settle()
    sys.setprofile(None)
    return walk


def common(walks: list[Walk]) -> list[HandOver]:
    return [one for one in walks[0].hand_overs if all(one in walk.hand_overs for walk in walks)]


def measure() -> list[HandOver]:
    row = AssuredRow()
    walks = [walk_of(row) for _ in range(WARM + MESSAGES)]
    return common(walks[WARM:])


def files_of(hand_overs: list[HandOver]) -> list[str]:
    return list(dict.fromkeys(file for pair in hand_overs for file in pair))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--verbose", action="store_true", help="List the files, each with the files that it calls.")
    options = parser.parse_args()
    hand_overs = measure()
    files = files_of(hand_overs)
    console = Console(highlight=False)
    if options.verbose:
        for file in files:
            called = [to for by, to in hand_overs if by == file]
            console.print(f"{file}  ->  {', '.join(called)}" if called else file, soft_wrap=True)
    console.print(f"A QoS 1 message over three brokers: {len(files)} files, {len(hand_overs)} hand-overs")


if __name__ == "__main__":
    main()
