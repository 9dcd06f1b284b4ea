"""The proof of an incarnation: the owner of a broker's certificate signs the incarnation under which it runs.

    proof       msgpack [certificates (DER), signature]     the broker's own first, each issued by the next
    signature   of 64 blanks | "Overlane, birth of a broker" | 0 | incarnation u32 | name, by the key of the first one

It is valid if the first certificate names the broker as required on a link (`brokers_of`), had not expired when this
incarnation began, which is the value of the incarnation in seconds, and leads to an authority in `client_ca` over
certificates that may issue others. It remains valid if the certificate has expired since: the incarnation continues,
and links check certificates themselves. Certificates are checked from the authority down, so that no key is used before
it is certified.

The blanks, as in TLS, and the text after them separate this signature from those that the same key makes in a
handshake, in which the other side chooses the first bytes.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from overlane.core.wire.frame_codec import NAME_BYTES_MAX
from overlane.core.wire.message_fields import PROOF_BYTES_MAX
from overlane.errors import OverlaneError
from overlane.network.schema import Security
from overlane.node.security.tls import brokers_of

CERTIFICATES_MAX = 8

_CONTEXT = b" " * 64 + b"Overlane, birth of a broker\0"
_HASH = hashes.SHA256()
_PADDING = padding.PSS(padding.MGF1(_HASH), padding.PSS.DIGEST_LENGTH)
_WEAK = hashes.MD5, hashes.SHA1
_PURPOSES = {
    ExtendedKeyUsageOID.SERVER_AUTH,
    ExtendedKeyUsageOID.CLIENT_AUTH,
    ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
}
_HEEDED = {
    ExtensionOID.BASIC_CONSTRAINTS,
    ExtensionOID.KEY_USAGE,
    ExtensionOID.EXTENDED_KEY_USAGE,
    ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
}
_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    msgspec.MsgspecError,
)

log = logging.getLogger("overlane.link")


class ProofRejected(OverlaneError):
    """Why a proof proves nothing."""

    error_code = "OVL-305"


class _Proof(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    certificates: list[bytes]
    signature: bytes


class CertifiedIdentity:
    """Who this broker is by its certificate, and who others are by theirs: an `incarnation_proofs.BrokerIdentity`."""

    def __init__(self, broker: str, incarnation: int, security: Security) -> None:
        """From valid files: `tls` has reported errors in them before."""
        self.proof: bytes | None = None
        self._authorities: set[x509.Certificate] = set()
        try:
            self._authorities |= set(x509.load_pem_x509_certificates(_read(security.client_ca)))
            proof = prove(broker, incarnation, _read(security.certificate), _read(security.key))
            self.check(broker, incarnation, proof)
            self.proof = proof
        except (ProofRejected, *_UNREADABLE) as why:
            log.warning("cannot prove the incarnation of %s to brokers other than neighbours: %s", broker, why)

    def is_valid_proof(self, broker: str, incarnation: int, proof: bytes) -> bool:
        try:
            self.check(broker, incarnation, proof)
        except ProofRejected as why:
            log.warning("rejected the incarnation proof of %s: %s", broker, why)
            return False
        return True

    def check(self, broker: str, incarnation: int, proof: bytes) -> None:
        """ProofRejected if it is."""
        if len(proof) > PROOF_BYTES_MAX:
            raise ProofRejected(f"a proof of {len(proof)} bytes, more than {PROOF_BYTES_MAX}")
        try:
            shown = msgspec.msgpack.decode(proof, type=_Proof)
            if not 0 < len(shown.certificates) <= CERTIFICATES_MAX:
                raise ProofRejected(f"{len(shown.certificates)} certificates, allowed are 1 to {CERTIFICATES_MAX}")
            chain = [x509.load_der_x509_certificate(one) for one in shown.certificates]
            own = chain[0]
            if broker not in (named := _brokers_in(own)):
                raise ProofRejected(f"a certificate of {', '.join(sorted(named))[:NAME_BYTES_MAX]!a}")
            if incarnation > own.not_valid_after_utc.timestamp():
                raise ProofRejected("a certificate that had expired")
            if not any(_holds(path) for path in self._paths(chain)):
                raise ProofRejected("a certificate of no authority that is known here")
            _verify(own, shown.signature, _statement(broker, incarnation))
        except InvalidSignature:
            raise ProofRejected("another key's signature") from None
        except _UNREADABLE as unreadable:
            raise ProofRejected(f"a proof that cannot be read ({unreadable})") from None

    def _paths(self, chain: Sequence[x509.Certificate]) -> Iterator[list[x509.Certificate]]:
        """From the broker's own certificate to that of an authority, by their names."""
        for place, last in enumerate(chain):
            if last in self._authorities:
                yield [*chain[: place + 1]]
            for authority in self._authorities:
                if authority.subject == last.issuer:
                    yield [*chain[: place + 1], authority]


