"""Three brokers in a chain, a - b - c, as real processes, with clients that do nothing wrong at each of them.

    mallory - b     The fourth broker of the file never runs: a test plays it, and knows the overlay's secret.

`check` demands after whatever was done: every bystander, at every broker, gets a QoS 1 message of every other within a
bound; /ready says 200 everywhere; no process has died, takes more memory than it may, or has a defect in its log. The
brokers are started once and again when a check has failed, with empty disks: what an attack left there is gone.
"""

import http.client
import math
import re
import resource
import select
import shutil
import socket
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from faithful import packet, text
from stage import TRACES

from brokers import free_port
from overlays import Member, RealOverlay
from waiting import eventually

NAMES = ("a", "b", "c")
HOSTILE = "mallory"
SECRET = b"a-secret-of-all-brokers-of-this-overlay"
LIVE_WITHIN_S = 30.0
"""A frozen broker is frozen for ever; a busy machine is not."""
READY_WITHIN_S = LIVE_WITHIN_S
BEGUN_WITHIN_S = 180.0
MEMORY_BYTES_MAX = 640 << 20
"""What brokers keep of the needs of others alone may take 512 MiB (`overlane.core.limits`)."""
NEWCOMER_EVERY = 8
"""Steps."""
LINKS = {"a-b": 'latency = "1ms"', "b-c": 'latency = "1ms"', "b-mallory": 'latency = "1ms"'}
TABLES = """
[limits]
sessions = 300
queue = "1MiB"
queue_messages = 1000
retained = "16MiB"
connections_per_second = 100000

[topics."timed/#"]
deadline = "200ms"

[security]
overlay_secret = "{secret}"

[[events]]
at = "1h"
join = "mallory"
"""


class Harm(AssertionError):
    """Others than the attacker came to harm."""


class Over(Exception):
    """The time is up."""


class Bystander:
    """A client of MQTT 3.1.1 that does nothing wrong."""

    def __init__(self, port: int, client: str) -> None:
        self._unread = b""
        self.topics: set[bytes] = set()
        """What it got since `forget`."""
        self.is_acknowledged = False
        self.socket = socket.create_connection(("127.0.0.1", port), LIVE_WITHIN_S)
        self.socket.sendall(packet(0x10, text("MQTT") + b"\x04\x02\0\0" + text(client)))
        self.socket.sendall(packet(0x82, b"\0\1" + text("beside/+/+") + b"\1"))
        until_s = time.monotonic() + LIVE_WITHIN_S
        while not self.is_subscribed:
            if not select.select([self.socket], [], [], max(0.0, until_s - time.monotonic()))[0]:
                raise Harm(f"{client} is not let in within {LIVE_WITHIN_S:g} s")
            self.read()

    is_subscribed = False

    def publish(self, topic: str) -> None:
        self.topics.clear()
        self.is_acknowledged = False
        self.socket.sendall(packet(0x32, text(topic) + b"\0\1" + b"x"))

    def read(self) -> None:
        data = self.socket.recv(65_536)
        if not data:
            raise Harm("a bystander was cut off")
        self._unread += data
        while len(self._unread) >= 2 and len(self._unread) >= (end := 2 + self._unread[1]):
            first, body, self._unread = self._unread[0], self._unread[2:end], self._unread[end:]
            match first & 0xF0:
                case 0x20 if body == b"\0\0":
                    pass
                case 0x90 if body[-1] == 1:
                    self.is_subscribed = True
                case 0x40:
                    self.is_acknowledged = True
                case 0x30:
                    end = 2 + int.from_bytes(body[:2])
                    self.topics.add(body[2:end])
                    self.socket.sendall(packet(0x40, body[end : end + 2]))
                case _:
                    raise Harm(f"a bystander got {first:x} {body.hex(' ')}")


