"""The emulator: a process that moves packets between the TUN devices of all sites, each when it is due.

A tight loop without an event framework: wait for a device or the next due packet with microsecond precision (`select`,
since `epoll` is coarser), read available packets, write due ones. After each packet read it checks for due packets, so
a burst from one site delays no other. It runs with real-time priority where permitted, so that the latency it adds does
not depend on the load of the machine.

It exits when the connection to its owner closes, however the owner ended: then it kills all processes in the
namespaces, and removes the namespaces.
"""

import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from time import monotonic_ns, sleep
from typing import assert_never

import msgspec

from overlane.core.units import SECOND, US
from overlane.errors import Unavailable
from overlane.testbed import namespaces
from overlane.testbed.emulator_protocol import Answer, Begin, Change, HowMuch, Plugged, Question
from overlane.testbed.realtime_priority import raise_priority, reset_priority
from overlane.testbed.switch import Switch
from overlane.testbed.tun import open_tun, set_carrier

PACKET_BYTES_MAX = 65_536
TURN_PACKETS = 16
"""How many packets one device may give before the others get their turn: some 0.2 ms."""
GRAIN_NS = 50 * US
"""What is due within this time goes with what is due now, and after packets have come the next are let come together
for as long. One evens out the other, and a busy emulator wakes up once for many packets."""
IDLE_S = 60.0


def main() -> None:
    """The owner's end of the connection is standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    owner = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    questions = _Questions(owner)
    begin = questions.wait()
    if not isinstance(begin, Begin):
        return
    try:
        try:
            emulator = Emulator(begin)
            is_urgent = begin.is_urgent and raise_priority()
        except Unavailable as refused:
            questions.answer(Answer(fault=str(refused)))
            return
        questions.answer(Answer(is_urgent=is_urgent))
        gc.collect()
        gc.freeze()
        gc.disable()  # packets make no cycles, and a collection would delay them
        emulator.run(questions)
    finally:
        with suppress(OSError):
            reset_priority()
        namespaces.remove(begin.namespaces)


class Emulator:
    def __init__(self, begin: Begin) -> None:
        self._switch = Switch(begin.plan)
        self._devices = [
            open_tun(namespaces.path_of(namespace), device)
            for namespace, device in zip(begin.namespaces, begin.devices, strict=True)
        ]

    def run(self, questions: "_Questions") -> None:
        """Until the owner is gone."""
        switch, devices = self._switch, self._devices
        number_of = {descriptor: number for number, descriptor in enumerate(devices)}
        events = select.epoll()
        for descriptor in devices:
            events.register(descriptor, select.EPOLLIN)
        owner = questions.fileno()
        events.register(owner, select.EPOLLIN)
        watched = [events.fileno()]
        came: list[tuple[int, int]] = []
        while True:
            wait_ns = switch.next_due() - GRAIN_NS - monotonic_ns()
            if wait_ns > 0:
                if came:
                    sleep(min(GRAIN_NS, wait_ns) / SECOND)
                else:
                    select.select(watched, (), (), min(IDLE_S, wait_ns / SECOND))
            self._write_due()
            came = events.poll(0)
            for descriptor, _ in came:
                if descriptor != owner:
                    self._read(number_of[descriptor], descriptor)
                elif not self._answer(questions):
                    return

    def _read(self, plug: int, descriptor: int) -> None:
        switch, read = self._switch, os.read
        for _ in range(TURN_PACKETS):
            try:
                packet = read(descriptor, PACKET_BYTES_MAX)
            except (BlockingIOError, OSError):  # nothing more, or the device is down
                return
            now = monotonic_ns()
            switch.enter(plug, packet, now)
            if switch.next_due() <= now + GRAIN_NS:
                self._write_due()

    def _write_due(self) -> None:
        switch, devices, write = self._switch, self._devices, os.write
        soon = monotonic_ns() + GRAIN_NS
        while (due := switch.leave(soon)) is not None:
            # A device whose site is being taken down takes nothing; so it is with packets.
            with suppress(OSError):
                write(devices[due[0]], due[1])

    # The owner

    def _answer(self, questions: "_Questions") -> bool:
        """False when the owner is gone."""
        for question in questions.read():
            questions.answer(self._done(question))
        return not questions.is_over

    def _done(self, question: Question) -> Answer:
        match question:
            case Change(source, target, conditions):
                self._switch.change(source, target, conditions)
                return Answer()
            case Plugged(plug, is_in):
                self._switch.plug(plug, is_in)
                set_carrier(self._devices[plug], is_in)
                return Answer()
            case HowMuch():
                return Answer(carried=tuple(self._switch.carried()), refused=self._switch.refused)
            case Begin():
                return Answer(fault="it has begun already")
            case _:
                assert_never(question)


class _Questions:
    """The owner's questions, line by line."""

    def __init__(self, owner: socket.socket) -> None:
        self._owner = owner
        self._rest = b""
        self._decoder = msgspec.json.Decoder(Question)
        self.is_over = False

    def fileno(self) -> int:
        return self._owner.fileno()

    def wait(self) -> Question | None:
        """The first one."""
        while not self.is_over:
            if found := self.read():
                return found[0]
        return None

    def read(self) -> list[Question]:
        try:
            data = self._owner.recv(PACKET_BYTES_MAX)
        except OSError:
            data = b""
        self.is_over = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [self._decoder.decode(line) for line in lines]

    def answer(self, answer: Answer) -> None:
        try:
            self._owner.sendall(msgspec.json.encode(answer) + b"\n")
        except OSError:
            self.is_over = True


if __name__ == "__main__":
    main()