def prove(broker: str, incarnation: int, certificates: bytes, key: bytes) -> bytes:
    """That the broker lives under this incarnation; its certificate and those behind it, and its key, are PEM."""
    chain = x509.load_pem_x509_certificates(certificates)
    signature = _sign(load_pem_private_key(key, None), _statement(broker, incarnation))
    return msgspec.msgpack.encode(_Proof([one.public_bytes(Encoding.DER) for one in chain], signature))


def _statement(broker: str, incarnation: int) -> bytes:
    return _CONTEXT + incarnation.to_bytes(4) + broker.encode()


def _sign(key: object, statement: bytes) -> bytes:
    match key:
        case rsa.RSAPrivateKey():
            return key.sign(statement, _PADDING, _HASH)
        case ec.EllipticCurvePrivateKey():
            return key.sign(statement, ec.ECDSA(_HASH))
        case ed25519.Ed25519PrivateKey() | ed448.Ed448PrivateKey():
            return key.sign(statement)
        case _:
            raise ProofRejected("a key of a kind that signs nothing here")


def _verify(certificate: x509.Certificate, signature: bytes, statement: bytes) -> None:
    match key := certificate.public_key():
        case rsa.RSAPublicKey():
            key.verify(signature, statement, _PADDING, _HASH)
        case ec.EllipticCurvePublicKey():
            key.verify(signature, statement, ec.ECDSA(_HASH))
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            key.verify(signature, statement)
        case _:
            raise ProofRejected("a key of a kind that signs nothing here")


def _holds(path: Sequence[x509.Certificate]) -> bool:
    """Whether each certificate was issued by the one behind it, which may do so; the last one is trusted."""
    try:
        if not all(_is_for_links(one) for one in path):
            return False
        for place in range(len(path) - 1, 0, -1):
            issuer, issued = path[place], path[place - 1]
            if not _may_issue(issuer, between=place - 1) or isinstance(issued.signature_hash_algorithm, _WEAK):
                return False
            issued.verify_directly_issued_by(issuer)
    except (InvalidSignature, *_UNREADABLE):
        return False
    return True


def _may_issue(certificate: x509.Certificate, between: int) -> bool:
    """Whether it is one of an authority, for so many other authorities between it and the broker."""
    found = {one.oid: one.value for one in certificate.extensions}
    constraints, usage = found.get(ExtensionOID.BASIC_CONSTRAINTS), found.get(ExtensionOID.KEY_USAGE)
    if not isinstance(constraints, x509.BasicConstraints) or not constraints.ca:
        return False
    if constraints.path_length is not None and between > constraints.path_length:
        return False
    return not isinstance(usage, x509.KeyUsage) or usage.key_cert_sign


def _is_for_links(certificate: x509.Certificate) -> bool:
    """Whether it may be used on links, and has no extension that must be evaluated but is not."""
    for one in certificate.extensions:
        if one.oid == ExtensionOID.NAME_CONSTRAINTS or (one.critical and one.oid not in _HEEDED):
            return False
        if isinstance(one.value, x509.ExtendedKeyUsage) and not _PURPOSES & set(one.value):
            return False
    return True


def brokers_in_file(path: str | None) -> frozenset[str]:
    """Whom a certificate in a file names; nobody where it cannot be read."""
    try:
        return _brokers_in(x509.load_pem_x509_certificates(_read(path))[0])
    except (ProofRejected, IndexError, *_UNREADABLE):
        return frozenset()


def _brokers_in(certificate: x509.Certificate) -> frozenset[str]:
    """Whom it names, by the rule for links."""
    alternatives = [one.value for one in certificate.extensions if isinstance(one.value, x509.SubjectAlternativeName)]
    names = [name for found in alternatives for name in found.get_values_for_type(x509.DNSName)]
    return brokers_of({"subjectAltName": [("DNS", name) for name in names]})


def _read(path: str | None) -> bytes:
    try:
        return Path(path or "").read_bytes()
    except OSError as refused:
        raise ProofRejected(str(refused)) from None
