"""What bench/cost.py and its test measure: three brokers in a row, driven by hand, with a clock that only they see.

A round measures everything once, one thing after the other, so that a machine that is busy for a while is busy for
all of them; a ratio is taken within a round, and the median over rounds is the figure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns

import mqtt5

from overlane.core.broker import OverlayBroker
from overlane.core.events import Lane
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.frame_codec import NO_ROUTE, FrameType, read_parcel, split
from overlane.core.wire.parcel import FlowPart, Message, cut, pack_flow, pack_messages, unpack
from overlane.mqtt.codec import codec311
from overlane.network import Topic
from overlane.sim.story import Story, topic

TOPIC = "plant/7/temperature"
BODY = bytes(range(64))
MESSAGES = 64
PART = FlowPart(1, 1, 1, 1, 0)
TURNS = 40
"""Per round and measurement."""
PARCEL_BYTES_MIN = 64
ROOM = 1 << 20

CLASSES: dict[str, Topic] = {
    "deadline, adaptive": topic(200 * MS),
    "deadline, one path": topic(200 * MS, routing="single"),
    "no deadline": topic(NEVER),
    "reliable": topic(NEVER, reliability="reliable"),
}

Chunk = tuple[Lane, bytes]


class Row:
    """Brokers a - b - c. What a publishes, c delivers."""

    def __init__(self, qos: Topic) -> None:
        story = Story(
            {("a", "b"): 1 * MS, ("b", "c"): 1 * MS},
            {TOPIC: qos},
            publishers=[("a", TOPIC, 100)],
            subscribers=[("c", TOPIC)],
        )
        story.run(2 * SECOND)
        story.silence()
        story.run(2 * SECOND)
        self._now: Nanos = story.now
        self.brokers: dict[str, OverlayBroker] = {name: story.broker(name) for name in "abc"}
        for _ in range(20):
            self.settle()

    def tick(self) -> Nanos:
        self._now += 1 * MS
        return self._now

    def settle(self) -> None:
        """All that is under way arrives, notices and receipts included."""
        now = self.tick()
        busy = True
        while busy:
            busy = False
            for name, broker in self.brokers.items():
                broker.flush(now)
                broker.durable(0, now)
                for peer in broker.ready():
                    for lane, data in broker.pull(peer, ROOM, now):
                        busy = True
                        self.brokers[peer].receive(name, data, now, lane)

    def parcel(self, messages: int) -> tuple[bytes, Nanos]:
        """One parcel of so many messages, as it leaves a; everything else that is ready goes its way."""
        self.settle()
        now = self.tick()
        publish = self.brokers["a"].publish
        for _ in range(messages):
            publish(TOPIC, BODY, now)
        self.brokers["a"].flush(now)
        self.brokers["a"].durable(0, now)
        return self.pick(self.brokers["a"].pull("b", ROOM, now), "a", "b", now), now

    def pick(self, chunks: list[Chunk], source: str, peer: str, now: Nanos) -> bytes:
        parcels = list[bytes]()
        for lane, data in chunks:
            if lane is Lane.DATA and len(data) > PARCEL_BYTES_MIN:
                parcels.append(data)
            else:
                self.brokers[peer].receive(source, data, now, lane)
        if len(parcels) != 1:
            raise AssertionError(f"{len(parcels)} parcels where one was expected")
        return parcels[0]


@dataclass(frozen=True)
class Costs:
    """Nanoseconds per message, medians of a round's turns."""

    read: float
    """`mqtt5.read`, compiled code."""
    interpreted: float
    """The same by Overlane's decoder of MQTT 3.1.1, which is Python as all that is compared with it."""
    publish: float
    """`OverlayBroker.publish`."""
    flush: float
    """The end of the turn: making the parcel, and queueing it for its route."""
    pack: float
    """Of it, making the parcel's bytes."""
    pull: float
    unpack: float
    """From the frame to the messages."""
    receive: float
    """The whole of `OverlayBroker.receive` and `flush` at the far end, down to what is delivered."""
    transit: float
    """`OverlayBroker.receive`, `flush` and `pull` in between."""
    transit_alone: float
    """The same for a parcel of one message."""

    @property
    def packing(self) -> float:
        """Into a parcel and out of it again."""
        return (self.publish + self.pack + self.unpack) / self.read

    @property
    def with_flush(self) -> float:
        """The same with all that the source does at the end of the turn, routing and queueing included."""
        return (self.publish + self.flush + self.unpack) / self.read

    @property
    def codec(self) -> float:
        return (self.pack + self.unpack) / self.read

    @property
    def packing_interpreted(self) -> float:
        """`packing`, independent of how much faster the processor runs compiled code."""
        return (self.publish + self.pack + self.unpack) / self.interpreted

    @property
    def codec_interpreted(self) -> float:
        return (self.pack + self.unpack) / self.interpreted

    @property
    def end_to_end(self) -> float:
        """All that two brokers do for it, routing and queueing included."""
        return (self.publish + self.flush + self.pull + self.receive) / self.read

    @property
    def transit_gain(self) -> float:
        return self.transit_alone / self.transit


