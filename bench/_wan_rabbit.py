"""RabbitMQ federation in a wide area: a node of its own at each site, whose exchange for MQTT is federated.

The broker of the subscriber pulls from that of the publisher, or through others where there is no path; which one of
several alternatives is tried first is chance, so their list is no order. With one link towards each source there are no
loops. Messages are confirmed from broker to broker (QoS 1).
"""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from _wan_peers import CLIENTS, LINKS, Command, Place, System

_INSTALLED = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's `rabbitmq-server` in the path wants to be the system's service; this one runs anywhere."""
_UNPACKED = Path(sys.executable).with_name("rabbitmq-server")
"""By `scripts/setup`."""
PROGRAM = _INSTALLED if _INSTALLED.exists() else _UNPACKED
HEARTBEAT_S = 1
HOPS_MAX = 4


@dataclass(frozen=True, slots=True)
class RabbitFederation(System):
    def missing(self) -> str | None:
        if PROGRAM.exists():
            return None
        return "rabbitmq-server is not installed: apt-get install --no-install-recommends rabbitmq-server, or --install"

    def version(self) -> str:
        ctl = shutil.which("rabbitmqctl", path=str(PROGRAM.parent))
        if ctl is None:
            return ""
        return subprocess.run([ctl, "version"], capture_output=True, text=True, check=False).stdout.strip()

    def broker(self, place: Place, site: str) -> Command:
        own = place.of(site)
        (own / "rabbitmq.conf").write_text("\n".join(self._settings(place, site)) + "\n")
        (own / "enabled_plugins").write_text("[rabbitmq_mqtt,rabbitmq_federation].\n")
        (own / "definitions.json").write_text(json.dumps(self._definitions(place, site)))
        (own / "home").mkdir(exist_ok=True)
        environment = {
            "HOME": str(own / "home"),
            "RABBITMQ_NODENAME": f"{site}@localhost",
            "RABBITMQ_CONFIG_FILE": str(own / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(own / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(own / "mnesia"),
            "RABBITMQ_LOG_BASE": str(own / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_FEATURE_FLAGS_FILE": str(own / "feature_flags"),
            "RABBITMQ_PID_FILE": str(own / "pid"),
            # Schedulers that spin while they wait would take the cores from all others on one machine.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
        }
        return Command([str(PROGRAM)], environment)

    @staticmethod
    def _settings(place: Place, site: str) -> list[str]:
        return [
            f"listeners.tcp.1 = {place.to_listen(site)}:{LINKS}",
            "loopback_users.guest = false",
            f"mqtt.listeners.tcp.1 = 127.0.0.1:{CLIENTS}",
            "mqtt.allow_anonymous = true",
            "mqtt.default_user = guest",
            "mqtt.default_pass = guest",
            "mqtt.tcp_listen_options.nodelay = true",
            "tcp_listen_options.nodelay = true",
            f"load_definitions = {place.of(site) / 'definitions.json'}",
        ]

    @staticmethod
    def _definitions(place: Place, site: str) -> dict[str, object]:
        found: dict[str, object] = {
            "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
            "vhosts": [{"name": "/"}],
            "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        }
        from_where = place.scenario.layout.pulls.get(site)
        if from_where:
            uris = [f"amqp://guest:guest@{place.addresses[one]}:{LINKS}?heartbeat={HEARTBEAT_S}" for one in from_where]
            upstream = {"uri": uris, "max-hops": HOPS_MAX, "reconnect-delay": 1, "ack-mode": "on-confirm"}
            policy = {
                "vhost": "/",
                "name": "wan",
                "pattern": "^amq\\.topic$",
                "apply-to": "exchanges",
                "definition": {"federation-upstream": "source"},
                "priority": 1,
            }
            found["parameters"] = [
                {"vhost": "/", "component": "federation-upstream", "name": "source", "value": upstream}
            ]
            found["policies"] = [policy]
        return found
