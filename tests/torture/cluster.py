"""Five brokers as real processes, and what can be done to them."""

import asyncio
import http.client
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from checker import Disturbance
from injecting import Injector, build
from nemesis import Fault
from stage import TRACES

from overlane.adminapi.views import OVERLAY_LOSSES
from overlays import Member

CITIES = ("seattle", "losangeles", "denver", "washington", "orlando")
LINKS = {
    "seattle-denver": 7,
    "seattle-losangeles": 6,
    "losangeles-denver": 5,
    "losangeles-orlando": 12,
    "losangeles-washington": 14,
    "denver-washington": 10,
    "denver-orlando": 10,
    "orlando-washington": 5,
}
"""Latency in ms."""
TABLES = """
[limits]
queue_messages = 1000000
queue = "1GiB"
connections_per_second = 100000

[topics."timed/#"]
deadline = "150ms"

[topics."hasty/#"]
deadline = "150ms"
order = "deadline"
"""
"""Whoever comes back late must not find its queue full: only what is forgotten is counted."""
DISK_BYTES = 96 << 20
"""Of a small disk: room for the reserve, and for some records."""
START_WITHIN_S = 120.0
ASK_WITHIN_S = 10.0
ERROR = re.compile(r"[\w.]+(Error|Exception|Violation|error)\b")


