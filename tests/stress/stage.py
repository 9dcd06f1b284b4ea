"""A broker under strain: a process watched from outside, and well-behaved clients beside those that misbehave.

Whatever is done to the broker, when the stage is left it must still be the same process, alive, and its log must tell
of no defect. The bystanders are a process of their own, so that their delays are the broker's and not ours.
"""

import json
import re
import resource
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from brokers import free_port
from overlane.testbed.certificates import Authority
from waiting import eventually
from watched import WatchedBroker

BYSTANDERS = Path(__file__).parent / "bystanders.py"
ANSWER_WITHIN_S = 60.0
TRACES = r"Traceback|panicked|Exception ignored|never retrieved"
"""Of an exception that nobody expected."""
DEFECT = re.compile(rf"{TRACES}|\berror {{3}}overlane\.node")
"""What a log has in it when something went wrong that should not have been able to."""

DELAY_MS_MAX = 250.0
DELAY_FACTOR_MAX = 8.0


class StrainedBroker(WatchedBroker):
    """`limits` are lines of that table. With an authority there is a TLS listener too."""

    def __init__(
        self,
        directory: Path,
        limits: str = "",
        tables: str = "",
        authority: Authority | None = None,
        endpoints: str = "",
    ) -> None:
        self.websocket_port = free_port()
        self.tls_port = free_port()
        endpoints += f'websocket = "127.0.0.1:{self.websocket_port}"\n'
        if authority is not None:
            identity = authority.server()
            endpoints += f'mqtt_tls = "127.0.0.1:{self.tls_port}"\n'
            tables += (
                f'\n[security]\ncertificate = "{identity.certificate}"\nkey = "{identity.key}"\n'
                f'client_ca = "{authority.ca}"\nclient_certificate = "optional"\n'
            )
        super().__init__(directory, f"[limits]\n{limits}\n{tables}", endpoints)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def memory_bytes(self) -> int:
        """What of it is resident."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    @property
    def peak_bytes(self) -> int:
        """The most that was ever resident."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def status(self) -> Any:
        return self.get("/status")

    def wait_for_status(self, holds: Callable[[Any], bool], what: str) -> Any:
        """The status, as soon as this holds of it."""
        found: Any = None

        def look() -> bool:
            nonlocal found
            found = self.status()
            return holds(found)

        eventually(look, what)
        return found

    def check_unharmed(self) -> None:
        assert self.is_alive, f"the broker has died:\n{self.log[-5_000:]}"
        assert self.request("/health").status == 200
        wrong = [line for line in self.log.splitlines() if DEFECT.search(line)]
        assert not wrong, "\n".join(wrong[:5])


Strained = TypeVar("Strained", bound=StrainedBroker)


@contextmanager
def strained(broker: Strained) -> Iterator[Strained]:
    """It runs, and is unharmed at the end unless something else is wrong already."""
    broker.start()
    try:
        yield broker
        broker.check_unharmed()
    finally:
        broker.kill()


class Window(msgspec.Struct, frozen=True):
    """What bystanders saw in some time. A round trip is from one of them through the broker to the other."""

    round_trips: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    connects: int
    connect_max_ms: float

    def judge(self, before: "Window") -> None:
        """Nobody was held up: not for long, or on a machine that is slow today not much longer than before."""
        told = f"\nmeanwhile {self}\nbefore {before}"
        assert self.round_trips > 0, told
        assert self.p99_ms < max(DELAY_MS_MAX, before.p99_ms * DELAY_FACTOR_MAX), f"others were held up{told}"


class Bystanders:
    """Clients who do nothing wrong: they send each other messages of QoS 0 and 1 and connect anew now and then. That a
    message is lost, repeated or late beyond all patience ends them, and so the test."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(BYSTANDERS), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> "Bystanders":
        assert self._hear() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def window(self) -> Window:
        """What they saw since this was last asked."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"?\n")
        self._process.stdin.flush()
        return msgspec.convert(self._hear(), Window)

    def window_of(self, round_trips: int) -> Window:
        """What they see from now on, until there were so many round trips."""
        assert self._process.stdin is not None
        self.window()
        self._process.stdin.write(b"%d\n" % round_trips)
        self._process.stdin.flush()
        return msgspec.convert(self._hear(), Window)

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], ANSWER_WITHIN_S)
        line = self._process.stdout.readline() if readable else b""
        if not line:
            self._process.kill()
            _, error = self._process.communicate()
            raise AssertionError(f"bystanders came to harm: {error.decode()}")
        return json.loads(line)
