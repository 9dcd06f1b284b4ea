"""A domain with two edges, real processes, that share their clients: listeners of all kinds, users and certificates."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import mqtt5

from overlane.local_ports import free_ports
from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.framing import packet_end
from overlane.node.security.users import set_password
from overlane.secret import Secret
from overlane.testbed.certificates import Authority

if TYPE_CHECKING:
    from _tiers import Tiers

PATIENCE_S = 60.0
PASSWORD = "correct horse"
KINDS = ("mqtt_tls", "websocket", "websocket_tls")
EDGES = ("west-1", "west-2")

CONFIG = """
[security]
users = "{folder}/users"
certificate = "{folder}/server.pem"
key = "{folder}/server.key"
client_ca = "{ca}"
client_certificate = "optional"
overlay_secret = "{folder}/secret"
[limits]
connections = 40
session_expiry_max = "none"
[routing]
brokers_min = 1
brokers_max = 1
[[access]]
user = "anonymous"
publish = ["any/#"]
subscribe = ["any/#"]
[[access]]
user = "alice"
publish = ["alice/#", "any/#"]
subscribe = ["alice/#", "any/#"]
"""


@dataclass
class SharedDomain:
    tiers: "Tiers"
    authority: Authority
    ports: dict[tuple[str, str], int]
    """By edge and kind of listener."""

    def port(self, edge: str, kind: str = "mqtt") -> int:
        return self.tiers.brokers[edge].ports[0] if kind == "mqtt" else self.ports[edge, kind]

    def log(self, edge: str) -> str:
        return (self.tiers.folder / f"{edge}.log").read_text()

    def tls(self, user: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.ca))
        if user is not None:
            identity = self.authority.client(user)
            context.load_cert_chain(identity.certificate, identity.key)
        return context


@contextmanager
def shared_domain(folder: Path, path: str) -> "Iterator[SharedDomain]":
    from _tiers import Ensemble, Tiers

    authority = Authority(folder)
    authority.server()
    set_password(folder / "users", "alice", Secret(PASSWORD.encode()))
    (folder / "secret").touch(0o600)
    (folder / "secret").write_text("a-secret-of-the-whole-overlay\n")
    ports = dict(zip([(edge, kind) for edge in EDGES for kind in KINDS], free_ports(6), strict=True))
    config = CONFIG.format(folder=folder, ca=authority.ca)
    for edge in EDGES:
        lines = [f'{kind} = "127.0.0.1:{ports[edge, kind]}"' for kind in KINDS]
        config += "\n".join((f"[brokers.{edge}]", *lines, ""))
    ensemble = Ensemble(folder / "zookeeper", servers=1)
    ensemble.start()
    tiers = Tiers(folder, ensemble, path)
    try:
        asyncio.run(tiers.push(folder, config))
        for name, role, domain in (("r", "routing", "core"), *((edge, "edge", "west") for edge in EDGES)):
            tiers.add(name, role, domain)
        asyncio.run(tiers.ready())
        yield SharedDomain(tiers, authority, ports)
    finally:
        tiers.end()
        ensemble.stop()


class Raw:
    """An MQTT 5 client that reads one packet after the other, and answers nothing by itself."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        line = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.line = line if context is None else context.wrap_socket(line, server_hostname="localhost")
        self._read = b""

    def connect(
        self,
        client_id: str,
        *,
        is_clean: bool = False,
        expiry_s: int = 600,
        properties: tuple[tuple[str, str], ...] = (),
    ) -> mqtt5.ConnAckPacket:
        packet = mqtt5.ConnectPacket(
            client_id, clean_start=is_clean, session_expiry_interval=expiry_s, user_properties=list(properties)
        )
        self.send(packet)
        answer = self.read()
        assert isinstance(answer, mqtt5.ConnAckPacket)
        return answer

    def send(self, packet: mqtt5.Packet) -> None:
        self.line.sendall(codec5.write(packet))

    def read(self) -> mqtt5.Packet | None:
        """None at the end."""
        while True:
            end = packet_end(self._read, 0)
            if 0 < end <= len(self._read):
                packet, self._read = self._read[:end], self._read[end:]
                return codec5.read(memoryview(packet))
            data = self.line.recv(65536)
            if not data:
                return None
            self._read += data

    def close(self) -> None:
        """Without goodbye."""
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.line.close()
