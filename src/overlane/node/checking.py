"""Checks everything that the start of a broker needs, without starting it: `overlane check`.

The network file itself has been read. Here are the files that it names, the addresses, the data directory, the packages
and the limits of the system. All problems are found in one run. Nothing is created or changed.
"""

import datetime
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from overlane.binding import refusal_of
from overlane.errors import ConfigError, OverlaneError
from overlane.extras import EXTRAS, is_installed, missing_extra
from overlane.membership.endpoint import Endpoint
from overlane.network.borders import closed_by_rules
from overlane.network.endpoints import Endpoints, endpoints, overlay_endpoints
from overlane.network.members import of_broker
from overlane.network.schema import Network, Security
from overlane.node.admin.service import token_of
from overlane.node.open_files import are_too_few, connections_possible, files_allowed
from overlane.node.reloading import needs_tls
from overlane.node.security.logins import read_login_files
from overlane.node.security.open_secrets import open_secrets
from overlane.node.security.tls import link_contexts, server_context
from overlane.node.store.data_directory import holder_of
from overlane.secret_file import read_token

EXPIRES_SOON = datetime.timedelta(days=30)
FREE_BYTES_MIN = 256 * 2**20
DIAL_S = 3.0


class Level(StrEnum):
    NOTE = "note"
    """Nothing is wrong; a consequence that may not be obvious."""
    WARNING = "warning"
    """It starts, but something may surprise you."""
    UNAVAILABLE = "unavailable"
    """It does not start here and now."""
    INVALID = "invalid"
    """It never starts like this."""


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    told: str


def check_broker(
    network: Network, name: str, file: str, data: Path, *, is_running: bool = False, reaches: bool = False
) -> list[Finding]:
    """`is_running`: its addresses and its data directory are in use, and rightly so. `reaches`: its neighbours have to
    answer."""
    network = of_broker(network, name)
    try:
        at = endpoints(network, name, file)
    except ConfigError as error:
        return [_invalid(error)]
    found = [*_files(network.security, at), *_certificate(network.security, name, at), *_packages(network)]
    try:
        token_of(network)
    except ConfigError as error:
        found.append(_invalid(error))
    if not is_running:
        found += _addresses(at)
    found += _directory(data, is_to_be_free=not is_running)
    found += _open_files(network)
    if reaches:
        found += _neighbours(network, name)
    found += [Finding(Level.NOTE, told) for told in closed_by_rules(network, name)]
    return found


def _invalid(error: OverlaneError) -> Finding:
    return Finding(Level.INVALID, str(error))


def _files(security: Security, at: Endpoints) -> Iterator[Finding]:
    """Those that can be read by themselves; certificates follow."""
    attempts: list[Callable[[], object]] = [lambda: link_contexts(security)]
    attempts.append(lambda: read_login_files(security))
    if (secret := security.overlay_secret) is not None:
        attempts.append(lambda: read_token(secret))
    if needs_tls(at):
        attempts.append(lambda: server_context(security))
    told = set()
    for attempt in attempts:
        try:
            attempt()
        except ConfigError as error:
            if str(error) not in told:
                told.add(str(error))
                yield _invalid(error)
    for warning in open_secrets(security):
        yield Finding(Level.WARNING, warning)


def _certificate(security: Security, name: str, at: Endpoints) -> Iterator[Finding]:
    """Whether it is valid today, and names the broker where neighbours go by that."""
    path = security.certificate
    if path is None or not (security.overlay_tls or needs_tls(at)):
        return
    # Only where it is needed, since it takes as long to load as much of the rest.
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificates(Path(path).read_bytes())[0]
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = alternatives.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        names = []
    except (OSError, ValueError, IndexError):
        return  # reported by `_files`
    now, ends = datetime.datetime.now(datetime.UTC), certificate.not_valid_after_utc
    if now >= ends:
        yield Finding(Level.INVALID, f"{path}: the certificate expired on {ends:%Y-%m-%d}")
    elif now < certificate.not_valid_before_utc:
        yield Finding(Level.INVALID, f"{path}: the certificate is not valid before {certificate.not_valid_before_utc}")
    elif ends - now < EXPIRES_SOON:
        yield Finding(Level.WARNING, f"{path}: the certificate expires in {(ends - now).days} days ({ends:%Y-%m-%d})")
    if security.overlay_tls and name not in names:
        shown = ", ".join(names) or "none"
        told = f"{path}: with overlay_tls the certificate must have the DNS name {name}; it has {shown}"
        yield Finding(Level.INVALID, told)


def _packages(network: Network) -> Iterator[Finding]:
    needed = [("coordination", Level.INVALID)] if network.coordination is not None else []
    if any("cbor" in (rule.encode, rule.decode) for rule in network.mediation):
        needed.append(("mediation", Level.INVALID))
    if network.telemetry.enabled:
        needed.append(("telemetry", Level.WARNING))
    for extra, level in needed:
        for package in EXTRAS[extra]:
            if not is_installed(package):
                yield Finding(level, f"[{extra}]: {missing_extra(package, extra)}")


def _addresses(at: Endpoints) -> Iterator[Finding]:
    for field, endpoint in at.all().items():
        try:
            found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, address in dict.fromkeys((one[0], one[4]) for one in found):
                socket.create_server(address, family=family).close()
        except OSError as error:
            yield Finding(Level.UNAVAILABLE, f"{field} address {endpoint}: {refusal_of(error)}")


def _directory(data: Path, *, is_to_be_free: bool) -> Iterator[Finding]:
    existing = data
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        yield Finding(Level.UNAVAILABLE, f"data directory {data}: {existing} is not a directory")
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield Finding(Level.UNAVAILABLE, f"data directory {data}: {existing} cannot be written")
    elif (free_bytes := shutil.disk_usage(existing).free) < FREE_BYTES_MIN:
        yield Finding(Level.WARNING, f"data directory {data}: {free_bytes // 2**20} MiB are free on its disk")
    if is_to_be_free and (holder := holder_of(data)) is not None:
        yield Finding(Level.UNAVAILABLE, f"data directory {data}: in use by another broker{holder}")


def _open_files(network: Network) -> Iterator[Finding]:
    wanted, possible = network.limits.connections, connections_possible(files_allowed())
    if are_too_few(possible, wanted):
        told = f"the system allows {files_allowed()} open files: at most {possible} connections instead of {wanted}"
        yield Finding(Level.WARNING, f"{told} (ulimit -n, or LimitNOFILE of systemd)")


def _neighbours(network: Network, name: str) -> Iterator[Finding]:
    listens, brokers = overlay_endpoints(network), {broker.name: broker for broker in network.brokers}
    for link in network.links:
        if name not in link.ends:
            continue
        other = link.ends[1] if link.ends[0] == name else link.ends[0]
        reach = brokers[other].reach
        addresses = (listens[other],) if reach is None else reach
        if addresses and not any(_answers(one) for one in addresses):
            shown = ", ".join(map(str, addresses))
            yield Finding(Level.WARNING, f"neighbour {other}: nothing answers at {shown}")


def _answers(endpoint: Endpoint) -> bool:
    try:
        socket.create_connection((endpoint.host, endpoint.port), timeout=DIAL_S).close()
    except OSError:
        return False
    return True
