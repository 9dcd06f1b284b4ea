"""One run of one system in one scenario: the wide area is made, brokers and the stream are started, and events happen.

    the area -> a broker at each site -> the subscriber -> the publisher -> the first message has arrived
    -> everything settles -> the scenario, by the clock -> the publisher ends, then the subscriber

The subscriber's broker and the publisher's are met over loopback, so what is between them is the wide area alone. What
the paths have carried is read when each phase begins, all of it: messages, acknowledgements, and what brokers say to
one another while nothing is published.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path as File
from select import select
from typing import IO, assert_never

import msgspec
import numpy as np

from _crew import LoadFailed
from _peers import busy_ns
from _wan_judge import Heard, Phase, Stream, stream
from _wan_load import Task
from _wan_peers import BULK, CLIENTS, STREAM, Place, System
from _wan_scenarios import Becomes, Bulk, Event, Kill, Path, PlugIn, Scenario, Unplug
from overlane.testbed.wide_area import Conditions, Site, Uplink, WideArea

REACHED_WITHIN_S = 60.0
SETTLES_S = 6.0
"""Between the first message and the scenario: brokers know their links by then. Where phases are shorter, so is this,
but not below the least."""
SETTLES_LEAST_S = 3.0
ENDS_WITHIN_S = 20.0
STREAM_PORT, POUR_PORT = 9001, 9002
BULK_BYTES = 8192
MS_NS = 1_000_000
PRIORITY = 5
"""Real-time, of brokers and load; that of the emulator is above."""
FIRST_TABLE = 101
"""Of routes in a site: there is one for each uplink."""
USUAL = ("chrt", "--other", "0")
"""A process of Python that starts keeps a core busy for a while: while others are measured, it must not go first."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a run has shown; times are of the monotonic clock."""

    stream: Stream
    phases: list[Phase]
    wire_bytes: list[int]
    """That all paths have carried in each phase."""
    lost_packets: list[int]
    struck: str | None
    """The broker that was killed, or the uplink that was unplugged."""
    began_ns: int


@dataclass(slots=True)
class End:
    """A process of the load."""

    process: "subprocess.Popen[bytes]"
    _rest: bytes = b""

    def await_word(self, word: str, within_s: float) -> dict[str, object]:
        """The first line that has the word in it."""
        patience_ends = time.monotonic() + within_s
        output = _pipe(self.process.stdout)
        while True:
            *lines, self._rest = self._rest.split(b"\n")
            for number, line in enumerate(lines):
                said: dict[str, object] = json.loads(line)
                if "failed" in said:
                    raise LoadFailed(str(said["failed"]))
                if word in said:
                    self._rest = b"\n".join([*lines[number + 1 :], self._rest])
                    return said
            if not select([output], [], [], max(0.0, patience_ends - time.monotonic()))[0]:
                raise LoadFailed(f"no word of {word!r} within {within_s:g} s")
            got = os.read(output.fileno(), 65536)
            if not got:
                raise LoadFailed(f"a process of the load has ended without a word of {word!r}")
            self._rest += got

    def end(self) -> None:
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()


