"""The greeting of two brokers: each proves who it is before anything else of it is read.

    hello   magic "OVLG" | version u8 | length u16 | msgpack [name, whom it wants, nonce]
    proof   length u8 | HMAC-SHA256 of role, both names and both nonces under the shared secret; empty without one

Who dials says hello first, the other answers with hello and proof, and the first with its proof. What a side says in
its proof names its role and both nonces, so that no proof is worth anything on another connection or the other way
round. A certificate, where the link has one, must be of the broker that the hello names. With neither secret nor
certificate a name is only believed where the connection comes from the same machine, or the file allows it.

No I/O: bytes go in, bytes come out. Nothing longer than a few hundred bytes is ever kept.
"""

import hmac
import struct
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import sha256

import msgspec

from overlane.core.wire import NAME_BYTES_MAX
from overlane.errors import ProtocolViolation
from overlane.mqtt.secret import Secret

MAGIC = b"OVLG"
VERSION = 1
NONCE_BYTES = 16
HELLO_BYTES_MAX = 2 * NAME_BYTES_MAX + NONCE_BYTES + 32
PROOF_BYTES = 32

_HEAD = struct.Struct("!4sBH")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is known and what is demanded. `certified`: the name in the neighbour's certificate."""

    me: str
    secret: Secret | None
    certified: str | None
    is_trusted_place: bool
    """Whether a mere name is believed here."""


class _Stage(Enum):
    HELLO = auto()
    PROOF = auto()
    DONE = auto()


@dataclass(slots=True)
class Greeting:
    """One connection's greeting. `peer`: whom we dial; "" where we are dialled."""

    credentials: Credentials
    nonce: bytes
    peer: str = ""
    _stage: _Stage = _Stage.HELLO
    _their_nonce: bytes = b""
    _buffer: bytearray = field(default_factory=bytearray)
    _dials: bool = field(init=False)

    def __post_init__(self) -> None:
        self._dials = bool(self.peer)

    @property
    def is_done(self) -> bool:
        return self._stage is _Stage.DONE

    def opening(self) -> bytes:
        """What to send at once."""
        return self._hello() if self._dials else b""

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """What to answer, and what of the data lies behind the greeting; ProtocolViolation if it is not believed."""
        self._buffer += data
        answer = b""
        if self._stage is _Stage.HELLO and self._read_hello():
            self._stage = _Stage.PROOF
            answer = self._proof(self._dials) if self._dials else self._hello() + self._proof(self._dials)
        if self._stage is _Stage.PROOF and self._read_proof():
            self._stage = _Stage.DONE
            rest = bytes(self._buffer)
            self._buffer.clear()
            return answer, rest
        return answer, b""

    def _hello(self) -> bytes:
        body = msgspec.msgpack.encode([self.credentials.me, self.peer, self.nonce])
        return _HEAD.pack(MAGIC, VERSION, len(body)) + body

    def _read_hello(self) -> bool:
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            if not MAGIC.startswith(bytes(buffer[: len(MAGIC)])) and buffer[: len(MAGIC)] != MAGIC:
                raise ProtocolViolation("not a broker of this overlay")
            return False
        magic, version, length = _HEAD.unpack_from(buffer)
        if magic != MAGIC:
            raise ProtocolViolation("not a broker of this overlay")
        if version != VERSION:
            raise ProtocolViolation(f"greets in version {version}, understood is {VERSION}")
        if length > HELLO_BYTES_MAX:
            raise ProtocolViolation("a hello of too many bytes")
        if len(buffer) < _HEAD.size + length:
            return False
        body = bytes(buffer[_HEAD.size : _HEAD.size + length])
        del buffer[: _HEAD.size + length]
        try:
            name, wanted, nonce = msgspec.msgpack.decode(body, type=tuple[str, str, bytes])
        except msgspec.MsgspecError:
            raise ProtocolViolation("a hello that says nothing") from None
        self._check(name, wanted, nonce)
        self.peer, self._their_nonce = name, nonce
        return True

    def _check(self, name: str, wanted: str, nonce: bytes) -> None:
        mine = self.credentials
        if len(nonce) != NONCE_BYTES or nonce == self.nonce:
            raise ProtocolViolation("a hello without a nonce of its own")
        if self._dials and name != self.peer:
            raise ProtocolViolation(f"calls itself {name[:NAME_BYTES_MAX]!a}, expected {self.peer}")
        if wanted not in ((mine.me, "") if self._dials else (mine.me,)):
            raise ProtocolViolation(f"wants {wanted[:NAME_BYTES_MAX]!a}, this is {mine.me}")
        if name == mine.me:
            raise ProtocolViolation("calls itself by our own name")
        if mine.certified is not None and mine.certified != name:
            raise ProtocolViolation(f"calls itself {name[:NAME_BYTES_MAX]!a}, its certificate says {mine.certified!a}")
        if mine.certified is None and mine.secret is None and not mine.is_trusted_place:
            raise ProtocolViolation("comes from another machine without certificate or secret")

    def _read_proof(self) -> bool:
        buffer = self._buffer
        if not buffer:
            return False
        length = buffer[0]
        if length not in (0, PROOF_BYTES):
            raise ProtocolViolation("a proof of a wrong length")
        if len(buffer) < 1 + length:
            return False
        shown = bytes(buffer[1 : 1 + length])
        del buffer[: 1 + length]
        if self.credentials.secret is not None and not hmac.compare_digest(self._mac(not self._dials), shown):
            raise ProtocolViolation(f"{self.peer} does not know the secret of this overlay")
        return True

    def _proof(self, of_dialler: bool) -> bytes:
        if self.credentials.secret is None:
            return b"\0"
        return bytes((PROOF_BYTES,)) + self._mac(of_dialler)

    def _mac(self, of_dialler: bool) -> bytes:
        assert self.credentials.secret is not None
        mine, theirs = (self.credentials.me, self.nonce), (self.peer, self._their_nonce)
        dialler, dialled = (mine, theirs) if self._dials else (theirs, mine)
        said = msgspec.msgpack.encode(["dialler" if of_dialler else "dialled", dialler, dialled])
        return hmac.new(self.credentials.secret.reveal(), said, sha256).digest()