class Ward(Member):
    """A broker whose environment is ours, perhaps on a small disk of its own."""

    def __init__(self, file: Path, name: str, directory: Path, sabotage: str) -> None:
        super().__init__(file, name, directory, ("--chaos",))
        self.data = directory / name
        self.data.mkdir()
        self.injector: Injector | None = None
        self.has_disk = False
        self.is_wanted = False
        self.is_paused = False
        self.is_disk_failing = False
        self.has_met_failing_disk = False
        """Since it was started last."""
        self.deaths: list[str] = []
        """That nobody caused."""
        self._log_bytes = 0
        """When it was started last."""
        self.peak_bytes = 0
        self._sabotage = sabotage

    @property
    def mqtt_port(self) -> int:
        return int(self.mqtt.rpartition(":")[2])

    def mount(self) -> None:
        """A small disk; it is gone with the mount namespace of this process."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", self.data], check=True)
        self.has_disk = True

    def start(self) -> None:
        program = ["-m", "overlane"]
        if self._sabotage:
            program = [str(Path(__file__).with_name("sabotage.py")), self._sabotage]
        command = [sys.executable, *program, "broker", str(self._file), "--name", self.name]
        environment = {**os.environ, **(self.injector.environment if self.injector else {})}
        with self.log.open("ab") as log:
            self._log_bytes = log.tell()
            self.has_met_failing_disk = self.is_disk_failing
            self._process = subprocess.Popen(
                [*command, "--data", str(self.data), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        self.is_wanted = True

    def watch(self) -> None:
        """Note what it takes, and whether it has died by itself; then it is started again, as a supervisor would."""
        process = self._process
        if process is None or not self.is_wanted:
            return
        status = process.poll()
        if status is not None:
            # Without a disk it does not start, and says so; whoever started it tries again.
            if not (status == 1 and self.has_met_failing_disk and not self._was_ready):
                self.deaths.append(f"{self.name} ended by itself with status {status}")
            self.start()
            return
        with suppress(OSError):
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            self.peak_bytes = max(self.peak_bytes, pages * resource.getpagesize())

    @property
    def _was_ready(self) -> bool:
        """Since it was started last."""
        with self.log.open("rb") as log:
            log.seek(self._log_bytes)
            return b"ready  " in log.read()

    def kill(self) -> None:
        self.is_wanted = self.is_paused = False
        super().kill()

    def pause(self, is_paused: bool) -> None:
        if self.is_running and self.is_paused != is_paused:
            os.kill(self.process_id, signal.SIGSTOP if is_paused else signal.SIGCONT)
            self.is_paused = is_paused

    def fill(self) -> None:
        """As another program would that fills the disk, also with what the broker gives up."""
        ballast = self.data / "ballast"
        with suppress(OSError), ballast.open("ab") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()

    def defects(self) -> list[str]:
        """Lines of the log that tell of a defect, each with the last line of its traceback."""
        lines = self.log.read_text(errors="replace").splitlines()
        found = []
        for place, line in enumerate(lines):
            if re.search(TRACES, line):
                # A traceback that was logged is one line; one that went to standard error has many.
                frames = line.split("\\n") if "\\n" in line else [one.strip() for one in lines[place : place + 60]]
                errors = [one for one in frames if ERROR.match(one)]
                found.append(f"{self.name}: {(errors or [line])[0][:200]}")
        return found

    def losses(self) -> dict[str, int]:
        """Messages that it counts as lost, by cause."""
        status = self.ask("/status")
        assert isinstance(status, dict)
        found: dict[str, int] = {name: status["overlay"][name] for name in OVERLAY_LOSSES}
        found.update(status["dropped"])
        return found

    def ask_quickly(self, path: str, method: str = "GET") -> int:
        """The status of an answer of the admin API; 0 if there is none."""
        host, _, port = self.admin.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=ASK_WITHIN_S)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            response.read()
            return response.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


class Cluster:
    """`told` says what cannot be done here, and why."""

    def __init__(self, directory: Path, sabotage: dict[str, str], small_disks: tuple[str, ...]) -> None:
        self._file = directory / "network.toml"
        self.wards = {name: Ward(self._file, name, directory, sabotage.get(name, "")) for name in CITIES}
        text = "\n".join(ward.table() for ward in self.wards.values())
        for pair, latency_ms in LINKS.items():
            one, other = pair.split("-")
            text += f'\n[[links]]\nends = ["{one}", "{other}"]\nlatency = "{latency_ms}ms"\nemulate = true\n'
        self._file.write_text(text + TABLES)
        self.told: list[str] = []
        self.disturbances: list[Disturbance] = []
        library = build(directory)
        if library is None:
            self.told.append("no C compiler: no write errors, no clock jumps, full disks only where they are small")
        for name, ward in self.wards.items():
            if library is not None:
                ward.injector = Injector(library, directory / f"{name}.control", ward.data)
        if os.geteuid() or not os.environ.get("TORTURE_OWN_MOUNTS"):
            self.told.append("not root: full disks are emulated")
        else:
            for name in small_disks:
                self.wards[name].mount()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of faults that can be made here."""
        always = ("kill", "pause", "cut", "loss", "slow", "away")
        if all(ward.injector for ward in self.wards.values()):
            return (*always, "full", "write-errors", "sync-errors", "clock")
        return always

    def start(self) -> None:
        for ward in self.wards.values():
            ward.start()

    def end(self) -> None:
        for ward in self.wards.values():
            ward.kill()

    def close(self) -> None:
        """Nothing of it is looked at any more."""
        for ward in self.wards.values():
            if ward.has_disk:
                subprocess.run(["umount", "--lazy", ward.data], check=True)

    @property
    def is_linked(self) -> bool:
        return all("linked" in ward.log.read_text(errors="replace") for ward in self.wards.values())

    async def carry_out(self, fault: Fault, now_s: Callable[[], float]) -> None:
        """From its beginning to its end."""
        if fault.kind in ("cut", "loss", "slow"):
            await self._on_link(fault)
            return
        begun_s = now_s()
        await self._on_broker(fault, self.wards[fault.target])
        if fault.kind != "clock":
            self.disturbances.append(Disturbance(fault.target, begun_s, now_s(), fault.kind))

    async def _on_broker(self, fault: Fault, ward: Ward) -> None:
        match fault.kind:
            case "kill":
                ward.kill()
                await asyncio.sleep(fault.for_s)
                ward.start()
                await self._until_ready(ward)
            case "pause":
                ward.pause(True)
                await asyncio.sleep(fault.for_s)
                ward.pause(False)
            case "clock":
                assert ward.injector is not None
                ward.injector.set_clock(fault.amount)
                await asyncio.sleep(fault.for_s)
                ward.injector.set_clock(0.0)
            case _:
                await self._on_disk(fault, ward)

    async def _on_disk(self, fault: Fault, ward: Ward) -> None:
        assert ward.injector is not None
        ward.is_disk_failing = ward.has_met_failing_disk = True
        match fault.kind:
            case "full" if ward.has_disk:
                loop = asyncio.get_running_loop()
                until_s = loop.time() + fault.for_s
                while loop.time() < until_s:
                    await loop.run_in_executor(None, ward.fill)
                    await asyncio.sleep(0.1)
                (ward.data / "ballast").unlink(missing_ok=True)
            case "full":
                ward.injector.fill_disk()
                await asyncio.sleep(fault.for_s)
            case "write-errors":
                ward.injector.fail_writes()
                await asyncio.sleep(fault.for_s)
            case "sync-errors":
                ward.injector.fail_syncs()
                await asyncio.sleep(fault.for_s)
            case _:
                raise ValueError(fault.kind)
        ward.injector.heal_disk()
        ward.is_disk_failing = False

    async def _on_link(self, fault: Fault) -> None:
        query = {
            "cut": "cut=true",
            "loss": f"latency={LINKS[fault.target]}ms&loss={fault.amount:.3f}",
            "slow": f"latency={fault.amount:.0f}ms",
        }[fault.kind]
        await self._emulate(fault.target, f"?{query}", "PUT")
        await asyncio.sleep(fault.for_s)
        await self._emulate(fault.target, "", "DELETE")

    async def _emulate(self, link: str, query: str, method: str) -> None:
        """At both ends; a broker that does not run has its links as the file says when it comes back."""
        one, other = link.split("-")
        loop = asyncio.get_running_loop()
        for here, there in ((one, other), (other, one)):
            ward = self.wards[here]
            if ward.is_running and not ward.is_paused:
                await loop.run_in_executor(None, ward.ask_quickly, f"/emulation/{there}{query}", method)

    async def heal(self) -> None:
        """Everything is as at the start, and every broker runs."""
        for ward in self.wards.values():
            ward.pause(False)
            if ward.injector is not None:
                ward.injector.heal_disk()
                ward.injector.set_clock(0.0)
            (ward.data / "ballast").unlink(missing_ok=True)
            if not ward.is_running:
                ward.start()
        for ward in self.wards.values():
            await self._until_ready(ward)
        for link in LINKS:
            await self._emulate(link, "", "DELETE")

    async def _until_ready(self, ward: Ward) -> bool:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + START_WITHIN_S
        while loop.time() < until_s and ward.is_wanted:
            if await loop.run_in_executor(None, ward.ask_quickly, "/ready") == 200:
                return True
            await asyncio.sleep(0.1)
        return False