@dataclass(slots=True)
class Trial:
    system: System
    scenario: Scenario
    directory: File
    per_second: float
    payload_bytes: int
    seed: int = 1
    with_real_time: bool = True
    congestion: str = "cubic"
    """How TCP at all sites reacts to the network."""
    watch: bool = False
    """Ask Overlane all the while what it sees."""
    brokers: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    killed: str | None = None
    unplugged: str = ""
    others: list[End] = field(default_factory=list)

    def run(self) -> Found:
        scenario = self.scenario
        paths = {ends: _conditions(path) for ends, path in scenario.paths.items()}
        self.directory.mkdir(parents=True)
        with WideArea(_sites(scenario), paths, seed=self.seed) as area, _real_time(self.with_real_time):
            for site in scenario.sites:
                _control_congestion(area, site, self.congestion)
            self._start_brokers(area)
            hearing, publishing, started = self._start_stream(area)
            phase_s = min(span.to_s - span.from_s for span in scenario.spans)
            time.sleep(max(SETTLES_LEAST_S, min(SETTLES_S, phase_s)))
            if self.watch:
                self._watch(area)
            found = self._play(area)
            publishing.end()
            sent = publishing.await_word("sent", ENDS_WITHIN_S)["sent"]
            hearing.end()
            hearing.await_word("count", ENDS_WITHIN_S)
        began_ns, phases, wire_bytes, lost = found
        due_ns = np.arange(_int(sent), dtype=np.int64) * _int(started["interval_ns"]) + _int(started["start_ns"])
        np.save(self.directory / "due_ns.npy", due_ns)
        with np.load(self.directory / "heard.npz") as arrays:
            heard = Heard(arrays["numbers"], arrays["arrived_ns"])
        judged = stream(due_ns, heard, round(scenario.deadline_ms * MS_NS))
        return Found(judged, phases, wire_bytes, lost, self.killed or self.unplugged or None, began_ns)

    # Starting

    def _start_brokers(self, area: WideArea) -> None:
        place = Place(self.scenario, {site: area.addresses(site) for site in self.scenario.sites}, self.directory)
        for site in self.scenario.sites:
            place.of(site).mkdir()
            command = self.system.broker(place, site)
            if command is not None:
                environment = {**os.environ, **command.environment}
                log = place.of(site) / "log"
                self.brokers[site] = area.start(site, command.words, environment, log)

    def _start_stream(self, area: WideArea) -> tuple[End, End, Mapping[str, object]]:
        """Whoever hears, whoever publishes, and since when; the first message has arrived."""
        is_bare = self.system.wire in ("tcp", "udp")
        common = {
            "wire": self.system.wire,
            "port": STREAM_PORT if is_bare else CLIENTS,
            "host": area.address(self.scenario.destination) if is_bare else "127.0.0.1",
            "topic": STREAM,
            "payload_bytes": self.payload_bytes,
            "per_second": self.per_second,
            "real_time": PRIORITY if self.with_real_time else 0,
        }
        heard = {**common, "role": "hear", "result": str(self.directory / "heard.npz")}
        hearing = self._load(area, self.scenario.destination, heard)
        hearing.await_word("listening" if is_bare else "subscribed", REACHED_WITHIN_S)
        publishing = self._load(area, self.scenario.source, {**common, "role": "publish"})
        started = publishing.await_word("start_ns", REACHED_WITHIN_S)
        hearing.await_word("reached", REACHED_WITHIN_S)
        return hearing, publishing, started

    def _load(self, area: WideArea, site: str, task: Mapping[str, object]) -> End:
        words = [*USUAL, sys.executable, str(File(__file__).with_name("_wan_load.py"))]
        words.append(msgspec.json.encode(msgspec.convert(task, Task)).decode())
        log = self.directory / f"{task['role']}.log"
        return End(area.start(site, words, log=log, stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def _watch(self, area: WideArea) -> None:
        words = [*USUAL, sys.executable, str(File(__file__).with_name("_wan_watch.py"))]
        area.start(self.scenario.source, [*words, str(self.directory / "watched.jsonl")])

    # The scenario

    def _play(self, area: WideArea) -> tuple[int, list[Phase], list[int], list[int]]:
        began_ns = time.monotonic_ns() + 100 * MS_NS
        spans = self.scenario.spans
        moments = sorted({moment for span in spans for moment in (span.from_s, span.to_s)})
        due: list[tuple[float, Event | str]] = [(moment, "count") for moment in moments]
        for event in self.scenario.events:
            due.append((event.at_s, event))
            if isinstance(event, Bulk):
                due.append((event.until_s, "no more bulk"))
        counts = dict[float, tuple[int, int]]()
        busy_before = {site: _busy_ns(broker.pid) for site, broker in self.brokers.items()}
        for at_s, what in sorted(due, key=lambda one: one[0]):
            time.sleep(max(0.0, began_ns / 1e9 + at_s - time.monotonic()))
            match what:
                case "count":
                    carried = area.carried().values()
                    counts[at_s] = sum(one.bytes for one in carried), sum(one.lost for one in carried)
                case "no more bulk":
                    for other in self.others:
                        other.end()
                case str():
                    raise ValueError(what)
                case Becomes(_, ends, path):
                    _become(area, *ends, path)
                case Kill(_, among):
                    self._kill(among, busy_before)
                case Bulk(_, _, rate_bps):
                    self._start_bulk(area, rate_bps)
                case Unplug(_, site):
                    self.unplugged = _busiest(area, site, self.scenario)
                    area.unplug(site, self.unplugged)
                case PlugIn(_, site):
                    area.plug_in(site, self.unplugged)
                case _:
                    assert_never(what)
        phases = [
            Phase(span.name, began_ns + round(span.from_s * 1e9), began_ns + round(span.to_s * 1e9)) for span in spans
        ]
        steps = [(counts[span.from_s], counts[span.to_s]) for span in spans]
        wire_bytes, lost = ([after[what] - before[what] for before, after in steps] for what in (0, 1))
        return began_ns, phases, wire_bytes, lost

    def _kill(self, among: Sequence[str], busy_before: Mapping[str, int]) -> None:
        names = [site for site in self.brokers if site in among]
        if names:
            self.killed = max(names, key=lambda site: _busy_ns(self.brokers[site].pid) - busy_before[site])
            os.killpg(self.brokers[self.killed].pid, signal.SIGKILL)

    def _start_bulk(self, area: WideArea, rate_bps: int | None) -> None:
        source, destination = self.scenario.source, self.scenario.destination
        if rate_bps is None:
            address: dict[str, object] = {"host": area.address(destination), "port": POUR_PORT}
            self.others = [
                self._load(area, destination, {**address, "role": "drain"}),
                self._load(area, source, {**address, "role": "pour"}),
            ]
        elif self.system.bulk_wire:
            common: dict[str, object] = {
                "wire": self.system.bulk_wire,
                "port": CLIENTS,
                "topic": BULK,
                "payload_bytes": BULK_BYTES,
                "per_second": rate_bps / 8 / BULK_BYTES,
                "is_urgent": False,
                "real_time": PRIORITY if self.with_real_time else 0,
                "result": str(self.directory / "bulk.npz"),
            }
            self.others = [
                self._load(area, destination, {**common, "role": "hear"}),
                self._load(area, source, {**common, "role": "publish"}),
            ]


def _busy_ns(group: int) -> int:
    """Of all processes of a group: a broker may be several."""
    busy = 0
    for process in File("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(process.name)) == group:
                busy += busy_ns(int(process.name))
    return busy


def _busiest(area: WideArea, site: str, scenario: Scenario) -> str:
    """Of the uplinks of a site."""
    shown = subprocess.run(
        ["ip", "-n", area.namespace(site), "-s", "-j", "link"], capture_output=True, text=True, check=True
    )
    carried = {one["ifname"]: one["stats64"]["rx"]["bytes"] for one in json.loads(shown.stdout)}
    uplinks = [one.name for one in scenario.uplinks[site]]
    return max(uplinks, key=lambda name: carried[f"wan{uplinks.index(name)}"])


def _sites(scenario: Scenario) -> list[Site]:
    found = []
    for name in scenario.sites:
        uplinks = []
        for one in scenario.uplinks.get(name, ()):
            added = Conditions(latency_ns=round(one.latency_ms * MS_NS)) if one.latency_ms else None
            uplinks.append(Uplink(one.name, added, added))
        found.append(Site(name, tuple(uplinks) or (Uplink(),)))
    return found


def _conditions(path: Path) -> Conditions:
    return Conditions(
        latency_ns=round(path.latency_ms * MS_NS),
        loss=path.loss,
        rate_bps=path.rate_bps,
        is_cut=path.is_cut,
        **({} if path.queue_bytes is None else {"queue_bytes": path.queue_bytes}),
    )


def _become(area: WideArea, one: str, other: str, path: Path) -> None:
    conditions = _conditions(path)
    area.change(one, other, latency_ns=conditions.latency_ns, loss=conditions.loss, is_cut=conditions.is_cut)


def _control_congestion(area: WideArea, site: str, algorithm: str) -> None:
    """By its routes: the setting of a namespace takes only what the whole system allows."""
    ip = ["ip", "-n", area.namespace(site), "route"]
    for table in ("main", *(str(FIRST_TABLE + turn) for turn, _ in enumerate(area.addresses(site)))):
        shown = subprocess.run([*ip, "show", "default", "table", table], capture_output=True, text=True, check=True)
        for route in shown.stdout.splitlines():
            subprocess.run([*ip, "change", *route.split(), "table", table, "congctl", algorithm], check=True)


@contextmanager
def _real_time(wanted: bool) -> Iterator[None]:
    """For this process and those it starts meanwhile; below the emulator's."""
    before, usual = os.sched_getscheduler(0), os.sched_getparam(0)
    if wanted:
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, usual)


def _pipe(found: IO[bytes] | None) -> IO[bytes]:
    if found is None:
        raise ValueError("a process of the load has no pipe")
    return found


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is no number")
    return value
