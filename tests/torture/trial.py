"""One seed: five brokers, persistent sessions at all of them, faults for a while, then peace, then the verdict."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from checker import Disturbance, Lane, Sample, Verdict, dishonest, judge, missing
from cluster import CITIES, LINKS, Cluster, Ward
from faithful import packet, text
from nemesis import WEIGHTS, Fault, plan
from sessions import Persistent, Publisher, Subscriber

SETTLE_WITHIN_S = 120.0
"""After the last fault: all is acknowledged and delivered."""
BEGUN_WITHIN_S = 180.0
"""Five brokers start at once, on a machine that may do much else."""
AFTERWARDS_S = 1.0
"""What is delivered twice may come a little later."""
PROBE_EVERY_S = 1.0
PROBE_WITHIN_S = 10.0
MEMORY_BYTES_MAX = 600 << 20
KINDS = (("plain", True, False), ("timed", True, True), ("hasty", False, True))
"""Of topics, whether they promise order, and whether they have a deadline."""


@dataclass(frozen=True)
class Settings:
    seconds: float = 60.0
    rate: float = 4.0
    """Messages a second of each publisher on each of its topics."""
    settle_s: float = SETTLE_WITHIN_S
    sabotage: dict[str, str] = field(default_factory=dict)
    """What is wrong with brokers, by name: to see whether it is found."""
    kinds: tuple[str, ...] = tuple(WEIGHTS)
    """Of faults."""


@dataclass
class Outcome:
    seed: int
    verdict: Verdict
    faults: dict[str, int]
    violations: dict[str, list[str]]
    samples: int
    peak_bytes: int
    settled_s: float
    told: list[str]
    outcomes: dict[str, int]
    """How connections and messages were refused and ended."""
    counted: dict[str, int]
    """Messages that brokers count as lost, by cause, each since it was started last."""

    @property
    def is_clean(self) -> bool:
        return not self.violations


class Trial:
    def __init__(self, directory: Path, seed: int, settings: Settings, say: Callable[[str], None]) -> None:
        self._luck = Random(f"trial {seed}")
        self._seed = seed
        self._settings = settings
        self._say = say
        self.cluster = Cluster(directory, settings.sabotage, tuple(self._luck.sample(CITIES, 2)))
        self._since_s = time.monotonic()
        self.publishers = [self._publisher(ward) for ward in self.cluster.wards.values()]
        self.readers = [self._reader(ward, 2, "main") for ward in self.cluster.wards.values()]
        self.readers += [self._reader(self.cluster.wards[name], 1, "once") for name in self._luck.sample(CITIES, 2)]
        self.samples: list[Sample] = []
        self.wrong: list[str] = []
        self._faults: list[Fault] = []
        self._counted: Counter[str] = Counter()

    def _publisher(self, ward: Ward) -> Publisher:
        name = f"writer-{ward.name}"
        lanes = [
            Lane(name, f"{kind}/{ward.name}/{qos}", qos, is_ordered, has_deadline)
            for kind, is_ordered, has_deadline in KINDS
            for qos in (0, 1, 2)
        ]
        return Publisher(ward.mqtt_port, name, self._luck.choice((4, 5)), lanes, self._settings.rate)

    def _reader(self, ward: Ward, qos: int, role: str) -> Subscriber:
        version = self._luck.choice((4, 5))
        return Subscriber(ward.mqtt_port, f"{role}-{ward.name}", version, qos)

    @property
    def lanes(self) -> list[Lane]:
        return [lane for publisher in self.publishers for lane in publisher.lanes]

    @property
    def missing(self) -> int:
        return missing(self.lanes, [one.history for one in self.readers])

    def _now_s(self) -> float:
        return time.monotonic() - self._since_s

    async def run(self) -> Outcome:
        cluster = self.cluster
        try:
            cluster.start()
            return await self._run()
        finally:
            cluster.end()

    async def _run(self) -> Outcome:
        await self._until(lambda: self.cluster.is_linked, "linked")
        tasks = [asyncio.create_task(one.stay()) for one in (*self.readers, *self.publishers)]
        tasks.append(asyncio.create_task(self._watch()))
        try:
            await self._until(lambda: all(one.is_subscribed for one in self.readers), "subscribed")
            await self._reached()
            self._since_s = time.monotonic()
            for client in (*self.readers, *self.publishers):
                client.since_s = self._since_s
            publishing = [asyncio.create_task(one.publish()) for one in self.publishers]
            tasks += [asyncio.create_task(self._probe(ward)) for ward in self.cluster.wards.values()]
            await self._suffer()
            for publisher in self.publishers:
                publisher.is_stopped = True
            await asyncio.gather(*publishing)
            settled_s = await self._settle()
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._outcome(settled_s)

    async def _reached(self) -> None:
        """Every reader is reached from everywhere: what is published from now on concerns all."""
        until_s = time.monotonic() + BEGUN_WITHIN_S
        while not all(one.reached_from == set(CITIES) for one in self.readers):
            if time.monotonic() > until_s:
                raise AssertionError("not every reader is reached from every broker")
            for publisher, city in zip(self.publishers, CITIES, strict=True):
                publisher.say(f"begin/{city}/0")
            await asyncio.sleep(0.2)

    async def _suffer(self) -> None:
        settings = self._settings
        readers = {one.client: one for one in self.readers}
        kinds = tuple(kind for kind in self.cluster.kinds if kind in settings.kinds)
        if kinds:
            self._faults = plan(self._seed, settings.seconds, list(CITIES), list(LINKS), list(readers), kinds)
        async with asyncio.TaskGroup() as group:
            for fault in self._faults:
                await asyncio.sleep(max(0.0, fault.at_s - self._now_s()))
                self._say(str(fault))
                if fault.kind == "away":
                    group.create_task(self._away(readers[fault.target], fault.for_s))
                else:
                    group.create_task(self.cluster.carry_out(fault, self._now_s))
            await asyncio.sleep(max(0.0, settings.seconds - self._now_s()))

    async def _away(self, reader: Persistent, for_s: float) -> None:
        reader.leave(politely=self._luck.random() < 0.5)
        await asyncio.sleep(for_s)
        reader.is_away = False

    async def _settle(self) -> float:
        """How long it took until nothing was missing."""
        since_s = self._now_s()
        self.cluster.disturbances += [Disturbance(name, since_s, since_s, "healing") for name in CITIES]
        await self.cluster.heal()
        until_s = since_s + self._settings.settle_s
        while self._now_s() < until_s:
            if all(one.is_settled for one in self.publishers) and not self.missing:
                break
            await asyncio.sleep(0.1)
        settled_s = self._now_s() - since_s
        self.wrong += [one.unsettled for one in self.publishers if not one.is_settled]
        await asyncio.sleep(AFTERWARDS_S)
        for ward in self.cluster.wards.values():
            sample = await self._sample(ward, "last")
            if not (sample.was_ready and sample.is_served and sample.is_ready):
                self.wrong.append(f"{ward.name} does not serve at the end: {sample}")
            else:
                self._counted.update(await asyncio.get_running_loop().run_in_executor(None, ward.losses))
        return settled_s

    # Watching

    async def _watch(self) -> None:
        while True:
            for ward in self.cluster.wards.values():
                ward.watch()
            await asyncio.sleep(0.2)

    async def _probe(self, ward: Ward) -> None:
        while True:
            self.samples.append(await self._sample(ward, "probe"))
            await asyncio.sleep(PROBE_EVERY_S)

    async def _sample(self, ward: Ward, client: str) -> Sample:
        begun_s = self._now_s()
        loop = asyncio.get_running_loop()
        before = await loop.run_in_executor(None, ward.ask_quickly, "/ready")
        detail = await _round_trip(ward, client)
        after = await loop.run_in_executor(None, ward.ask_quickly, "/ready")
        detail = f"/ready {before} and {after}; {detail or 'served'}"
        return Sample(ward.name, begun_s, self._now_s(), before == 200, detail.endswith("served"), after == 200, detail)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        """Before the faults begin."""
        until_s = time.monotonic() + BEGUN_WITHIN_S
        while not holds():
            if time.monotonic() > until_s:
                logs = "\n".join(ward.log.read_text()[-2_000:] for ward in self.cluster.wards.values())
                raise AssertionError(f"not {what} within {BEGUN_WITHIN_S:g} s\n{logs}")
            await asyncio.sleep(0.05)

    # The end

    def _outcome(self, settled_s: float) -> Outcome:
        wards = self.cluster.wards.values()
        verdict = judge(self.lanes, [one.history for one in self.readers])
        peak_bytes = max(ward.peak_bytes for ward in wards)
        clients: list[Persistent] = [*self.publishers, *self.readers]
        found = {
            **verdict.violations,
            "protocol": [wrong for one in clients for wrong in one.wrong],
            "unsettled": self.wrong,
            "dishonest": dishonest(self.samples, self.cluster.disturbances),
            "tracebacks": [defect for ward in wards for defect in ward.defects()],
            "died": [death for ward in wards for death in ward.deaths],
            "memory": [f"{peak_bytes >> 20} MiB"] if peak_bytes > MEMORY_BYTES_MAX else [],
        }
        outcomes: Counter[str] = Counter()
        for one in clients:
            outcomes.update(one.outcomes)
        return Outcome(
            self._seed,
            verdict,
            dict(Counter(fault.kind for fault in self._faults)),
            {kind: what for kind, what in found.items() if what},
            len(self.samples),
            peak_bytes,
            settled_s,
            self.cluster.told,
            dict(outcomes),
            dict(+self._counted),
        )


async def _round_trip(ward: Ward, client: str) -> str:
    """What went wrong with a QoS 1 message of a client to itself, if something did."""
    try:
        async with asyncio.timeout(PROBE_WITHIN_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", ward.mqtt_port)
            try:
                topic = text(f"{client}/{ward.name}")
                writer.write(packet(0x10, text("MQTT") + b"\x04\x02\0\0" + text(f"{client}-{ward.name}")))
                writer.write(packet(0x82, b"\0\1" + topic + b"\1"))
                writer.write(packet(0x32, topic + b"\0\2probe"))
                heard = b""
                wanted = (b"\x20\x02\0\0", b"\x90\x03\0\1\1", b"\x40\x02\0\2", topic)
                while not all(one in heard for one in wanted):
                    data = await reader.read(4_096)
                    if not data:
                        return f"closed after {heard[:40].hex(' ')}"
                    heard += data
            finally:
                writer.close()
    except TimeoutError:
        return f"no round trip within {PROBE_WITHIN_S:g} s"
    except OSError as error:
        return f"{type(error).__name__}"
    return ""
