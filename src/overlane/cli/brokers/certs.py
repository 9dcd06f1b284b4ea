"""`overlane certs`: certificates for overlays without a certificate authority of their own.

Exit status: 0 done, 1 a certificate expires within the time asked for, or a file cannot be written, 2 invalid input.
"""

import datetime
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from overlane.cli.exit_status import UNAVAILABLE, fail
from overlane.errors import ConfigError
from overlane.secret_file import read_secret_file, reason_of, rewrite_secret_file

if TYPE_CHECKING:
    from cryptography import x509

    from overlane.certificates import Issued

CA = "ca"
AUTHORITY_DAYS = 3_650
DAYS = 397
EXPIRING = 1

Directory = Annotated[Path, typer.Option("--dir", help="Directory of the certificates.")]
Days = Annotated[int, typer.Option("--days", min=1, max=36_500, help="Validity in days.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]

app = typer.Typer(
    help="Create and renew certificates of brokers, servers and clients with your own certificate authority.",
    no_args_is_help=True,
)


class Purpose(StrEnum):
    BROKER = "broker"
    SERVER = "server"
    CLIENT = "client"


@app.command()
def init(
    directory: Directory = Path("certs"),
    name: Annotated[str, typer.Option("--name", help="Name of the authority.")] = "Overlane CA",
    days: Days = AUTHORITY_DAYS,
) -> None:
    """Make an authority: ca.pem and ca.key. Brokers and clients trust ca.pem; only you should have ca.key."""
    from overlane.certificates import new_authority

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as refused:
        fail(f"{directory}: cannot be made: {reason_of(refused)}", UNAVAILABLE)
    if (directory / f"{CA}.key").exists() or (directory / f"{CA}.pem").exists():
        fail(f"{directory}: there is an authority already, which was not changed")
    _write(directory, CA, new_authority(name, days))
    typer.echo(f"created the authority {directory / CA}.pem; keep {directory / CA}.key off the brokers' machines")


@app.command()
def issue(
    name: Annotated[str, typer.Argument(help="Name of the broker, server or user.")],
    purpose: Annotated[Purpose, typer.Option("--for", help="Purpose of the certificate.")] = Purpose.BROKER,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="Host name or IP address under which clients connect; several times for several."),
    ] = None,
    continues: Annotated[
        list[str] | None,
        typer.Option("--continues", metavar="NAME", help="Broker that this host may take over, as its mirror."),
    ] = None,
    days: Days = DAYS,
    force: Force = False,
    directory: Directory = Path("certs"),
) -> None:
    """Issue a certificate: NAME.pem and NAME.key."""
    from cryptography import x509

    from overlane import certificates

    _check_name(name)
    alternatives = [_host(one) for one in hosts or []]
    if purpose is Purpose.BROKER:
        # A broker's name is a DNS name, also where it looks like an address.
        brokers = [x509.DNSName(one) for one in dict.fromkeys((name, *(continues or ())))]
        alternatives = [*brokers, *(one for one in alternatives if one not in brokers)]
    elif continues:
        fail("--continues is for brokers")
    elif purpose is Purpose.CLIENT and alternatives:
        fail("a client's certificate has no hosts")
    elif purpose is Purpose.SERVER and not alternatives:
        alternatives = [_host(name)]
    authority = _authority(directory)
    if not force and (directory / f"{name}.pem").exists():
        fail(f"{directory / name}.pem exists; overlane certs renew {name}, or --force")
    _write(
        directory,
        name,
        certificates.issue(authority, name, certificates.PURPOSES[purpose.value], alternatives, days),
    )
    typer.echo(f"issued {directory / name}.pem for {days} days")


@app.command()
def renew(
    names: Annotated[list[str], typer.Argument(help="Names of certificates.")],
    days: Days = DAYS,
    directory: Directory = Path("certs"),
) -> None:
    """Renew certificates. Names and purpose stay, the key is new. Brokers take them up on SIGHUP."""
    from cryptography import x509

    from overlane import certificates

    authority = _authority(directory)
    for name in names:
        _check_name(name)
        path = directory / f"{name}.pem"
        try:
            renewed = certificates.renew(authority, _certificates(path)[0], days)
        except x509.ExtensionNotFound:
            fail(f"{path}: found a certificate without a purpose, allowed is one that `overlane certs issue` made")
        _write(directory, name, renewed)
        typer.echo(f"renewed {path} for {days} days")


