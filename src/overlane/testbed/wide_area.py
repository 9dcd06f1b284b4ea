"""A wide area on one machine: sites in network namespaces, joined by paths that delay, jitter, lose, pace and queue
packets, so that TCP and UDP behave as over a real network.

    with WideArea(["a", "b"], {("a", "b"): Conditions(latency_ns=20 * MS, loss=0.01)}) as area:
        server = area.start("a", ["mosquitto", "-c", conf], log=Path("a.log"))
        area.start("b", ["mosquitto_pub", "-h", area.address("a"), ...])
        area.change("a", "b", latency_ns=80 * MS)
        area.change("a", "b", is_cut=True, one_way=True)     # from a to b only
        area.restore("a", "b")                               # initial conditions
        print(area.carried()["a", "b"].bytes)

A path applies to both directions unless the other direction is given too. Sites without a path cannot reach each other,
or do so over other sites with `detours`. A site may have several uplinks, each with an address. A site behind NAT
accepts no connections from outside.

Requires root. Everything is removed at the end: processes, devices, namespaces. If this process is killed, its emulator
removes them; if both are killed, the next wide area does.
"""

import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec
from msgspec import structs

from overlane.core.units import Nanos
from overlane.errors import Unavailable
from overlane.testbed import namespaces, tun
from overlane.testbed.direction import Carried, Conditions
from overlane.testbed.emulator_protocol import Answer, Begin, Change, HowMuch, Plugged, Question
from overlane.testbed.switch import Plug, SwitchConfig

__all__ = ["Carried", "Conditions", "Site", "Uplink", "WideArea", "why_not"]

SITES_MAX = 250
UPLINKS_MAX = 8
GRACE_S = 3.0
"""How long processes of a site may take to end before they are killed."""
ANSWER_S = 30.0
TUN_QUEUE_PACKETS = 10_000
"""What a device holds for the emulator: much, so that what is dropped is dropped by the paths alone."""

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Uplink:
    """How a site is connected. Conditions of its own hold for all traffic that leaves or enters through it."""

    name: str = ""
    out: Conditions | None = None
    into: Conditions | None = None


@dataclass(frozen=True, slots=True)
class Site:
    name: str
    uplinks: tuple[Uplink, ...] = (Uplink(),)
    is_behind_nat: bool = False


