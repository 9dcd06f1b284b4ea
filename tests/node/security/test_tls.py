"""TLS: who gets through the handshake, whom a certificate names, and what is said of wrong files."""

import os
import ssl
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from overlane.errors import ConfigError
from overlane.network import Security
from overlane.node.security.tls import client_context, server_context, user_of
from overlane.secret_file import others_can_read
from overlane.testbed.certificates import Authority, Identity

CERTIFICATE = "a file with a certificate in PEM, -----BEGIN CERTIFICATE-----"
KEY = "a file with the private key of the certificate in PEM, without a passphrase"
AUTHORITIES = "a file with the certificates of authorities in PEM, -----BEGIN CERTIFICATE-----"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> Identity:
    return authority.server()


def security(server: Identity, client_ca: Path | None = None, *, is_required: bool = True) -> Security:
    return Security(
        certificate=str(server.certificate),
        key=str(server.key),
        client_ca=None if client_ca is None else str(client_ca),
        client_certificate="required" if is_required else "optional",
    )


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """The server's side of a handshake. SSLError when either side refuses."""
    return both_sides(server, client, host)[0]


def both_sides(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost", session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both sides in memory until they agree."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    servers = server.wrap_bio(to_server, to_client, server_side=True)
    clients = client.wrap_bio(to_client, to_server, server_hostname=host, session=session)
    # In TLS 1.3 the client is done before the server has judged its certificate, so both have to be.
    waiting = [clients, servers]
    for _ in range(10):
        for side in tuple(waiting):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
                waiting.remove(side)
    assert not waiting
    return servers, clients


def test_a_client_that_trusts_the_authority_gets_through(authority: Authority, server: Identity) -> None:
    done = shake_hands(server_context(security(server)), client_context(ca=authority.ca))
    assert done.version() == "TLSv1.3"
    assert user_of(done.getpeercert()) is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_names_of_a_server_are_checked(authority: Authority, tmp_path: Path, host: str) -> None:
    other = Authority(tmp_path, "other-ca")
    elsewhere = server_context(security(authority.server("elsewhere", hosts=["example.org"])))
    here = server_context(security(authority.server("here")))
    shake_hands(here, client_context(ca=authority.ca), host)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch"):
        shake_hands(elsewhere, client_context(ca=authority.ca), host)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"issuer|self-signed|verify"):
        shake_hands(here, client_context(ca=other.ca), host)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"issuer|self-signed|verify"):
        shake_hands(here, client_context(), host)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_1_1_is_refused_and_1_2_is_not(authority: Authority, server: Identity) -> None:
    client = client_context(ca=authority.ca)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake_hands(server_context(security(server)), client).version() == "TLSv1.2"
    client.set_ciphers("DEFAULT:@SECLEVEL=0")
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match=r"PROTOCOL|protocol|version|VERSION"):
        shake_hands(server_context(security(server)), client)


def test_a_client_certificate_names_the_user(authority: Authority, server: Identity) -> None:
    alice = authority.client("alice")
    listener = server_context(security(server, authority.ca))
    done = shake_hands(listener, client_context(ca=authority.ca, certificate=alice.certificate, key=alice.key))
    assert user_of(done.getpeercert()) == "alice"


@pytest.mark.parametrize(
    ("dns", "emails", "user"),
    [
        (["sensor-1.example.org", "x.org"], [], "sensor-1.example.org"),
        ([], ["alice@example.org"], "alice@example.org"),
        (["sensor-1.example.org"], ["alice@example.org"], "sensor-1.example.org"),
    ],
)
def test_without_a_common_name_the_first_alternative_does(
    authority: Authority, server: Identity, dns: list[str], emails: list[str], user: str
) -> None:
    client = authority.client("some", has_common_name=False, dns=dns, emails=emails)
    done = shake_hands(
        server_context(security(server, authority.ca)),
        client_context(ca=authority.ca, certificate=client.certificate, key=client.key),
    )
    assert user_of(done.getpeercert()) == user


def test_a_client_without_a_certificate_gets_in_only_where_it_is_optional(
    authority: Authority, server: Identity
) -> None:
    with pytest.raises(ssl.SSLError, match=r"(?i)did.not.return.a.certificate"):
        shake_hands(server_context(security(server, authority.ca)), client_context(ca=authority.ca))
    optional = server_context(security(server, authority.ca, is_required=False))
    assert user_of(shake_hands(optional, client_context(ca=authority.ca)).getpeercert()) is None


@pytest.mark.parametrize("is_required", [True, False])
def test_a_certificate_that_cannot_be_trusted_is_refused_even_where_none_is_needed(
    authority: Authority, server: Identity, tmp_path: Path, is_required: bool
) -> None:
    listener = server_context(security(server, authority.ca, is_required=is_required))
    stranger = Authority(tmp_path, "other-ca").client("alice")
    too_late = authority.client("late", days=-3)
    no_client = authority.server("no-client")
    for identity in (stranger, too_late, no_client):
        client = client_context(ca=authority.ca, certificate=identity.certificate, key=identity.key)
        with pytest.raises(ssl.SSLError, match=r"(?i)certificate.verify.failed"):
            shake_hands(listener, client)


