"""The greeting of two brokers: each proves its identity before anything else from it is read.

    hello   magic "OVLG" | version u8 | length u16 | msgpack [name, expected peer, nonce, offer, instance,
            purpose, link id]
    proof   length u8 | HMAC-SHA256 of role, both names and both nonces under the shared secret; empty without one

The end that dialled sends its hello first, the other answers with hello and proof, and the first with its proof. A
proof covers the role and both nonces, so it is not valid on another connection or in the other direction. A
certificate, if the link has one, must name the broker that the hello names. Without secret and certificate a name
is accepted only if the connection comes from the same machine, or the file allows it.

A hello may offer datagrams in addition to the connection: [port, session, key part]. If both do, they have a session
(`datagrams.seal`), and keys for it if there is a secret to derive them from: the secret of the overlay, or the key
parts, which are sent only on encrypted connections. A proof covers the offers.

A connection is a link unless the hello of the end that dialled names another purpose: `client`, to pass on the
connection of a client (`node.clients.pass_through`). It may continue a link over another path: then that hello has the
id of the link, which both ends know from the nonces of its first greeting (`streams.move`). A proof covers both.

No I/O: bytes go in, bytes come out. No more than a few hundred bytes are ever kept.
"""

import hmac
import struct
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import sha256

import msgspec

from overlane.core.wire.frame_codec import NAME_BYTES_MAX
from overlane.errors import ProtocolViolation
from overlane.secret import Secret

MAGIC = b"OVLG"
VERSION = 2
NONCE_BYTES = 16
KEY_PART_BYTES = 32
LINK_ID_BYTES = 16
HELLO_BYTES_MAX = 2 * NAME_BYTES_MAX + NONCE_BYTES + KEY_PART_BYTES + 64
PROOF_BYTES = 32
NAMES_SHOWN_MAX = 8

LINK = ""
CLIENT = "client"
"""Purposes of a connection."""

_HEAD = struct.Struct("!4sBH")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is known and what is demanded. `certified`: the names in the other end's certificate; None without TLS."""

    me: str
    secret: Secret | None
    certified: frozenset[str] | None
    is_trusted_place: bool
    """Whether a mere name is believed here."""
    instance: int = 0
    """Distinguishes brokers with the same name; 0 if unknown."""


class Offer(msgspec.Struct, frozen=True, array_like=True):
    """Where datagrams for this end go, and which session they name."""

    port: int
    session: int
    key_part: bytes
    """Random, where the connection is encrypted; otherwise empty."""


class _Hello(msgspec.Struct, frozen=True, array_like=True):
    name: str
    wanted: str
    nonce: bytes
    offer: Offer | None = None
    instance: int = 0
    purpose: str = LINK
    moves: bytes = b""


@dataclass(frozen=True, slots=True)
class DatagramSession:
    """What both ends know of their datagrams after the greeting."""

    ours: int
    theirs: int
    port: int
    """Of the neighbour."""
    key_out: bytes | None
    key_in: bytes | None


class _Stage(Enum):
    HELLO = auto()
    PROOF = auto()
    DONE = auto()


