"""NKeys: public keys of users as NATS writes them, and signatures made with them.

    base 32, without padding: prefix u8 | Ed25519 public key, 32 bytes | CRC-16/XMODEM of both, little endian

The prefix of a user's key makes the text begin with `U`. Private keys ("seeds") begin with `S` and belong to clients
alone: one that is found in a users file is reported without being shown.
"""

import base64
import binascii

NKEY_CHARS = 56
USER_PREFIX = 20 << 3
SIGNATURE_BYTES = 64


def public_key(nkey: str) -> bytes | None:
    """The 32 bytes of a user's public key; None if the text is none."""
    if len(nkey) != NKEY_CHARS or not nkey.isascii():
        return None
    try:
        raw = base64.b32decode(nkey)
    except binascii.Error:
        return None
    if raw[0] != USER_PREFIX or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return None
    return raw[1:-2]


def has_signed(nkey: str, challenge: bytes, signature: bytes) -> bool:
    """Whether the signature of the challenge was made with the private key of this public one."""
    key = public_key(nkey)
    if key is None or len(signature) != SIGNATURE_BYTES:
        return False
    # Only where it is needed: few brokers have such users, and it takes some MiB.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, challenge)
    except (InvalidSignature, ValueError):
        return False
    return True