def test_new_files_hold_for_a_new_context_and_no_session_goes_over(authority: Authority, tmp_path: Path) -> None:
    server = authority.server()
    other = Authority(tmp_path, "other-ca")
    alice = authority.client("alice")
    client = client_context(ca=authority.ca, certificate=alice.certificate, key=alice.key)
    client.load_verify_locations(other.ca)
    client.maximum_version = ssl.TLSVersion.TLSv1_2  # the client has the session as soon as hands are shaken
    before = server_context(security(server, authority.ca))
    session = both_sides(before, client)[1].session
    assert both_sides(before, client, session=session)[1].session_reused

    other.server()  # into the same files
    after = server_context(security(server, other.ca))
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.verify.failed"):
        both_sides(after, client, session=session)


@pytest.mark.parametrize(
    ("certificate", "user"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("countryName", "DE"),), (("commonName", "alice"),))}, "alice"),
        ({"subject": ((("countryName", "DE"), ("commonName", "alice")),)}, "alice"),
        ({"subject": ((("commonName", "alice"),), (("commonName", "root"),))}, None),
        ({"subject": ((("commonName", ""),),), "subjectAltName": (("DNS", "a.org"),)}, None),
        ({"subject": ((("commonName", "alice\0root"),),)}, None),
        ({"subject": ((("commonName", "alice\n"),),)}, None),
        ({"subject": ((("commonName", "x" * 257),),)}, None),
        ({"subject": ((("countryName", "DE"),),), "subjectAltName": (("IP Address", "10.0.0.1"),)}, None),
        ({"subject": (), "subjectAltName": (("URI", "urn:x"), ("email", "a@b.org"), ("DNS", "c.org"))}, "a@b.org"),
    ],
)
def test_a_certificate_names_one_user_for_certain_or_none(
    certificate: Mapping[str, object] | None, user: str | None
) -> None:
    assert user_of(certificate) == user


def refused(security: Security) -> list[str]:
    with pytest.raises(ConfigError) as error:
        server_context(security)
    return str(error.value).splitlines()


def test_all_files_that_are_missing_are_told_at_once(tmp_path: Path) -> None:
    missing = Identity(tmp_path / "server.pem", tmp_path / "server.key")
    why = "found no way to read it (No such file or directory), allowed is"
    assert refused(security(missing, tmp_path / "ca.pem")) == [
        f"{tmp_path}/server.pem: {why} {CERTIFICATE}",
        f"{tmp_path}/server.key: {why} {KEY}",
        f"{tmp_path}/ca.pem: {why} {AUTHORITIES}",
    ]


def test_files_put_in_each_others_place_are_told(server: Identity) -> None:
    swapped = Identity(certificate=server.key, key=server.certificate)
    assert refused(security(swapped, server.key)) == [
        f"{server.key}: found a file without one, allowed is {CERTIFICATE}",
        f"{server.certificate}: found a file without one, allowed is {KEY}",
        f"{server.key}: found a file without one, allowed is {AUTHORITIES}",
    ]


def test_a_key_of_another_certificate_is_told(authority: Authority, server: Identity) -> None:
    other = authority.server("other")
    assert refused(security(Identity(server.certificate, other.key))) == [
        f"{other.key}: found a key that is not that of {server.certificate}, allowed is {KEY}"
    ]


def test_damaged_files_are_told(server: Identity, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n")
    damaged_key = tmp_path / "damaged.key"
    damaged_key.write_text("-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n")
    (told,) = refused(security(Identity(damaged, server.key)))
    assert told.startswith(f"{damaged}: found a certificate that cannot be used (")
    (told,) = refused(security(Identity(server.certificate, damaged_key)))
    assert told.startswith(f"{damaged_key}: found a key that cannot be used (")
    (told,) = refused(security(server, damaged))
    assert told.startswith(f"{damaged}: found certificates that cannot be used (")


def test_a_key_with_a_passphrase_is_told_and_not_asked_for(server: Identity) -> None:
    key = serialization.load_pem_private_key(server.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    server.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"sesame"),
        )
    )
    assert refused(security(server)) == [f"{server.key}: found a key with a passphrase, allowed is {KEY}"]


def test_tls_without_a_certificate_or_its_key_is_told() -> None:
    assert refused(Security()) == [f"security: certificate: found nothing, allowed is the path of {CERTIFICATE}"]
    assert refused(Security(certificate="a.pem")) == [f"security: key: found nothing, allowed is the path of {KEY}"]


def test_a_client_is_told_of_wrong_files_too(tmp_path: Path, server: Identity) -> None:
    with pytest.raises(ConfigError, match=r"none.pem: found no way to read it"):
        client_context(ca=tmp_path / "none.pem")
    with pytest.raises(ConfigError, match=r"key: found nothing"):
        client_context(certificate=server.certificate)


def test_no_environment_makes_a_context_log_its_keys(server: Identity, tmp_path: Path) -> None:
    log = tmp_path / "keys.log"
    program = (
        "from overlane.network import Security; from overlane.node.security.tls import client_context, server_context;"
        f"c = server_context(Security(certificate={str(server.certificate)!r}, key={str(server.key)!r}));"
        "assert c.keylog_filename is None and client_context().keylog_filename is None"
    )
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "SSLKEYLOGFILE": str(log)}, check=True)
    assert not log.exists()


def test_throw_away_keys_are_their_owners_alone(server: Identity) -> None:
    assert not others_can_read(server.key)
