"""A disposable certificate authority, for tests and demonstrations.

Its private keys are stored unprotected beside the certificates: do not use it in production.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from overlane.certificates import PURPOSES, host, issue, new_authority
from overlane.secret_file import rewrite_secret_file

DAYS = 30
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Identity:
    certificate: Path
    key: Path


class Authority:
    """Makes certificates in a directory. `ca` is the file that those who trust it load."""

    def __init__(self, directory: Path, name: str = "throw-away-ca") -> None:
        self._directory = directory
        self._authority = new_authority(name, DAYS)
        self.ca = directory / f"{name}.pem"
        self.ca.write_bytes(self._authority.certificate_pem())

    def server(self, name: str = "server", hosts: Sequence[str] = THIS_MACHINE) -> Identity:
        """A certificate for a server under these host names and addresses, in `NAME.pem` and `NAME.key`."""
        return self._issue(name, name, "server", [host(one) for one in hosts], DAYS)

    def broker(self, name: str, others: Sequence[str] = ()) -> Identity:
        """A certificate for a broker of an overlay, which dials and is dialled under its name; `others`: brokers that
        its host may continue."""
        return self._issue(name, name, "broker", [x509.DNSName(one) for one in (name, *others)], DAYS)

    def client(
        self,
        name: str,
        *,
        has_common_name: bool = True,
        dns: Sequence[str] = (),
        emails: Sequence[str] = (),
        days: int = DAYS,
    ) -> Identity:
        """A certificate for a client, whose user is `name` if it has a common name. With `days` below 0 it is no longer
        valid."""
        alternatives = [*(x509.DNSName(one) for one in dns), *(x509.RFC822Name(email) for email in emails)]
        return self._issue(name, name if has_common_name else None, "client", alternatives, days)

    def _issue(
        self, file_name: str, common_name: str | None, purpose: str, alternatives: Sequence[x509.GeneralName], days: int
    ) -> Identity:
        issued = issue(self._authority, common_name, PURPOSES[purpose], alternatives, days)
        identity = Identity(self._directory / f"{file_name}.pem", self._directory / f"{file_name}.key")
        identity.certificate.write_bytes(issued.certificate_pem())
        rewrite_secret_file(identity.key, lambda _old: issued.key_pem())
        return identity
