"""Stand-ins for brokers, to test links and drivers without any."""

from collections import deque

from overlane.core.events import Lane
from overlane.core.units import MS, Nanos
from overlane.network import Link as LinkSpec
from overlane.sim.engine import Engine
from overlane.sim.line import Frame
from overlane.sim.link import Link


class FakeStation:
    """Writes down what it is told, with the time, and sends what it is given."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self.is_alive = True
        self.link: Link
        self.heard: list[tuple[Nanos, str]] = []
        self.frames: list[tuple[Nanos, bytes]] = []
        self._engine = engine
        self._queue: deque[Frame] = deque()

    def link_up(self, peer: str) -> None:
        self.heard.append((self._engine.now, f"up {peer}"))

    def link_down(self, peer: str) -> None:
        self.heard.append((self._engine.now, f"down {peer}"))

    def path_changed(self, peer: str, rtt_ns: Nanos) -> None:
        self.heard.append((self._engine.now, f"path to {peer} of {rtt_ns // MS} ms"))

    def standby_changed(self, peer: str, rtt_ns: Nanos) -> None:
        pass

    def receive(self, _: str, frames: list[Frame]) -> None:
        self.frames += [(self._engine.now, data) for _, data in frames]

    def pull(self, _: str, bytes_max: int, in_buffer: int) -> list[Frame]:  # noqa: ARG002
        pulled: list[Frame] = []
        size = 0
        while self._queue and (not pulled or size + len(self._queue[0][1]) <= bytes_max):
            pulled.append(self._queue.popleft())
            size += len(pulled[-1][1])
        return pulled

    def room_for(self, _: str) -> None:
        self.link.end_of(self.name).drain()

    def send(self, lane: Lane, *data: bytes) -> None:
        self._queue.extend((lane, piece) for piece in data)
        self.room_for("")

    def waiting(self) -> int:
        return len(self._queue)


def pair(spec: LinkSpec, seed: int = 1) -> tuple[Engine, FakeStation, FakeStation, Link]:
    """Two stations and the link between them, not yet dialled."""
    engine = Engine()
    low, high = (FakeStation(name, engine) for name in sorted(spec.ends))
    link = Link(engine, spec, low, high, seed)
    low.link = high.link = link
    return engine, low, high, link
