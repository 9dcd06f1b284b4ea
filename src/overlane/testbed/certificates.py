"""A disposable certificate authority, for tests and demonstrations.

Its private keys are stored unprotected beside the certificates: do not use it in production.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from overlane.secret_file import rewrite_secret_file

DAY = datetime.timedelta(days=1)
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Identity:
    certificate: Path
    key: Path


class Authority:
    """Makes certificates in a directory. `ca` is the file that those who trust it load."""

    def __init__(self, directory: Path, name: str = "throw-away-ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = directory / f"{name}.pem"
        builder = self._builder(self._name, self._key, -DAY, 30 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        self._write_certificate(self.ca, builder)

    def server(self, name: str = "server", hosts: Sequence[str] = THIS_MACHINE) -> Identity:
        """A certificate for a server under these host names and addresses, in `NAME.pem` and `NAME.key`."""
        return self._issue(name, name, [ExtendedKeyUsageOID.SERVER_AUTH], [_host(host) for host in hosts], 30)

    def broker(self, name: str, others: Sequence[str] = ()) -> Identity:
        """A certificate for a broker of an overlay, which dials and is dialled under its name; `others`: brokers that
        its host may continue."""
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(name, name, purposes, [x509.DNSName(one) for one in (name, *others)], 30)

    def client(
        self,
        name: str,
        *,
        has_common_name: bool = True,
        dns: Sequence[str] = (),
        emails: Sequence[str] = (),
        days: int = 30,
    ) -> Identity:
        """A certificate for a client, whose user is `name` if it has a common name. With `days` below 0 it is no longer
        valid."""
        alternatives = [*(x509.DNSName(host) for host in dns), *(x509.RFC822Name(email) for email in emails)]
        common_name = name if has_common_name else None
        return self._issue(name, common_name, [ExtendedKeyUsageOID.CLIENT_AUTH], alternatives, days)

    def _issue(
        self,
        file_name: str,
        common_name: str | None,
        purposes: Sequence[x509.ObjectIdentifier],
        alternatives: Sequence[x509.GeneralName],
        days: int,
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        names = [] if common_name is None else [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        builder = self._builder(x509.Name(names), key, min(-DAY, (days - 1) * DAY), days * DAY)
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(purposes)), critical=False)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        if alternatives:
            # Critical where the subject is empty (RFC 5280, section 4.2.1.6).
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=common_name is None)
        identity = Identity(self._directory / f"{file_name}.pem", self._directory / f"{file_name}.key")
        self._write_certificate(identity.certificate, builder)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        rewrite_secret_file(identity.key, lambda _old: pem)
        return identity

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime.timedelta, end: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now + start,
            not_valid_after=now + end,
        )
        subject_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(subject_id, critical=False).add_extension(issuer_id, critical=False)

    def _write_certificate(self, path: Path, builder: x509.CertificateBuilder) -> None:
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
