"""Frames of connections that an MQTT broker carries, sealed so that the carrier need not be trusted; pure.

    topic    PREFIX/DESTINATION/SOURCE
    message  nonce (12 bytes), then sealed with ChaCha20-Poly1305:
             kind (1), connection (8), sequence (4), data

    OPEN     somebody dials; sequence 0
    DATA     the next bytes; sequences count from 1 in each direction
    TAKEN    all up to this sequence was handed on
    CLOSE    the connection has ended

The key is made of the overlay's secret and the names of both brokers, one for each direction: what is sealed for one
broker is nothing to another. The carrier can delay, drop or repeat messages. A repeated frame is dropped, a gap ends
the connection, and a repeated OPEN leads to a greeting that it cannot answer.

No more than `WINDOW` frames are under way, so the carrier's queues stay short and a slow end slows the other down.
"""

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from overlane.secret import Secret

DATA_BYTES_MAX = 16 * 1024
WINDOW = 64
NONCE_BYTES = 12
TAG_BYTES = 16
_HEAD = struct.Struct("!BQL")
FRAME_BYTES_MAX = NONCE_BYTES + _HEAD.size + DATA_BYTES_MAX + TAG_BYTES


class FrameKind(IntEnum):
    OPEN = 1
    DATA = 2
    TAKEN = 3
    CLOSE = 4


class CarrierFrame(NamedTuple):
    kind: FrameKind
    connection: int
    sequence: int = 0
    data: bytes = b""


class FrameSeal:
    """One direction between two brokers."""

    def __init__(self, secret: Secret, source: str, destination: str) -> None:
        info = b"overlane carrier\0" + source.encode() + b"\0" + destination.encode()
        self._cipher = ChaCha20Poly1305(HKDF(SHA256(), 32, None, info).derive(secret.reveal()))

    def seal(self, frame: CarrierFrame, nonce: bytes) -> bytes:
        plain = _HEAD.pack(frame.kind, frame.connection, frame.sequence) + frame.data
        return nonce + self._cipher.encrypt(nonce, plain, None)

    def open(self, message: bytes) -> CarrierFrame | None:
        """None if it was not sealed by the source for the destination."""
        if not NONCE_BYTES + _HEAD.size + TAG_BYTES <= len(message) <= FRAME_BYTES_MAX:
            return None
        try:
            plain = self._cipher.decrypt(message[:NONCE_BYTES], message[NONCE_BYTES:], None)
            kind, connection, sequence = _HEAD.unpack_from(plain)
            return CarrierFrame(FrameKind(kind), connection, sequence, plain[_HEAD.size :])
        except (InvalidTag, ValueError):
            return None


@dataclass(slots=True)
class CarriedConnection:
    """The order and the window of one connection, seen from one end."""

    sent: int = 0
    taken: int = 0
    """Of what was sent, by the other end."""
    received: int = 0
    handed_on: int = field(default=0)

    @property
    def has_room(self) -> bool:
        return self.sent - self.taken < WINDOW

    def next_sequence(self) -> int:
        self.sent += 1
        return self.sent

    def arrived(self, sequence: int) -> bool | None:
        """Whether data is to be handed on: False if it was before, None if something before it is missing."""
        if sequence <= self.received:
            return False
        if sequence > self.received + 1:
            return None
        self.received = sequence
        return True

    def was_taken(self, sequence: int) -> None:
        if self.taken < sequence <= self.sent:
            self.taken = sequence