@app.command()
def show(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Certificates (default: all of the directory).", show_default=False)
    ] = None,
    within: Annotated[
        int, typer.Option("--within", min=0, metavar="DAYS", help="Exit with status 1 if one expires in this time.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    directory: Directory = Path("certs"),
) -> None:
    """Show certificates: name, hosts, purpose, and when they expire."""
    paths = files or sorted(directory.glob("*.pem"))
    if not paths:
        fail(f"{directory}: found no certificate, allowed is a directory with *.pem; `overlane certs init` makes one")
    now = datetime.datetime.now(datetime.UTC)
    rows = [_row(path, _certificates(path)[0], now) for path in paths]
    if as_json:
        typer.echo(msgspec.json.encode(rows))
    else:
        for row in rows:
            left = "expired" if row.days_left < 0 else f"{row.days_left} days left"
            hosts = f" for {', '.join(row.hosts)}" if row.hosts else ""
            typer.echo(f"{row.file}: {row.purpose} {row.name}{hosts}, until {row.until}, {left}")
    if any(row.days_left < within for row in rows):
        raise typer.Exit(EXPIRING)


class Row(msgspec.Struct, frozen=True):
    """What `show` tells of one certificate."""

    file: str
    name: str
    purpose: str
    hosts: list[str]
    until: str
    days_left: int
    """Below 0: it has expired."""


def _row(path: Path, certificate: "x509.Certificate", now: datetime.datetime) -> Row:
    from cryptography.x509.oid import NameOID

    from overlane.certificates import alternatives_of

    names = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    until = certificate.not_valid_after_utc
    return Row(
        file=str(path),
        name=", ".join(names) or "-",
        purpose=_purpose(certificate),
        hosts=[str(one.value) for one in alternatives_of(certificate)],
        until=f"{until:%Y-%m-%d}",
        days_left=(until - now).days,
    )


def _purpose(certificate: "x509.Certificate") -> str:
    from cryptography import x509

    from overlane.certificates import PURPOSES

    try:
        uses = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return "authority"
    return next((purpose for purpose, needed in PURPOSES.items() if set(needed) == uses), "other")


def _authority(directory: Path) -> "Issued":
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from overlane.certificates import Issued

    path = directory / f"{CA}.key"
    allowed = "the key of an authority that `overlane certs init` has made"
    try:
        key = load_pem_private_key(read_secret_file(path, allowed), None)
    except ConfigError as error:
        fail(error)
    except (ValueError, TypeError):
        fail(f"{path}: found no key that can be read, allowed is {allowed}")
    certificate = _certificates(directory / f"{CA}.pem")[0]
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        fail(f"{path}: found another key than that of {CA}.pem, allowed is {allowed}")
    return Issued(certificate, key)


def _certificates(path: Path) -> "list[x509.Certificate]":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as refused:
        fail(f"{path}: found no way to read it ({reason_of(refused)}), allowed is a certificate in PEM")
    except ValueError:
        fail(f"{path}: found no certificate, allowed is a certificate in PEM")


def _write(directory: Path, name: str, issued: "Issued") -> None:
    """The key first: a broker that starts between the two refuses the pair, and does not use a key without its own."""
    try:
        rewrite_secret_file(directory / f"{name}.key", lambda _old: issued.key_pem())
        rewrite_secret_file(directory / f"{name}.pem", lambda _old: issued.certificate_pem())
        (directory / f"{name}.pem").chmod(0o644)
    except OSError as refused:
        fail(f"{directory / name}.pem: cannot be written: {reason_of(refused)}", UNAVAILABLE)


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", name) or name == CA:
        fail(f"found the name {name!r}, allowed are 1 to 64 letters, digits, '-', '_', '.', '@', and not \"{CA}\"")


def _host(name: str) -> "x509.GeneralName":
    from overlane.certificates import host

    try:
        return host(name)
    except ValueError:
        fail(f"found the host {name!r}, allowed is a host name or an IP address")