def why_not() -> str | None:
    """Why no wide area can be made here; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not tun.DEVICE.exists():
        return f"there is no {tun.DEVICE}"
    name = namespaces.name_of(os.getpid(), next(_numbers), "trial")
    try:
        namespaces.make(name)
        try:
            os.close(tun.open_tun(namespaces.path_of(name), "wan0"))
        finally:
            namespaces.remove([name])
    except Unavailable as reason:
        return str(reason)
    return None


class WideArea:
    """`sites`: names, or `Site` values for sites with uplinks or NAT."""

    def __init__(
        self,
        sites: Sequence[str | Site],
        paths: Mapping[tuple[str, str], Conditions],
        *,
        detours: bool = False,
        seed: int = 0,
        is_urgent: bool = True,
    ) -> None:
        self._sites = [site if isinstance(site, Site) else Site(site) for site in sites]
        if len(self._sites) > SITES_MAX or any(len(site.uplinks) > UPLINKS_MAX for site in self._sites):
            raise ValueError(f"at most {SITES_MAX} sites with {UPLINKS_MAX} uplinks each")
        self._at_first = _both_ways(paths)
        self._now = dict(self._at_first)
        self._detours = detours
        self._seed = seed
        self._is_urgent = is_urgent
        self._number = next(_numbers)
        self._plugs = [
            Plug(site=site.name, uplink=uplink.name, address=_address(number, turn), out=uplink.out, into=uplink.into)
            for number, site in enumerate(self._sites)
            for turn, uplink in enumerate(site.uplinks)
        ]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._emulator: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._answers: IO[bytes] | None = None
        self._one_at_a_time = threading.Lock()
        self.runs_in_real_time = False
        """Whether the emulator has the priority it wants."""

    # Life

    def __enter__(self) -> "WideArea":
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Unavailable if it cannot be made."""
        if os.geteuid() != 0:
            raise Unavailable("a wide area", "network namespaces need root")
        namespaces.remove_leftovers()
        try:
            for site in self._sites:
                namespaces.make(self.namespace(site.name))
            self._start_emulator()
            for site in self._sites:
                self._configure(site)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes of all sites and remove everything. It may be called twice."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
            if process.poll() is None:
                process.kill()
                process.wait()
        self._processes.clear()
        if self._answers is not None:
            self._answers.close()
        if self._control is not None:
            self._control.close()
        if self._emulator is not None:
            try:
                self._emulator.wait(namespaces.END_S + GRACE_S)
            except subprocess.TimeoutExpired:
                self._emulator.kill()
                self._emulator.wait()
        self._control = self._answers = self._emulator = None
        namespaces.remove(namespaces.owned_by(os.getpid(), self._number))

    def _start_emulator(self) -> None:
        self._control, theirs = socket.socketpair()
        self._answers = self._control.makefile("rb")
        self._control.settimeout(ANSWER_S)
        with theirs:
            self._emulator = subprocess.Popen(
                [sys.executable, "-m", "overlane.testbed.emulator"], stdin=theirs.fileno(), start_new_session=True
            )
        plan = SwitchConfig(
            plugs=tuple(self._plugs),
            paths=tuple((one, other, conditions) for (one, other), conditions in self._at_first.items()),
            behind_nat=tuple(site.name for site in self._sites if site.is_behind_nat),
            detours=self._detours,
            seed=self._seed,
        )
        devices = tuple(_device(turn) for site in self._sites for turn in range(len(site.uplinks)))
        homes = tuple(self.namespace(plug.site) for plug in self._plugs)
        self.runs_in_real_time = self._ask(Begin(plan, homes, devices, self._is_urgent)).is_urgent

    def _configure(self, site: Site) -> None:
        commands = ["link set lo up"]
        for turn, address in enumerate(self.addresses(site.name)):
            device, table = _device(turn), 101 + turn
            commands += [
                f"link set {device} txqueuelen {TUN_QUEUE_PACKETS}",
                f"addr add {address}/32 dev {device}",
                f"link set {device} up",
                # Without a carrier a route does not count, so the next uplink takes over; and what answers under one
                # uplink's address leaves through that one.
                f"route add default dev {device} src {address} metric {table}",
                f"route add default dev {device} src {address} table {table}",
                f"rule add from {address} table {table}",
            ]
        namespaces.ip(["-n", self.namespace(site.name)], commands)
        with self.inside(site.name):
            _write_setting("net/ipv4/conf/all/ignore_routes_with_linkdown", "1")
            _write_setting("net/ipv4/conf/all/rp_filter", "0")

    # SiteEnvironment

    def namespace(self, site: str) -> str:
        """Its name, for `ip netns exec`."""
        return namespaces.name_of(os.getpid(), self._number, site)

    def address(self, site: str, uplink: str | None = None) -> str:
        """Of its first uplink, or of the one named."""
        return next(plug.address for plug in self._plugs if plug.site == site and uplink in (None, plug.uplink))

    def addresses(self, site: str) -> list[str]:
        """One for each uplink."""
        return [plug.address for plug in self._plugs if plug.site == site]

    def start(
        self,
        site: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        log: Path | int | None = None,
        *,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Run a command at a site; its output goes to the end of the file `log`. It ends with the wide area."""
        command = self.command(site, argv)
        with _output(log) as output:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=output if stdout is None else stdout,
                stderr=output,
                env=env,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def command(self, site: str, argv: Sequence[str]) -> list[str]:
        """What to execute to run `argv` at a site; the process is that of `argv` itself."""
        return ["nsenter", f"--net={namespaces.path_of(self.namespace(site))}", "--", *argv]

    @contextmanager
    def inside(self, site: str) -> Iterator[None]:
        """This thread is at the site meanwhile: a socket made now stays there. Nothing may be awaited in between."""
        with tun.inside(namespaces.path_of(self.namespace(site))):
            yield

    # Paths

    def conditions(self, one: str, other: str) -> Conditions:
        """Of the direction from one to the other, as it is now."""
        return self._now[one, other]

    def change(
        self,
        one: str,
        other: str,
        *,
        latency_ns: Nanos | None = None,
        jitter_ns: Nanos | None = None,
        loss: float | None = None,
        rate_bps: int | None = None,
        queue_bytes: int | None = None,
        is_cut: bool | None = None,
        one_way: bool = False,
    ) -> None:
        """Change what is named, of both directions or of the one from `one` to `other`."""
        named = {
            "latency_ns": latency_ns,
            "jitter_ns": jitter_ns,
            "loss": loss,
            "rate_bps": rate_bps,
            "queue_bytes": queue_bytes,
            "is_cut": is_cut,
        }
        changed = {name: value for name, value in named.items() if value is not None}
        for pair in self._directions(one, other, one_way):
            self._set(pair, structs.replace(self._now[pair], **changed))

    def restore(self, one: str, other: str, *, one_way: bool = False) -> None:
        """As in the beginning."""
        for pair in self._directions(one, other, one_way):
            self._set(pair, self._at_first[pair])

    def unplug(self, site: str, uplink: str) -> None:
        """An uplink has no carrier any more: its site notices, and nothing passes."""
        self._ask(Plugged(self._plug(site, uplink), False))

    def plug_in(self, site: str, uplink: str) -> None:
        self._ask(Plugged(self._plug(site, uplink), True))

    def carried(self) -> dict[tuple[str, str], Carried]:
        """Per direction, what it has done so far."""
        return {(one, other): carried for one, other, carried in self._ask(HowMuch()).carried}

    def refused(self) -> int:
        """Number of packets without a route, or rejected by NAT."""
        return self._ask(HowMuch()).refused

    def emulator_cpu_s(self) -> float:
        """How much of a processor the emulator has used so far."""
        if self._emulator is None:
            return 0.0
        fields = Path(f"/proc/{self._emulator.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _directions(self, one: str, other: str, one_way: bool) -> list[tuple[str, str]]:
        pairs = [(one, other)] if one_way else [(one, other), (other, one)]
        found = [pair for pair in pairs if pair in self._now]
        if not found:
            raise ValueError(f"no path from {one} to {other}")
        return found

    def _set(self, pair: tuple[str, str], conditions: Conditions) -> None:
        self._ask(Change(*pair, conditions))
        self._now[pair] = conditions

    def _plug(self, site: str, uplink: str) -> int:
        return next(number for number, plug in enumerate(self._plugs) if (plug.site, plug.uplink) == (site, uplink))

    def _ask(self, question: Question) -> Answer:
        with self._one_at_a_time:
            if self._control is None or self._answers is None:
                raise Unavailable("the wide area", "it is not open")
            try:
                self._control.sendall(msgspec.json.encode(question) + b"\n")
                line = self._answers.readline()
            except OSError as error:
                raise Unavailable("the emulator", error.strerror or str(error)) from None
            if not line:
                raise Unavailable("the emulator", "it has ended")
            answer = msgspec.json.decode(line, type=Answer)
            if answer.fault is not None:
                raise Unavailable("the emulator", answer.fault)
            return answer


def _both_ways(paths: Mapping[tuple[str, str], Conditions]) -> dict[tuple[str, str], Conditions]:
    found = dict(paths)
    for (one, other), conditions in paths.items():
        found.setdefault((other, one), conditions)
    return found


def _address(site: int, turn: int) -> str:
    return f"10.77.{turn}.{site + 1}"


def _device(turn: int) -> str:
    return f"wan{turn}"


@contextmanager
def _output(log: Path | int | None) -> Iterator[int | IO[bytes]]:
    if isinstance(log, Path):
        with log.open("ab") as file:
            yield file
    else:
        yield subprocess.DEVNULL if log is None else log


def _write_setting(name: str, value: str) -> None:
    """A setting that a kernel does not have changes nothing for the sites."""
    with suppress(OSError):
        Path("/proc/sys", name).write_text(value)
