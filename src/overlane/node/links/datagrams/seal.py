"""Datagrams between two brokers: their bytes, and their authentication.

     0         8          14     15
    +---------+----------+------+-----------------------+--------+-----+
    | session | number   | kind | acknowledgement       | frames | tag |
    +---------+----------+------+-----------------------+--------+-----+
      u64       u48        u8     highest u48 | delay u16 (16 us) | earlier u64, if the kind says so

The receiver chose the session at random when the two brokers greeted each other; it identifies the link of a datagram.
Its last byte is the path: 0 for the path of the connection, others for further paths of the link. The number grows by
one with every datagram of a path, and is never reused; nor is the number of a path.

If the link is encrypted or has a secret, there is a key for each direction: everything after the number is sealed with
ChaCha20-Poly1305 (RFC 8439) under it; path and number are the nonce; session and number are authenticated. A key is
used for one greeting only. Without a key there is no tag, and datagrams with an unknown session are dropped.

A datagram is accepted only once; one that is too old to be checked for that is rejected (RFC 4303, 3.4.3). No I/O, no
clock.
"""

import struct
from enum import Enum, IntFlag
from typing import NamedTuple, Protocol

from overlane.core.wire import frame_codec
from overlane.errors import OverlaneError, ProtocolViolation

DATAGRAM_BYTES_MAX = 1_232
"""With the headers of IPv6 and UDP, what every link of the Internet takes in one packet (RFC 8200, 5)."""
KEY_BYTES = 32
TAG_BYTES = 16
NUMBER_MAX = (1 << 48) - 1
REPLAY_WINDOW = 1_024
PATH_MAX = 255
"""Numbers of paths fit the last byte of a session."""

_HEAD = struct.Struct("!QHI")
_CAME = struct.Struct("!HIHQ")
_SESSION = struct.Struct("!Q")
_NONCE = struct.Struct("!IQ")

HEAD_BYTES = _HEAD.size
FRAMES_BYTES_MAX = DATAGRAM_BYTES_MAX - HEAD_BYTES - 1 - _CAME.size - TAG_BYTES
"""What a datagram carries at most, whatever else is in it."""

_FRAMES_ALLOWED = frozenset(
    {
        frame_codec.FrameType.PING,
        frame_codec.FrameType.PONG,
        frame_codec.FrameType.HOP_ACK,
        frame_codec.FrameType.PARCEL,
        frame_codec.FrameType.DETOUR,
        frame_codec.FrameType.ROUTE,
    }
)


class DatagramKind(IntFlag):
    TELLS = 1
    """It contains an acknowledgement."""
    ASKS = 2
    """Its receiver must acknowledge it soon."""
    PROBE = 4
    """Its receiver must acknowledge it at once. It contains only padding, or a notice."""
    NOTICE = 8
    """A probe with a notice about the paths of the link (`watched_path`)."""


class DatagramRefusal(Enum):
    """Why a datagram is dropped. It is counted, with no other effect."""

    MALFORMED = "malformed"
    FORGED = "forged"
    REPLAYED = "replayed"