class Chain:
    """`journal` has what was done since the brokers were started, the last of it. `shrinks`: harm is to be repeated."""

    def __init__(self, directory: Path, shrinks: bool = False) -> None:
        self.shrinks = shrinks
        self.until_s = math.inf
        """By the monotonic clock; steps after that are Over."""
        self._directory = directory
        self._net: RealOverlay | None = None
        self._bystanders: dict[str, Bystander] = {}
        self._websockets: dict[str, int] = {}
        self._logs_read: dict[str, int] = {}
        self._generation = 0
        self.steps = 0
        self.peak_bytes = 0
        self.journal: deque[str] = deque(maxlen=30)
        self.harm: Harm | None = None
        """The first that was found."""

    def member(self, name: str) -> Member:
        assert self._net is not None
        return self._net[name]

    def mqtt_port(self, name: str) -> int:
        return int(self.member(name).mqtt.rpartition(":")[2])

    def websocket_port(self, name: str) -> int:
        return self._websockets[name]

    @property
    def admin_ports(self) -> dict[str, int]:
        return {name: int(self.member(name).admin.rpartition(":")[2]) for name in NAMES}

    def begin(self) -> None:
        """They run."""
        if self._net is not None:
            return
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def _start(self) -> None:
        self._generation += 1
        directory = self._directory / str(self._generation)
        directory.mkdir(parents=True)
        secret = directory / "secret"
        secret.write_bytes(SECRET)
        secret.chmod(0o600)
        self._net = net = RealOverlay(directory, LINKS, TABLES.format(secret=secret), is_recorded=True)
        del net.members[HOSTILE]
        self._websockets = {name: free_port() for name in NAMES}
        text_ = net.file.read_text()
        for name, port in self._websockets.items():
            text_ = text_.replace(f"[brokers.{name}]\n", f'[brokers.{name}]\nwebsocket = "127.0.0.1:{port}"\n')
        net.file.write_text(text_)
        for member in net.members.values():
            member.start()
        net.wait_until(lambda: all("ready  " in net[name].log.read_text() for name in NAMES), "ready", BEGUN_WITHIN_S)
        self._logs_read = dict.fromkeys(NAMES, 0)
        self.journal.clear()
        self._bystanders = {name: Bystander(self.mqtt_port(name), f"beside-{name}") for name in NAMES}
        eventually(self._is_live_soon, "bystanders hear of each other", BEGUN_WITHIN_S, net.logs)

    def end(self) -> None:
        if self._net is not None:
            self._net.end()
            shutil.rmtree(self._directory / str(self._generation), ignore_errors=True)
        self._net = None

    def check(self, step: str) -> None:
        """Harm if anybody else than the attacker notices something."""
        if time.monotonic() > self.until_s:
            raise Over
        self.steps += 1
        self.journal.append(step)
        try:
            self._check()
        except (Harm, OSError) as harm:
            assert self._net is not None
            ready = {name: self._ready(name) for name in NAMES}
            logs = self._net.logs()
            if isinstance(harm, OSError):
                harm = Harm(f"a bystander was cut off: {harm}")
            told = "\n  ".join(self.journal)
            self.end()
            self.harm = Harm(
                f"{harm}\n/ready meanwhile: {ready}\nsteps since the start, the last 30:\n  {told}\n{logs}"
            )
            raise self.harm from None

    def _check(self) -> None:
        for name in NAMES:
            member = self.member(name)
            if not member.is_running:
                raise Harm(f"{name} has ended")
            self._scan(name, member)
        if not self._is_live(LIVE_WITHIN_S):
            got = {name: sorted(one.topics) for name, one in self._bystanders.items()}
            raise Harm(f"no round trip of bystanders within {LIVE_WITHIN_S:g} s; they got {got}")
        for name in NAMES:
            if (status := self._ready(name)) != 200:
                raise Harm(f"{name} serves, and /ready says {status}")
        if self.steps % NEWCOMER_EVERY == 0:
            name = NAMES[self.steps // NEWCOMER_EVERY % len(NAMES)]
            self._bystanders[name].socket.close()
            self._bystanders[name] = Bystander(self.mqtt_port(name), f"beside-{name}-{self.steps}")
            self._wait_until_reached(name)
        for name in NAMES:
            self._scan(name, self.member(name))

    def _wait_until_reached(self, name: str) -> None:
        """A newcomer is the only subscriber of its broker: others hear of it a little later, and what they published
        before was not for it."""
        until_s = time.monotonic() + LIVE_WITHIN_S
        while not self._is_live_soon():
            if time.monotonic() > until_s:
                raise Harm(f"a newcomer at {name} is not reached within {LIVE_WITHIN_S:g} s")

    def _is_live_soon(self) -> bool:
        return self._is_live(0.5)

    def _is_live(self, within_s: float) -> bool:
        """Everybody gets what everybody says, and has it acknowledged."""
        topics = {name: f"beside/{name}/{time.monotonic_ns()}" for name in NAMES}
        for name, bystander in self._bystanders.items():
            bystander.publish(topics[name])
        wanted = {topic.encode() for topic in topics.values()}
        until_s = time.monotonic() + within_s
        while waiting := [
            one.socket for one in self._bystanders.values() if not (wanted <= one.topics and one.is_acknowledged)
        ]:
            readable, _, _ = select.select(waiting, [], [], max(0.0, until_s - time.monotonic()))
            if not readable:
                return False
            for bystander in self._bystanders.values():
                if bystander.socket in readable:
                    bystander.read()
        return True

    def _ready(self, name: str) -> int | str:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_ports[name], timeout=READY_WITHIN_S)
        try:
            connection.request("GET", "/ready")
            response = connection.getresponse()
            response.read()
            return response.status
        except (OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            connection.close()

    def _scan(self, name: str, member: Member) -> None:
        with member.log.open("rb") as log:
            log.seek(self._logs_read[name])
            new = log.read()
        self._logs_read[name] += len(new)
        if found := re.search(TRACES, new.decode(errors="replace")):
            tail = new.decode(errors="replace")[found.start() :]
            raise Harm(f"{name} has a defect in its log:\n{tail[:3_000]}")
        with suppress(OSError):
            pages = re.split(r"\s+", Path(f"/proc/{member.process_id}/statm").read_text())[1]
            self.peak_bytes = max(self.peak_bytes, taken_bytes := int(pages) * resource.getpagesize())
            if taken_bytes > MEMORY_BYTES_MAX:
                raise Harm(f"{name} takes {taken_bytes >> 20} MiB")
