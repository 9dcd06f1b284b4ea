"""The proof of a birth: who can make one, and which are believed."""

import datetime
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import time

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from overlane.core.wire.message_fields import PROOF_BYTES_MAX
from overlane.network import Security
from overlane.node.security.incarnation_proof import CertifiedIdentity, prove
from overlane.testbed.certificates import Authority

NOW = int(time())
DAY = 86_400
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
EC: Callable[[], Key] = lambda: ec.generate_private_key(ec.SECP256R1())  # noqa: E731
KINDS: dict[str, Callable[[], Key]] = {
    "P-256": EC,
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "RSA": cache(lambda: rsa.generate_private_key(65537, 2048)),  # one for all: making it takes long
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
}


@dataclass(frozen=True)
class Holder:
    """A certificate, its key, and the certificates behind it."""

    certificate: x509.Certificate
    key: Key
    behind: tuple[x509.Certificate, ...] = ()

    @property
    def pem(self) -> bytes:
        return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in (self.certificate, *self.behind))

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def proves(self, broker: str, incarnation: int = NOW) -> bytes:
        return prove(broker, incarnation, self.pem, self.key_pem)


def issue(
    by: Holder | None,
    name: str,
    *,
    dns: Sequence[str] = (),
    ca: bool = False,
    path_length: int | None = None,
    more: Sequence[tuple[x509.ExtensionType, bool]] = (),
    make: Callable[[], Key] = EC,
    valid: tuple[int, int] = (NOW - DAY, NOW + DAY),
) -> Holder:
    """A certificate; signed by itself if by nobody else."""
    key = make()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.fromtimestamp(valid[0], datetime.UTC))
        .not_valid_after(datetime.datetime.fromtimestamp(valid[1], datetime.UTC))
        .add_extension(x509.BasicConstraints(ca, path_length), critical=True)
    )
    if dns:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in dns]), False)
    for extension, critical in more:
        builder = builder.add_extension(extension, critical)
    signer = by.key if by else key
    certificate = builder.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    is_behind = by is not None and by.certificate.subject != by.certificate.issuer
    return Holder(certificate, key, (by.certificate, *by.behind) if by and is_behind else ())


def usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(True, False, False, False, False, signs_certificates, False, False, False)


@pytest.fixture(scope="module")
def root() -> Holder:
    return issue(None, "ours", ca=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Holder, Sequence[Holder]], Security]:
    directory = tmp_path_factory.mktemp("files")

    def write(own: Holder, authorities: Sequence[Holder]) -> Security:
        (directory / "own.pem").write_bytes(own.pem)
        (directory / "own.key").write_bytes(own.key_pem)
        (directory / "ca.pem").write_bytes(b"".join(one.pem for one in authorities))
        return Security(
            certificate=str(directory / "own.pem"),
            key=str(directory / "own.key"),
            client_ca=str(directory / "ca.pem"),
            overlay_tls=True,
        )

    return write


@pytest.fixture(scope="module")
def hearer(root: Holder, files: Callable[[Holder, Sequence[Holder]], Security]) -> CertifiedIdentity:
    return CertifiedIdentity("a", NOW, files(issue(root, "a", dns=["a"]), [root]))


@pytest.mark.parametrize(
    ("kind", "authority"), [("P-256", "RSA"), ("RSA", "P-384"), ("P-384", "P-256"), ("Ed25519", "Ed25519")]
)
def test_a_broker_proves_its_life_by_any_key_that_links_take(
    files: Callable[[Holder, Sequence[Holder]], Security], kind: str, authority: str
) -> None:
    root = issue(None, "ours", ca=True, make=KINDS[authority])
    owner = CertifiedIdentity("c", NOW, files(issue(root, "c", dns=["c"], make=KINDS[kind]), [root]))
    other = CertifiedIdentity("a", NOW, files(issue(root, "a", dns=["a"]), [root]))
    assert owner.proof is not None
    assert other.is_valid_proof("c", NOW, owner.proof)
    assert not other.is_valid_proof("c", NOW + 1, owner.proof)
    assert not other.is_valid_proof("d", NOW, owner.proof)