def measure(qos: Topic, rounds: int) -> list[Costs]:
    row = Row(qos)
    return [_round(row) for _ in range(rounds)]


def typical(costs: list[Costs], figure: Callable[[Costs], float]) -> float:
    return median(map(figure, costs))


def _round(row: Row) -> Costs:
    """Interleaved turn by turn."""
    publish = mqtt5.PublishPacket(TOPIC, BODY)
    packets = [publish.write() for _ in range(MESSAGES)]
    packets_311 = [codec311.write(publish) for _ in range(MESSAGES)]
    times: dict[str, list[float]] = {}

    def note(name: str, since: int, messages: int) -> None:
        times.setdefault(name, []).append((perf_counter_ns() - since) / messages)

    for _ in range(TURNS):
        buffers = [memoryview(packet) for packet in packets]
        start = perf_counter_ns()
        for buffer in buffers:
            mqtt5.read(buffer)
        note("read", start, MESSAGES)
        start = perf_counter_ns()
        for packet in packets_311:
            codec311.read(packet)
        note("interpreted", start, MESSAGES)
        _turn(row, note)
        data, now = row.parcel(1)
        start = perf_counter_ns()
        chunks = _pass(row, data, now)
        note("transit_alone", start, 1)
        for lane, data in chunks:
            row.brokers["c"].receive("b", data, now, lane)
    return Costs(**{name: median(values) for name, values in times.items()})


def _turn(row: Row, note: Callable[[str, int, int], None]) -> None:
    """64 messages from a through b to c."""
    a, c = row.brokers["a"], row.brokers["c"]
    row.settle()
    now = row.tick()
    start = perf_counter_ns()
    publish = a.publish
    for _ in range(MESSAGES):
        publish(TOPIC, BODY, now)
    note("publish", start, MESSAGES)
    start = perf_counter_ns()
    a.flush(now)
    a.durable(0, now)
    note("flush", start, MESSAGES)
    draft: list[Message] = [(TOPIC, 0, BODY)] * MESSAGES
    start = perf_counter_ns()
    _pack(draft)
    note("pack", start, MESSAGES)
    start = perf_counter_ns()
    chunks = a.pull("b", ROOM, now)
    note("pull", start, MESSAGES)
    data = row.pick(chunks, "a", "b", now)
    start = perf_counter_ns()
    chunks = _pass(row, data, now)
    note("transit", start, MESSAGES)
    data = row.pick(chunks, "b", "c", now)
    start = perf_counter_ns()
    messages = _unpack(data)
    note("unpack", start, MESSAGES)
    start = perf_counter_ns()
    effects = c.receive("b", data, now, Lane.DATA)
    effects += c.flush(now)
    effects += c.durable(0, now)
    note("receive", start, MESSAGES)
    if messages != MESSAGES or not effects:
        raise AssertionError("the messages did not arrive")


def _pass(row: Row, data: bytes, now: Nanos) -> list[Chunk]:
    b = row.brokers["b"]
    b.receive("a", data, now, Lane.DATA)
    b.flush(now)
    b.durable(0, now)
    return b.pull("c", ROOM, now)


def _pack(draft: list[Message]) -> bytes:
    return pack_flow(PART, PART.incarnation) + pack_messages(next(cut(draft)))


def _unpack(data: bytes) -> int:
    frames, _ = split(data)
    for kind, body in frames:
        if kind == FrameType.PARCEL:
            header, rest = read_parcel(body, NO_ROUTE)
            return len(unpack(bytes(rest), header.incarnation, header.messages)[1])
    return 0
