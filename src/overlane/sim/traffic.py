"""Publishers: applications that publish at a constant rate, and the content of their messages.

A message begins with the number of its publisher and its own number, counted from zero; the rest is padding. By these
the judge identifies it, whatever path it took.

A publisher has slots, one every 1/rate seconds after a phase of its own, so that publishers of the same rate are not
synchronised. The message of a slot is published when the broker accepts it: if the broker refuses it for now, the
publisher tries again until then, and slots that pass meanwhile are skipped, as they are while the broker is down.
"""

import struct
from typing import Protocol, assert_never

from overlane.core.events import PublishResult
from overlane.core.units import MS, SECOND, Nanos
from overlane.errors import OverlaneError
from overlane.sim.engine import Engine

STAMP = struct.Struct(">IQ")

RETRY_NS: Nanos = 10 * MS


class MessageTooLarge(OverlaneError):
    """A publisher's messages are of a kind that its broker never takes."""

    error_code = "OVL-120"


class Outlet(Protocol):
    """What a publisher needs of its broker's driver."""

    @property
    def is_open(self) -> bool: ...
    def publish(self, topic: str, body: bytes) -> PublishResult: ...
    def end_turn(self) -> None: ...


class Registrar(Protocol):
    """Who writes down what was published, before anything comes of it."""

    def published(self, publisher: int) -> None: ...


class SimulatedPublisher:
    """`index` is the publisher's number in the stamps. Idle until told to run or to publish."""

    def __init__(
        self, index: int, topic: str, size_bytes: int, outlet: Outlet, engine: Engine, registrar: Registrar
    ) -> None:
        self.index = index
        self.topic = topic
        self.accepted = 0
        self._outlet = outlet
        self._engine = engine
        self._registrar = registrar
        self._padding = bytes(max(0, size_bytes - STAMP.size))
        self._first: Nanos = 0
        self._interval_ns = 0.0
        self._slot = 0
        self._stop: Nanos = 0

    def run(self, first: Nanos, stop: Nanos, rate_hz: float) -> None:
        """Publish at this rate from `first` until just before `stop`."""
        self._first = first
        self._stop = stop
        self._interval_ns = SECOND / rate_hz
        self._engine.at(first, self._publish_slot)

    def stop(self) -> None:
        self._stop = self._engine.now

    def publish(self, count: int = 1) -> int:
        """Publish so many messages now, in one turn; how many of them the broker accepted."""
        accepted = self.accepted
        while self.accepted < accepted + count and self._offer():
            pass
        self._outlet.end_turn()
        return self.accepted - accepted

    def _publish_slot(self, _: None) -> None:
        now = self._engine.now
        if now >= self._stop:
            return
        if self._outlet.is_open and not self.publish():
            self._engine.at(now + RETRY_NS, self._publish_slot)
            return
        at = now
        while at <= now:
            self._slot += 1
            at = self._first + int(self._slot * self._interval_ns)
        self._engine.at(at, self._publish_slot)

    def _offer(self) -> bool:
        body = STAMP.pack(self.index, self.accepted) + self._padding
        match self._outlet.publish(self.topic, body):
            case PublishResult.ACCEPTED:
                self._registrar.published(self.index)
                self.accepted += 1
                return True
            case PublishResult.BUSY:
                return False
            case PublishResult.TOO_LARGE:
                raise MessageTooLarge(f"a message of {len(body)} bytes on {self.topic} is too large for a broker")
            case answer:
                assert_never(answer)