class DatagramRefused(OverlaneError):
    error_code = "OVL-306"

    def __init__(self, refusal: DatagramRefusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


class DatagramAck(NamedTuple):
    """Received datagrams: the highest number, how long ago, and bit i of earlier: highest-1-i."""

    highest: int
    delay_us: int
    earlier: int


class Opened(NamedTuple):
    number: int
    kind: int
    came: DatagramAck | None
    frames: bytes
    is_newest: bool
    """No later one has come before it."""


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


def new_session(random_bits: int) -> int:
    """A session from 64 random bits. One whose last byte is not zero is of a broker that knows of one path only."""
    return random_bits & ~PATH_MAX


def session_of(datagram: bytes | memoryview) -> int | None:
    return int(_SESSION.unpack_from(datagram)[0]) if len(datagram) > HEAD_BYTES else None


class Sealer:
    """Our direction of a session that the other end named."""

    def __init__(self, session: int, key: bytes | None, path: int = 0) -> None:
        self._session = session + path
        self._path = path
        self._cipher = _cipher(key) if key is not None else None
        self.number = 0
        """Of the last one sealed."""

    def seal(self, kind: int, came: DatagramAck | None, frames: bytes = b"", *, size_bytes: int = 0) -> bytes:
        """A datagram; padded to a size, where it has one."""
        if self.number >= NUMBER_MAX:
            raise OverflowError("a number would be used twice")
        self.number += 1
        head = _HEAD.pack(self._session, self.number >> 32, self.number & 0xFFFFFFFF)
        if came is None:
            plain = b"%c%b" % (kind, frames)
        else:
            highest, delay_us, earlier = came
            told = _CAME.pack(highest >> 32, highest & 0xFFFFFFFF, min(delay_us >> 4, 0xFFFF), earlier)
            plain = b"%c%b%b" % (kind | DatagramKind.TELLS, told, frames)
        tag_bytes = TAG_BYTES if self._cipher is not None else 0
        plain = plain.ljust(size_bytes - HEAD_BYTES - tag_bytes, b"\0")
        if self._cipher is None:
            return head + plain
        return head + self._cipher.encrypt(_NONCE.pack(self._path, self.number), plain, head)


class Opener:
    """The other end's direction of the session that we named."""

    def __init__(self, key: bytes | None, path: int = 0) -> None:
        self._cipher = _cipher(key) if key is not None else None
        self._path = path
        self.notice = b""
        """Of the last probe; whoever reads it empties it."""
        self.highest = 0
        self._seen = 0
        """Bit i: highest-i has come."""

    @property
    def earlier(self) -> int:
        """Bit i: highest-1-i has come; of the last 64."""
        return (self._seen >> 1) & 0xFFFFFFFFFFFFFFFF

    def open(self, datagram: bytes) -> Opened:
        """DatagramRefused if it is not authentic, or is empty."""
        if len(datagram) <= HEAD_BYTES:
            raise DatagramRefused(DatagramRefusal.MALFORMED)
        _, high, low = _HEAD.unpack_from(datagram)
        number = high << 32 | low
        self._check_fresh(number)
        plain = self._plain(datagram, number)
        kind, at, came = plain[0] if plain else 0, 1, None
        if kind & DatagramKind.TELLS:
            if len(plain) < 1 + _CAME.size:
                raise DatagramRefused(DatagramRefusal.MALFORMED)
            high, low, delay, earlier = _CAME.unpack_from(plain, 1)
            came, at = DatagramAck(high << 32 | low, delay << 4, earlier), 1 + _CAME.size
        if kind & DatagramKind.PROBE:
            frames = b""
            self.notice = plain[at:] if kind & DatagramKind.NOTICE else b""
        else:
            frames = plain[at:]
        if not plain or not _is_whole(frames):
            raise DatagramRefused(DatagramRefusal.MALFORMED)
        is_newest = number > self.highest
        self._remember(number)
        return Opened(number, kind, came, frames, is_newest)

    def _check_fresh(self, number: int) -> None:
        behind = self.highest - number
        if number == 0 or behind >= REPLAY_WINDOW or (behind >= 0 and self._seen >> behind & 1):
            raise DatagramRefused(DatagramRefusal.REPLAYED)

    def _plain(self, datagram: bytes, number: int) -> bytes:
        if self._cipher is None:
            return datagram[HEAD_BYTES:]
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(_NONCE.pack(self._path, number), datagram[HEAD_BYTES:], datagram[:HEAD_BYTES])
        except InvalidTag:
            raise DatagramRefused(DatagramRefusal.FORGED) from None

    def _remember(self, number: int) -> None:
        if number > self.highest:
            shift = number - self.highest
            self._seen = (self._seen << shift if shift < REPLAY_WINDOW else 0) | 1
            self._seen &= (1 << REPLAY_WINDOW) - 1
            self.highest = number
        else:
            self._seen |= 1 << (self.highest - number)


def _is_whole(frames: bytes) -> bool:
    """Whether it is nothing but whole frames of the kinds that may be lost one by one."""
    try:
        found, used = frame_codec.split(frames)
    except ProtocolViolation:
        return False
    return used == len(frames) and all(kind in _FRAMES_ALLOWED for kind, _ in found)


def _cipher(key: bytes) -> _Cipher:
    # Only links with a key pay for loading it.
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key)
