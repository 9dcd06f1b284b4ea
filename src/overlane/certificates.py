"""A small certificate authority: it issues and renews certificates of brokers, servers and clients.

    broker   its name as a DNS name, by which neighbours know it, and those of brokers that its host may continue; hosts
             under which clients connect; dials and is dialled
    server   host names and addresses
    client   the user as common name, and no DNS name: nobody takes it for a broker

Keys are of the curve P-256, signatures SHA-256. Nothing is read or written here.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
PURPOSES = {"broker": (SERVER, CLIENT), "server": (SERVER,), "client": (CLIENT,)}
"""By what a certificate is for."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def new_authority(name: str, days: int) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, key, subject, key, -DAY, days * DAY)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return Issued(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: Issued,
    common_name: str | None,
    purposes: Sequence[x509.ObjectIdentifier],
    alternatives: Sequence[x509.GeneralName],
    days: int,
) -> Issued:
    """With `days` below 0 it is no longer valid."""
    names = [] if common_name is None else [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    return _issue(authority, x509.Name(names), purposes, alternatives, days)


def renew(authority: Issued, old: x509.Certificate, days: int) -> Issued:
    """For the same subject, with the same names and purposes, and a new key."""
    purposes = old.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    return _issue(authority, old.subject, tuple(purposes), alternatives_of(old), days)


def alternatives_of(certificate: x509.Certificate) -> tuple[x509.GeneralName, ...]:
    try:
        return tuple(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return ()


def host(name: str) -> x509.GeneralName:
    """A host name or an IP address; ValueError if it can be neither."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _issue(
    authority: Issued,
    subject: x509.Name,
    purposes: Sequence[x509.ObjectIdentifier],
    alternatives: Sequence[x509.GeneralName],
    days: int,
) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    start, end = min(-DAY, (days - 1) * DAY), days * DAY
    builder = _builder(subject, key, authority.certificate.subject, authority.key, start, end)
    builder = builder.add_extension(x509.ExtendedKeyUsage(list(purposes)), critical=False)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    if alternatives:
        # Critical where the subject is empty (RFC 5280, section 4.2.1.6).
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=not list(subject))
    return Issued(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    start: datetime.timedelta,
    end: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now + start,
        not_valid_after=now + end,
    )
    subject_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return builder.add_extension(subject_id, critical=False).add_extension(issuer_id, critical=False)


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