def test_the_certificates_of_the_test_bed_do(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.broker("c")
    security = Security(certificate=str(own.certificate), key=str(own.key), client_ca=str(authority.ca))
    identity = CertifiedIdentity("c", NOW, security)
    assert identity.proof is not None
    assert identity.is_valid_proof("c", NOW, identity.proof)


def believed(root: Holder) -> dict[str, bytes]:
    line = issue(root, "line", ca=True, path_length=1, more=[(usage(signs_certificates=True), True)])
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    long_ago = issue(root, "c", dns=["c"], valid=(NOW - 9 * DAY, NOW - 7 * DAY))
    return {
        "of the authority": issue(root, "c", dns=["c"]).proves("c"),
        "over another": issue(line, "c", dns=["c"]).proves("c"),
        "over two others": issue(issue(line, "second", ca=True, path_length=0), "c", dns=["c"]).proves("c"),
        "with the authority behind it": Holder(*_with(issue(root, "c", dns=["c"]), root)).proves("c"),
        "for one end of links": issue(root, "c", dns=["c"], more=[(purpose, False)]).proves("c"),
        "begun by a clock that was slow": issue(root, "c", dns=["c"], valid=(NOW + 60, NOW + DAY)).proves("c"),
        "expired since": long_ago.proves("c", NOW - 8 * DAY),
    }


def _with(one: Holder, behind: Holder) -> tuple[x509.Certificate, Key, tuple[x509.Certificate, ...]]:
    return one.certificate, one.key, (*one.behind, behind.certificate)


BELIEVED = tuple(believed(issue(None, "ours", ca=True)))


@pytest.fixture(scope="module")
def true(root: Holder) -> dict[str, bytes]:
    return believed(root)


@pytest.mark.parametrize("kind", BELIEVED)
def test_a_life_is_believed(hearer: CertifiedIdentity, true: dict[str, bytes], kind: str) -> None:
    incarnation = NOW - 8 * DAY if kind == "expired since" else NOW
    assert hearer.is_valid_proof("c", incarnation, true[kind])


def not_believed(root: Holder) -> dict[str, bytes]:
    c, liar = issue(root, "c", dns=["c"]), issue(root, "liar", dns=["liar"])
    stranger = issue(None, "strangers", ca=True)
    namesake = issue(None, "ours", ca=True)
    short = issue(root, "short", ca=True, path_length=0)
    narrow = x509.NameConstraints([x509.DNSName("elsewhere")], None)
    unsigning = issue(root, "unsigning", ca=True, more=[(usage(signs_certificates=False), True)])
    narrowed = issue(root, "narrowed", ca=True, more=[(narrow, False)])
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
    for_code = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
    return {
        "of another key": Holder(c.certificate, liar.key).proves("c"),
        "of another name": liar.proves("c"),
        "for another name": c.proves("liar"),
        "of another life": c.proves("c", NOW - 1),
        "of another authority": issue(stranger, "c", dns=["c"]).proves("c"),
        "of another authority, which is behind it": Holder(*_with(issue(stranger, "c", dns=["c"]), stranger)).proves(
            "c"
        ),
        "of another authority of the same name": issue(namesake, "c", dns=["c"]).proves("c"),
        "by itself": issue(None, "c", dns=["c"], ca=True).proves("c"),
        "over one that is no authority": Holder(*_with(issue(liar, "c", dns=["c"]), liar)).proves("c"),
        "over one that may not sign": issue(unsigning, "c", dns=["c"]).proves("c"),
        "over more than are allowed": issue(issue(short, "second", ca=True), "c", dns=["c"]).proves("c"),
        "over one for other names": issue(narrowed, "c", dns=["c"]).proves("c"),
        "over one that is not shown": Holder(*_bare(issue(short, "c", dns=["c"]))).proves("c"),
        "with demands that are not understood": issue(root, "c", dns=["c"], more=[(unknown, True)]).proves("c"),
        "for other purposes": issue(root, "c", dns=["c"], more=[(for_code, False)]).proves("c"),
        "of a user": issue(root, "c").proves("c"),
        "of two other names": issue(root, "c", dns=["a", "d"]).proves("c"),
        "expired before": issue(root, "c", dns=["c"], valid=(NOW - 9 * DAY, NOW - 7 * DAY)).proves("c"),
        "without a certificate": msgspec.msgpack.encode([[], b"signed"]),
        "of nine certificates": Holder(c.certificate, c.key, (c.certificate,) * 8).proves("c"),
        "that is too long": msgspec.msgpack.encode([[bytes(PROOF_BYTES_MAX)], b"signed"]),
        "that is nothing": b"\xc0",
        "without a signature": msgspec.msgpack.encode([[c.certificate.public_bytes(serialization.Encoding.DER)], b""]),
    }


def _bare(one: Holder) -> tuple[x509.Certificate, Key]:
    return one.certificate, one.key


NOT_BELIEVED = tuple(not_believed(issue(None, "ours", ca=True)))


@pytest.fixture(scope="module")
def false(root: Holder) -> dict[str, bytes]:
    return not_believed(root)


@pytest.mark.parametrize("kind", NOT_BELIEVED)
def test_a_life_is_not_believed(hearer: CertifiedIdentity, false: dict[str, bytes], kind: str) -> None:
    assert not hearer.is_valid_proof("c", NOW, false[kind])


def test_a_certificate_whose_signature_is_of_a_weak_hash_is_not_believed(
    files: Callable[[Holder, Sequence[Holder]], Security],
) -> None:
    root = issue(None, "ours", ca=True, make=KINDS["RSA"])
    own = issue(root, "c", dns=["c"])
    hearer = CertifiedIdentity("a", NOW, files(issue(root, "a", dns=["a"]), [root]))
    assert hearer.is_valid_proof("c", NOW, own.proves("c"))
    assert isinstance(root.key, rsa.RSAPrivateKey)
    strong, weak = (bytes.fromhex(f"2a864886f70d0101{last}") for last in ("0b", "05"))
    der = own.certificate.public_bytes(serialization.Encoding.DER).replace(strong, weak)
    signed = x509.load_der_x509_certificate(der).tbs_certificate_bytes
    der = der[: -root.key.key_size // 8] + root.key.sign(signed, padding.PKCS1v15(), hashes.SHA1())
    assert not hearer.is_valid_proof("c", NOW, Holder(x509.load_der_x509_certificate(der), own.key).proves("c"))


@pytest.mark.parametrize("seed", range(3))
def test_a_proof_that_is_damaged_in_any_way_proves_nothing(root: Holder, hearer: CertifiedIdentity, seed: int) -> None:
    print("seed", seed)
    luck = random.Random(seed)
    line = issue(root, "line", ca=True)
    proof = issue(line, "c", dns=["c"]).proves("c")
    assert hearer.is_valid_proof("c", NOW, proof)
    for _ in range(300):
        damaged = bytearray(proof)
        for _ in range(luck.randrange(1, 4)):
            damaged[luck.randrange(len(damaged))] ^= luck.randrange(1, 256)
        assert damaged == proof or not hearer.is_valid_proof("c", NOW, bytes(damaged))
        assert not hearer.is_valid_proof("c", NOW, proof[: luck.randrange(len(proof))])
        assert not hearer.is_valid_proof("c", NOW, luck.randbytes(luck.randrange(200)))


def test_a_certificate_that_is_trusted_by_itself_needs_no_other(
    files: Callable[[Holder, Sequence[Holder]], Security],
) -> None:
    both = [issue(None, name, dns=[name], ca=True) for name in "ac"]
    owner = CertifiedIdentity("c", NOW, files(both[1], both))
    hearer = CertifiedIdentity("a", NOW, files(both[0], both))
    assert owner.proof is not None
    assert hearer.is_valid_proof("c", NOW, owner.proof)


@pytest.mark.parametrize("kind", ["another's certificate", "too many certificates", "an authority that is not known"])
def test_a_broker_that_cannot_prove_its_life_says_so_when_it_starts(
    root: Holder,
    files: Callable[[Holder, Sequence[Holder]], Security],
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    own = issue(root, "c", dns=["c"])
    cases = {
        "another's certificate": (issue(root, "d", dns=["d"]), root),
        "too many certificates": (Holder(own.certificate, own.key, (own.certificate,) * 8), root),
        "an authority that is not known": (own, issue(None, "theirs", ca=True)),
    }
    holder, authority = cases[kind]
    assert CertifiedIdentity("c", NOW, files(holder, [authority])).proof is None
    assert "cannot prove the incarnation of c to brokers other than neighbours" in caplog.text
