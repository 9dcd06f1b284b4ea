"""One DDS domain, by Cyclone DDS: discovery of endpoints, readers and writers, all in one thread.

Listeners of Cyclone DDS can deadlock with Python, so the thread waits for conditions. What it finds is given to the
event loop; what it is asked for comes by a queue. Samples are taken and written as the CDR that they are; the functions
for that are private to the package, which is why its version is pinned.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any, cast, get_type_hints

import cyclonedds._clayer as clayer
import msgspec
from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription
from cyclonedds.core import DDSException, GuardCondition, InstanceState, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from overlane.gateways.dds.routes import Endpoint, Route
from overlane.gateways.dds.samples import Sample, SampleKind, crossing_qos
from overlane.gateways.dds.types import build_type, fetch_type

MARK = b"overlane-gateway"
"""User data of endpoints of gateways, which other gateways of the domain ignore."""
ANY = SampleState.Any | ViewState.Any | InstanceState.Any
BEST = [
    Policy.Reliability.Reliable(duration(seconds=1)),
    Policy.Durability.TransientLocal,
    Policy.DestinationOrder.BySourceTimestamp,
    Policy.History.KeepLast(1),
]
"""What matches nearly all readers."""
UNREAD = SampleState.NotRead | ViewState.Any | InstanceState.Any
BATCH = 256
SAME = ("Reliability", "Durability", "Ownership", "DataRepresentation")
"""QoS policies that a reader has to ask for as they are offered."""
WAIT_S = 1.0

log = logging.getLogger("overlane.gateway")


class Events:
    """What the event loop is told."""

    def found(self, key: str, endpoint: Endpoint) -> None:
        raise NotImplementedError

    def lost(self, key: str) -> None:
        raise NotImplementedError

    def samples(self, topic: str, samples: list[Sample]) -> None:
        raise NotImplementedError


class DdsDomain:
    def __init__(self, number: int, loop: asyncio.AbstractEventLoop, events: Events) -> None:
        self._loop = loop
        self._events = events
        self._participant = DomainParticipant(number)
        self._guard = GuardCondition(self._participant)
        self._waits = WaitSet(self._participant)
        self._waits.attach(self._guard)
        self._builtin = [
            (BuiltinDataReader(self._participant, BuiltinTopicDcpsPublication), True),
            (BuiltinDataReader(self._participant, BuiltinTopicDcpsSubscription), False),
        ]
        self._conditions: list[Any] = []
        for reader, _ in self._builtin:
            self._watch(reader)
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._types: dict[str, Any] = {}
        self._told_types: dict[str, bytes] = {}
        """Types that applications of this domain have told, as bytes."""
        self._offered: dict[str, Mapping[str, object]] = {}
        """The QoS of a writer of each topic, in the words of Cyclone DDS."""
        self._topics: dict[str, Any] = {}
        self._readers: dict[str, Any] = {}
        self._writers: dict[Route, Any] = {}
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name="dds", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._is_ended = True
        self._guard.set(True)
        self._thread.join()

    # Asked for by the event loop

    def learn_type(self, topic: str, told: bytes) -> None:
        """From another gateway."""
        self._ask(lambda: self._learn_type(topic, told))

    def open_reader(self, topic: str) -> None:
        self._ask(lambda: self._open_reader(topic))

    def close_reader(self, topic: str) -> None:
        self._ask(lambda: self._close(self._readers.pop(topic, None)))

    def open_writer(self, route: Route, qos: Mapping[str, object]) -> None:
        self._ask(lambda: self._open_writer(route, qos))

    def close_writer(self, route: Route) -> None:
        self._ask(lambda: self._close(self._writers.pop(route, None)))

    def write(self, route: Route, sample: Sample) -> None:
        self._ask(lambda: self._write(route, sample))

    def write_json(self, route: Route, body: bytes, source_ns: int) -> None:
        self._ask(lambda: self._write_json(route, body, source_ns))

    def as_json(self, topic: str, sample: Sample) -> bytes:
        """ValueError if it cannot be read."""
        kind = self._types[topic]
        try:
            return msgspec.json.encode(kind.deserialize(sample.data))
        except Exception as error:  # of samples of anybody
            raise ValueError(f"{topic}: {error}") from None

    def _ask(self, work: Callable[[], None]) -> None:
        self._asked.put(work)
        self._guard.set(True)

    # The thread

    def _run(self) -> None:
        while not self._is_ended:
            try:
                self._waits.wait(duration(seconds=WAIT_S))
                self._guard.set(False)
                while not self._asked.empty():
                    self._asked.get()()
                for reader, is_writer in self._builtin:
                    self._discover(reader, is_writer)
                for topic, reader in list(self._readers.items()):
                    self._take(topic, reader)
            except Exception as error:  # of one endpoint or sample: the others go on
                log.warning("DDS: %s: %s", type(error).__name__, error)

    def _watch(self, reader: Any) -> None:
        condition = ReadCondition(reader, UNREAD)
        self._waits.attach(condition)
        self._conditions.append(condition)

    def _discover(self, reader: Any, is_writer: bool) -> None:
        for found in reader.take(BATCH):
            key = str(found.key)
            if found.sample_info.instance_state != InstanceState.Alive or not found.sample_info.valid_data:
                self._tell(self._events.lost, key)
                continue
            if found.participant_key == self._participant.guid or found.topic_name.startswith("DCPS"):
                continue
            qos = found.qos.asdict()
            if any(getattr(one, "data", None) == MARK for one in found.qos):
                continue
            told_type = self._type_of(found.topic_name, found.type_id)
            if is_writer:
                self._offered[found.topic_name] = qos
            self._tell(
                self._events.found,
                key,
                Endpoint(
                    found.topic_name, found.type_name, is_writer, crossing_qos(qos) if is_writer else {}, told_type
                ),
            )

    def _type_of(self, topic: str, type_id: Any) -> bytes:
        """Empty if its applications do not tell it."""
        if topic not in self._told_types:
            if type_id is None:
                log.warning("DDS: %s has no type information: it waits for a gateway that knows the type", topic)
                return b""
            try:
                told = fetch_type(self._participant, type_id)
                self._types.setdefault(topic, build_type(told))
            except (DDSException, ValueError) as error:
                log.warning("DDS: %s: %s: it waits for a gateway that knows the type", topic, error)
                return b""
            self._told_types[topic] = told
        return self._told_types[topic]

    def _learn_type(self, topic: str, told: bytes) -> None:
        if topic not in self._types:
            self._types[topic] = build_type(told)

    def _take(self, topic: str, reader: Any) -> None:
        taken = clayer.ddspy_take(reader._ref, ANY, BATCH)
        if isinstance(taken, int):
            raise DDSException(taken, f"taking samples of {topic}")
        samples: list[Sample] = []
        last = {info.instance_handle: place for place, (_, info) in enumerate(taken)}
        for place, (data, info) in enumerate(taken):
            if info.valid_data:
                samples.append(Sample(SampleKind.WRITE, bytes(data), info.source_timestamp))
            is_last = last[info.instance_handle] == place
            if info.instance_state == InstanceState.NotAliveDisposed and is_last:
                samples.append(Sample(SampleKind.DISPOSE, bytes(data), info.source_timestamp))
        if samples:
            self._tell(self._events.samples, topic, samples)

    def _open_reader(self, topic: str) -> None:
        same = [one for one in _qos(self._offered[topic]) if one.__scope__ in SAME]
        reader = DataReader(
            self._participant, self._topic(topic), qos=Qos(*same, Policy.History.KeepAll, Policy.Userdata(MARK))
        )
        self._readers[topic] = reader
        self._watch(reader)

    def _open_writer(self, route: Route, qos: Mapping[str, object]) -> None:
        policies = list(_qos(qos)) if qos else BEST
        self._writers[route] = DataWriter(
            self._participant,
            self._topic(route[1]),
            qos=Qos(*policies, Policy.WriterDataLifecycle(autodispose=False), Policy.Userdata(MARK)),
        )

    def _topic(self, name: str) -> Any:
        if name not in self._topics:
            self._topics[name] = Topic(self._participant, name, self._types[name])
        return self._topics[name]

    def _write(self, route: Route, sample: Sample) -> None:
        writer = self._writers.get(route)
        if writer is None:
            return
        write = clayer.ddspy_write_ts if sample.kind is SampleKind.WRITE else clayer.ddspy_dispose_ts
        if status := write(writer._ref, sample.data, sample.source_ns):
            raise DDSException(status, f"writing {route[1]}")

    def _write_json(self, route: Route, body: bytes, source_ns: int) -> None:
        kind = self._types[route[1]]
        sample = _built(kind, msgspec.json.decode(body))
        self._write(route, Sample(SampleKind.WRITE, sample.serialize(), source_ns))

    def _close(self, entity: Any) -> None:
        if entity is None:
            return
        kept = []
        for condition in self._conditions:
            if getattr(condition, "reader", None) is entity:
                self._waits.detach(condition)
            else:
                kept.append(condition)
        self._conditions = kept
        del entity

    def _tell(self, told: Callable[..., None], *values: object) -> None:
        self._loop.call_soon_threadsafe(told, *values)


def _qos(values: Mapping[str, object]) -> Any:
    return Qos.fromdict(deepcopy(dict(values)))  # which takes the dictionary apart


def _built(kind: Any, value: Any) -> Any:
    """A sample of a JSON value; TypeError if it is none."""
    if not is_dataclass(kind) or not isinstance(value, dict):
        return value
    hints, make = get_type_hints(kind), cast("Callable[..., Any]", kind)
    return make(**{one.name: _built(hints[one.name], value[one.name]) for one in fields(kind)})
