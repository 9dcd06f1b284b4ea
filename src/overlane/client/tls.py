"""TLS for applications: trusted authorities, and the certificate of the client."""

import ssl
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from overlane.client.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS 1.2 or newer. Without `ca` the system's authorities are trusted; `certificate` and `key` are one's own."""

    ca: str | PathLike[str] | None = None
    certificate: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None
    server_name: str | None = None
    """The name that the broker's certificate must bear, where it is not the host of the address."""

    def context(self) -> ssl.SSLContext:
        """What Python's TLS takes; `InvalidRequest` names the file that is missing or wrong."""
        if self.key is not None and self.certificate is None:
            raise InvalidRequest("a TLS key requires its certificate")
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(Path(self.ca)))
        except (OSError, ssl.SSLError) as reason:
            raise InvalidRequest(f"{self.ca}: cannot read CA certificates: {reason}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except (OSError, ssl.SSLError) as reason:
                raise InvalidRequest(f"{self.certificate}: cannot read certificate and key: {reason}") from None
        return context


def as_tls(tls: "bool | Tls | ssl.SSLContext | None") -> tuple[ssl.SSLContext | None, str | None]:
    """The context, if TLS is wanted, and the server's name, if it is another than the host."""
    match tls:
        case None | False:
            return None, None
        case True:
            return Tls().context(), None
        case Tls():
            return tls.context(), tls.server_name
        case ssl.SSLContext():
            return tls, None
    raise InvalidRequest(f"got tls={tls!r}; expected True, overlane.client.Tls or ssl.SSLContext")
