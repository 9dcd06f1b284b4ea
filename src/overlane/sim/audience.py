"""Subscribers: applications that subscribe at some time, and perhaps unsubscribe at another.

A subscriber subscribes once. Its subscription is durable, so a broker that restarts must know it by itself; nobody
reminds it. Who wants to come or go while the broker is down does so when the broker is back.
"""

from collections.abc import Mapping
from typing import Protocol

from overlane.core.units import NEVER, Nanos
from overlane.network import Subscriber
from overlane.sim.engine import Engine
from overlane.sim.judge import Judge


class Desk(Protocol):
    """What a subscriber needs of its broker's driver."""

    @property
    def is_open(self) -> bool: ...
    def subscribe(self, subscriber: str, topic_filter: str) -> None: ...
    def unsubscribe(self, subscriber: str, topic_filter: str) -> None: ...


class _Seat:
    __slots__ = ("broker", "desk", "is_taken", "name", "owes_goodbye", "start", "stop", "topic_filter")

    def __init__(self, name: str, spec: Subscriber, desk: Desk, start: Nanos) -> None:
        self.name = name
        self.broker = spec.broker
        self.topic_filter = spec.topic
        self.desk = desk
        self.start = start
        self.stop = NEVER if spec.stop_ns is None else spec.stop_ns
        self.is_taken = False
        self.owes_goodbye = False  # it went while its broker was down


class Audience:
    def __init__(self, engine: Engine, desks: Mapping[str, Desk], judge: Judge) -> None:
        self._engine = engine
        self._desks = desks
        self._judge = judge
        self._seats: dict[str, _Seat] = {}

    def add(self, spec: Subscriber) -> str:
        """A subscriber who comes at its start and goes at its stop; its name. One who starts at zero is there early."""
        start = spec.start_ns if spec.start_ns > 0 else self._engine.now
        seat = _Seat(f"{spec.broker}.{len(self._seats)}", spec, self._desks[spec.broker], start)
        self._seats[seat.name] = seat
        self._judge.add_subscriber(seat.name, seat.broker, seat.topic_filter)
        self._engine.at(start, self._come, seat)
        if seat.stop < NEVER:
            self._engine.at(seat.stop, self._go, seat)
        return seat.name

    def remove(self, name: str) -> None:
        """The subscriber goes now."""
        seat = self._seats[name]
        seat.stop = self._engine.now
        self._go(seat)

    def broker_is_back(self, broker: str) -> None:
        """Who could not come or go meanwhile does so now."""
        for seat in self._seats.values():
            if seat.broker == broker:
                if seat.owes_goodbye:
                    seat.owes_goodbye = False
                    seat.desk.unsubscribe(seat.name, seat.topic_filter)
                self._come(seat)

    def broker_leaves(self, broker: str) -> None:
        """The broker departs for good, and its subscribers with it."""
        for seat in self._seats.values():
            if seat.broker == broker and seat.is_taken:
                seat.is_taken = False
                self._judge.unsubscribed(seat.name)

    def _come(self, seat: _Seat) -> None:
        if seat.desk.is_open and not seat.is_taken and seat.start <= self._engine.now < seat.stop:
            seat.is_taken = True
            self._judge.subscribed(seat.name)
            seat.desk.subscribe(seat.name, seat.topic_filter)

    def _go(self, seat: _Seat) -> None:
        if seat.is_taken:
            seat.is_taken = False
            self._judge.unsubscribed(seat.name)
            if seat.desk.is_open:
                seat.desk.unsubscribe(seat.name, seat.topic_filter)
            else:
                seat.owes_goodbye = True
