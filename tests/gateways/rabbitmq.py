"""RabbitMQ with its AMQP 1.0 plugin, for tests: Debian's package, installed or unpacked into .venv."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from brokers import RunningBroker, free_port

_INSTALLED = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's program in the path wants to be the system's service; this one runs anywhere."""
_UNPACKED = Path(sys.executable).with_name("rabbitmq-server")
PROGRAM = _INSTALLED if _INSTALLED.exists() else _UNPACKED
_MAPPER = "epmd" if _INSTALLED.exists() else str(_UNPACKED.with_name("epmd"))
START_WITHIN_S = 120
STOP_WITHIN_S = 60


class RabbitMq(RunningBroker):
    """AMQP 0.9.1 and 1.0 on one port. Its node cannot be forked as ours are."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._node: subprocess.Popen[bytes] | None = None
        self._distribution = free_port()
        self._mapper = free_port()
        (directory / "home").mkdir()
        (directory / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nloopback_users.guest = false\n"
        )

    def start(self) -> None:
        at = self.directory
        environment = {
            **os.environ,
            "HOME": str(at / "home"),
            "ERL_EPMD_PORT": str(self._mapper),
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "true",  # it may be ended though it believes the node to be there
            "RABBITMQ_NODENAME": f"gateway{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_CONFIG_FILE": str(at / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(at / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(at / "mnesia"),
            "RABBITMQ_LOG_BASE": str(at / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_FEATURE_FLAGS_FILE": str(at / "feature_flags"),
            "RABBITMQ_PID_FILE": str(at / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
        }
        with self._log.open("ab") as log:
            # A session of its own: the program is a script, and the node its child.
            self._node = subprocess.Popen(
                [str(PROGRAM)], stdout=log, stderr=log, env=environment, cwd=at, start_new_session=True
            )
        until = time.monotonic() + START_WITHIN_S
        while not self._answers():
            if self._node.poll() is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError(f"RabbitMQ did not start:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.2)

    def stop(self) -> None:
        self._finish(kill=False)

    def kill(self) -> None:
        self._finish(kill=True)

    def _finish(self, *, kill: bool) -> None:
        node, self._node = self._node, None
        if node is not None:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(node.pid, signal.SIGKILL if kill else signal.SIGTERM)
            node.wait(STOP_WITHIN_S)
            # The node has started it, and it would stay.
            subprocess.run([_MAPPER, "-port", str(self._mapper), "-kill"], capture_output=True, check=False)
