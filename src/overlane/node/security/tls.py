"""TLS: the contexts of brokers and clients, and the user or broker that a certificate names.

TLS 1.2 or newer, with the library's choice of strong ciphers, no renegotiation, and no key log even if the environment
asks for one. A context is made from the current files: after a change of the files, make a new one and listen with it.
This also ends all sessions that could be resumed under the old one, so a client whose authority is no longer trusted
cannot resume.

Errors in the files are reported per file, before any client connects.
"""

import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import structs

from overlane.errors import ConfigError, Fault
from overlane.network.schema import Security
from overlane.secret_file import read_secret_file

NAME_CHARS_MAX = 256

_CERTIFICATE = "a file with a certificate in PEM, -----BEGIN CERTIFICATE-----"
_KEY = "a file with the private key of the certificate in PEM, without a passphrase"
_AUTHORITIES = "a file with the certificates of authorities in PEM, -----BEGIN CERTIFICATE-----"


def server_context(security: Security) -> ssl.SSLContext:
    """For listeners with TLS. ConfigError when a file is missing or wrong; `certificate` and `key` are needed."""
    context = _hardened(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    faults = _load_identity(context, security.certificate, security.key)
    if security.client_ca is not None:
        is_required = security.client_certificate == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        faults += _load_authorities(context, security.client_ca)
    if faults:
        raise ConfigError(faults)
    return context


def client_context(
    *, ca: str | Path | None = None, certificate: str | Path | None = None, key: str | Path | None = None
) -> ssl.SSLContext:
    """For connections to a server, whose certificate and name are always checked: against the authorities in `ca`, or
    those of the system. The certificate and key, if any, tell the server who connects."""
    context = _hardened(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    faults = []
    if ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        faults += _load_authorities(context, ca)
    if certificate is not None or key is not None:
        faults += _load_identity(context, certificate, key)
    if faults:
        raise ConfigError(faults)
    return context


LinkContexts: TypeAlias = tuple[ssl.SSLContext, ssl.SSLContext]
"""For neighbours that dial, and for those that are dialled."""


def link_contexts(security: Security) -> LinkContexts | None:
    """None where links go without certificates. ConfigError when a file is missing or wrong."""
    if not security.overlay_tls:
        return None
    serving = server_context(structs.replace(security, client_certificate="required"))
    return serving, client_context(ca=security.client_ca, certificate=security.certificate, key=security.key)


def renew_link_contexts(contexts: LinkContexts, security: Security) -> None:
    """New connections show the certificate of the files as they are now, and trust authorities that were added; those
    that were removed are trusted until the end. The files are valid: `link_contexts` has read them."""
    for context in contexts:
        if security.certificate is not None:
            context.load_cert_chain(security.certificate, security.key)
        if security.client_ca is not None:
            context.load_verify_locations(security.client_ca)


def user_of(peer_certificate: Mapping[str, object] | None) -> str | None:
    """The user whom a verified certificate names, as `getpeercert()` gives it: its common name, and where it has none
    the first DNS name or e-mail address. None where it names nobody, or not for certain."""
    if not peer_certificate:
        return None
    names = [value for pairs in _pairs(peer_certificate.get("subject")) for key, value in pairs if key == "commonName"]
    if not names:
        alternatives = _pairs([peer_certificate.get("subjectAltName")])
        names = [value for pairs in alternatives for key, value in pairs if key in ("DNS", "email")][:1]
    if len(names) != 1:  # two common names would let the client choose who it is
        return None
    name = names[0]
    return name if name and len(name) <= NAME_CHARS_MAX and name.isprintable() else None


def brokers_of(peer_certificate: Mapping[str, object] | None) -> frozenset[str]:
    """The brokers that the owner of a verified certificate may be: its DNS names. A host has its own name and those of
    the brokers that it may continue. Users' certificates have none, so that a user who bears the name of a broker is
    not taken for it. A name with a wildcard names no broker."""
    if not peer_certificate:
        return frozenset()
    alternatives = _pairs([peer_certificate.get("subjectAltName")])
    return frozenset(value for pairs in alternatives for key, value in pairs if key == "DNS")


def _hardened(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def _load_identity(context: ssl.SSLContext, certificate: str | Path | None, key: str | Path | None) -> list[Fault]:
    if certificate is None or key is None:
        missing = "certificate" if certificate is None else "key"
        return [
            Fault("security", 0, missing, "nothing", f"the path of {_CERTIFICATE if certificate is None else _KEY}")
        ]
    faults = [
        *_pem_faults(certificate, b"CERTIFICATE-----", _CERTIFICATE),
        *_pem_faults(key, b"PRIVATE KEY-----", _KEY),
    ]
    if faults:
        return faults
    is_locked = False

    def passphrase() -> str:
        # Without this the library would ask for it on the terminal and wait.
        nonlocal is_locked
        is_locked = True
        return ""

    try:
        context.load_cert_chain(certificate, key, password=passphrase)
    except ssl.SSLError as refused:
        if is_locked:
            return [Fault(str(key), 0, "", "a key with a passphrase", _KEY)]
        if refused.reason == "KEY_VALUES_MISMATCH":
            return [Fault(str(key), 0, "", f"a key that is not that of {certificate}", _KEY)]
        if _can_load_certificates(certificate):
            return [Fault(str(key), 0, "", f"a key that cannot be used ({_told(refused)})", _KEY)]
        return [Fault(str(certificate), 0, "", f"a certificate that cannot be used ({_told(refused)})", _CERTIFICATE)]
    return []


def _load_authorities(context: ssl.SSLContext, ca: str | Path) -> list[Fault]:
    faults = _pem_faults(ca, b"CERTIFICATE-----", _AUTHORITIES)
    if not faults:
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError as refused:
            faults.append(Fault(str(ca), 0, "", f"certificates that cannot be used ({_told(refused)})", _AUTHORITIES))
    return faults


def _pem_faults(path: str | Path, mark: bytes, allowed: str) -> list[Fault]:
    try:
        content = read_secret_file(path, allowed)
    except ConfigError as unreadable:
        return list(unreadable.faults)
    return [] if mark in content else [Fault(str(path), 0, "", "a file without one", allowed)]


def _can_load_certificates(path: str | Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True


def _told(refused: ssl.SSLError) -> str:
    """The library's reason in words: PEM_LIB, EE_KEY_TOO_SMALL."""
    return (refused.reason or "unknown reason").replace("_", " ").lower()


def _pairs(groups: object) -> Iterable[list[tuple[str, str]]]:
    """The pairs of names and values in the groups that `getpeercert()` nests them in."""
    if isinstance(groups, list | tuple):
        for group in groups:
            if isinstance(group, list | tuple):
                yield [(pair[0], pair[1]) for pair in group if isinstance(pair, list | tuple) and len(pair) == 2]