@dataclass(slots=True)
class Greeting:
    """The greeting of one connection. `peer`: the broker we dial; "" if we are dialled."""

    credentials: Credentials
    nonce: bytes
    peer: str = ""
    offer: Offer | None = None
    moves: bytes = b""
    """The id of the link that this connection continues; empty for a new link."""
    instance: int = 0
    """Of the neighbour."""
    purpose: str = LINK
    """Of the connection, as the end that dials says."""
    _their_offer: Offer | None = None
    _stage: _Stage = _Stage.HELLO
    _their_nonce: bytes = b""
    _buffer: bytearray = field(default_factory=bytearray)
    _dials: bool = field(init=False)

    def __post_init__(self) -> None:
        self._dials = bool(self.peer)

    @property
    def is_done(self) -> bool:
        return self._stage is _Stage.DONE

    @property
    def session(self) -> DatagramSession | None:
        """The datagram session, if both ends have offered one and it is as confidential as the connection."""
        mine, theirs = self.offer, self._their_offer
        if not self.is_done or mine is None or theirs is None or not 0 < theirs.port < 1 << 16:
            return None
        is_private = len(mine.key_part) == len(theirs.key_part) == KEY_PART_BYTES
        if not is_private and (mine.key_part or theirs.key_part):
            return None
        has_keys = is_private or self.credentials.secret is not None
        key_out, key_in = (self._key(self._dials), self._key(not self._dials)) if has_keys else (None, None)
        return DatagramSession(mine.session, theirs.session, theirs.port, key_out, key_in)

    @property
    def link_id(self) -> bytes:
        """Names the link that begins with this greeting, at both ends alike."""
        nonces = (self.nonce, self._their_nonce) if self._dials else (self._their_nonce, self.nonce)
        return sha256(b"".join(nonces)).digest()[:LINK_ID_BYTES]

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
        mine = self.credentials
        said: list[object] = [mine.me, self.peer, self.nonce, self.offer, mine.instance]
        if self._dials and (self.purpose or self.moves):
            said += self.purpose, self.moves
        body = msgspec.msgpack.encode(said)
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
            raise ProtocolViolation("a hello that is too long")
        if len(buffer) < _HEAD.size + length:
            return False
        body = bytes(buffer[_HEAD.size : _HEAD.size + length])
        del buffer[: _HEAD.size + length]
        try:
            said = msgspec.msgpack.decode(body, type=_Hello)
        except msgspec.MsgspecError:
            raise ProtocolViolation("an empty hello") from None
        self._check(said.name, said.wanted, said.nonce)
        self.peer, self._their_nonce, self._their_offer = said.name, said.nonce, said.offer
        self.instance = said.instance
        if not self._dials:
            if len(said.moves) not in (0, LINK_ID_BYTES):
                raise ProtocolViolation("a link id of the wrong length")
            self.moves = said.moves
            if said.purpose not in (LINK, CLIENT):
                raise ProtocolViolation(f"connects for the purpose {said.purpose[:16]!a}, which is unknown")
            self.purpose = said.purpose
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
        # The copy of a broker at another host is called BROKER@HOST: the certificate has both names.
        if mine.certified is not None and not mine.certified.issuperset(name.split("@")):
            shown = ", ".join(sorted(mine.certified)[:NAMES_SHOWN_MAX]) or "nobody"
            raise ProtocolViolation(f"calls itself {name[:NAME_BYTES_MAX]!a}, its certificate says {shown!a}")
        if mine.certified is None and mine.secret is None and not mine.is_trusted_place:
            raise ProtocolViolation("connects from another machine without certificate or secret")

    def _read_proof(self) -> bool:
        buffer = self._buffer
        if not buffer:
            return False
        length = buffer[0]
        if length not in (0, PROOF_BYTES):
            raise ProtocolViolation("a proof of the wrong length")
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
        said = msgspec.msgpack.encode(["dialler" if of_dialler else "dialled", *self._ends()])
        return hmac.new(self.credentials.secret.reveal(), said, sha256).digest()

    def _key(self, of_dialler: bool) -> bytes:
        """For what this end sends in datagrams; another one for each connection, as the nonces are."""
        said = msgspec.msgpack.encode(["datagrams of", "dialler" if of_dialler else "dialled", *self._ends()])
        secret = self.credentials.secret.reveal() if self.credentials.secret is not None else b""
        return hmac.new(secret, said, sha256).digest()

    def _ends(self) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """The hello of the dialling end, and that of the dialled end."""
        mine: tuple[object, ...] = self.credentials.me, self.nonce, self.credentials.instance
        theirs: tuple[object, ...] = self.peer, self._their_nonce, self.instance
        if self.offer is not None:
            mine = *mine, self.offer
        if self._their_offer is not None:
            theirs = *theirs, self._their_offer
        dialler, dialled = (mine, theirs) if self._dials else (theirs, mine)
        if self.purpose or self.moves:
            dialler = *dialler, self.purpose, self.moves
        return dialler, dialled
