"""A ZooKeeper server that asks for logins and certificates, as an operator of Overlane would set it up."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from overlane.coordination.ensemble.java import java_command, server_jars
from overlane.coordination.ensemble.layout import open_ensemble, write_server
from overlane.coordination.ensemble.running import MAIN, OPTIONS, wait_until_serving
from overlane.coordination.zookeeper import Access, Tls
from overlane.local_ports import free_ports
from overlane.testbed.certificates import Authority

PASSWORDS = {"plant": "the-password-of-plant", "visitor": "the-password-of-visitor"}
STOP_S = 60.0

LOGINS = """Server {{
  org.apache.zookeeper.server.auth.DigestLoginModule required
  {users};
}};
"""
SETTINGS = """
authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
secureClientPortAddress=127.0.0.1
secureClientPort={port}
ssl.keyStore.location={server}
ssl.keyStore.type=PEM
ssl.trustStore.location={ca}
ssl.trustStore.type=PEM
ssl.clientAuth=need
"""


@dataclass(frozen=True, slots=True)
class Secured:
    plain: str
    """The address for logins without TLS."""
    encrypted: str
    tls: Tls
    other_ca: Tls
    """Trusts another authority than that of the server."""

    def access(self, user: str | None, root: str, password: str | None = None) -> Access:
        known = PASSWORDS.get(user) if user is not None else None
        return Access(self.plain, root, user, password if password is not None else known)


@contextmanager
def secured_server(folder: Path) -> Iterator[Secured]:
    authority, other = Authority(folder), Authority(folder, "another-ca")
    server, client = authority.server("zookeeper"), authority.client("broker")
    (folder / "server.pem").write_bytes(server.certificate.read_bytes() + server.key.read_bytes())
    users = "\n  ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    (folder / "logins.conf").write_text(LOGINS.format(users=users))
    (port,) = free_ports(1)
    ensemble = open_ensemble(folder / "zookeeper", 1)
    config = write_server(folder / "zookeeper", ensemble, 1)
    config.write_text(config.read_text() + SETTINGS.format(port=port, server=folder / "server.pem", ca=authority.ca))
    path = ":".join(map(str, server_jars()))
    logins = f"-Djava.security.auth.login.config={folder / 'logins.conf'}"
    command = [java_command(), *OPTIONS, logins, "-cp", path, MAIN, str(config)]
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            asyncio.run(wait_until_serving(ensemble))
            keys = str(client.certificate), str(client.key)
            yield Secured(
                ensemble.addresses, f"localhost:{port}", Tls(str(authority.ca), *keys), Tls(str(other.ca), *keys)
            )
        finally:
            process.terminate()
            process.wait(STOP_S)
