"""MQTT packets at and beyond every limit: values that say what to send, and the bytes of them.

The values are small, however large the packets: what a test found can be read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from faithful import packet
from hypothesis import strategies as st

LENGTHS = (0, 1, 7, 64, 127, 128, 1_000, 16_384, 32_767, 65_000, *range(65_450, 65_536, 5), *range(65_520, 65_536))
"""Of texts: all around the greatest that their 16 bits tell, with room for any prefix a broker may add."""
FILLS = ("x", "é", "\U0001f600")
lengths = st.sampled_from(LENGTHS)
quanta = st.sampled_from((0, 1, 2, 0x7F, 0xFF, 0xFFFF, 0xFFFF_FFFE, 0xFFFF_FFFF))


@dataclass(frozen=True)
class Text:
    """So many bytes of UTF-8: a head, slashes, and the same character again and again."""

    size: int
    head: str = "fuzz/"
    levels: int = 0
    fill: str = "x"

    @property
    def encoded(self) -> bytes:
        start = (self.head + "/" * self.levels).encode()[: self.size]
        fill = self.fill.encode()
        count, rest = divmod(self.size - len(start), len(fill))
        return start + fill * count + b"y" * rest


HEADS = ("fuzz/", "timed/", "", "$", "$SYS/", "$retained/", "$want/1/1/", "$share/g/", "$stream/", "beside2/")
WILD = ("", "+/", "#", "$share/g/", "$share/" + "g" * 100 + "/", "$share/g/+/", "$share//", "$share/g/#")
topics = st.builds(
    Text,
    lengths,
    st.sampled_from(HEADS),
    st.sampled_from((0, 0, 0, 1, 63, 64, 65, 1_000, 65_000)),
    st.sampled_from(FILLS),
)
filters = st.builds(
    Text,
    lengths,
    st.sampled_from(HEADS + WILD),
    st.sampled_from((0, 0, 0, 1, 63, 64, 65, 66, 1_000)),
    st.sampled_from(FILLS),
)

Pair = tuple[Text, Text]
_OURS = ("overlane-deadline", "overlane-reliability", "overlane-once", "overlane-client", "overlane-reason")
_VALUES = (
    "1us",
    "60ms",
    "10d",
    "3650d",
    "99999999d",
    "-1s",
    "0s",
    "reliable",
    "best-effort",
    "",
    "nonsense",
    "\0",
    "1e9s",
)
pairs = st.one_of(
    st.builds(lambda name, value: (text_of(name), text_of(value)), st.sampled_from(_OURS), st.sampled_from(_VALUES)),
    st.builds(lambda name, size: (text_of(name), Text(size)), st.sampled_from(_OURS), lengths),
    st.tuples(st.builds(Text, lengths), st.builds(Text, lengths)),
)


def text_of(value: str) -> Text:
    return Text(len(value.encode()), value)


@dataclass(frozen=True)
class Properties:
    """`pairs` are repeated so often; the numbers are properties of four bytes, whether they belong here or not."""

    pairs: tuple[Pair, ...] = ()
    times: int = 1
    numbers: tuple[tuple[int, int], ...] = ()

    @property
    def encoded(self) -> bytes:
        found = b"".join(bytes((kind,)) + value.to_bytes(4) for kind, value in self.numbers)
        found += b"".join(b"\x26" + sized(name) + sized(value) for name, value in self.pairs) * self.times
        return varint(len(found)) + found


def properties(*numbers: int) -> st.SearchStrategy[Properties]:
    """With these properties of four bytes, perhaps."""
    number = st.tuples(st.sampled_from(numbers), quanta) if numbers else st.nothing()
    return st.builds(
        Properties,
        st.lists(pairs, max_size=2).map(tuple),
        st.sampled_from((1, 1, 1, 2, 31, 32, 33, 200)),
        st.lists(number, max_size=1).map(tuple) if numbers else st.just(()),
    )


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def sized(value: Text) -> bytes:
    return value.size.to_bytes(2) + value.encoded


@dataclass(frozen=True)
class Will:
    topic: Text
    payload_bytes: int
    qos: int
    retain: bool
    delay_s: int


@dataclass(frozen=True)
class Connect:
    client: Text
    is_clean: bool = True
    expiry_s: int = 0
    keep_alive_s: int = 0
    will: Will | None = None
    properties: Properties = Properties()

    def encoded(self, version: int) -> bytes:
        flags = 2 * self.is_clean
        will = b""
        if self.will is not None:
            flags |= 4 | self.will.qos << 3 | self.will.retain << 5
            delay = b"\x05\x18" + self.will.delay_s.to_bytes(4) if version == 5 else b""
            payload = bytes(self.will.payload_bytes)
            will = delay + sized(self.will.topic) + len(payload).to_bytes(2) + payload
        own = b""
        if version == 5:
            own = Properties(
                self.properties.pairs, self.properties.times, ((0x11, self.expiry_s), *self.properties.numbers)
            ).encoded
        head = b"\0\4MQTT" + bytes((version, flags)) + self.keep_alive_s.to_bytes(2)
        return packet(0x10, head + own + sized(self.client) + will)


CLIENTS = [text_of(f"mallory-{number}") for number in range(5)]
connects = st.builds(
    Connect,
    st.one_of(st.sampled_from(CLIENTS), st.builds(Text, lengths, st.just("m"))),
    st.booleans(),
    st.sampled_from((0, 0, 1, 3_600, 0xFFFF_FFFF)),
    st.sampled_from((0, 1, 60, 65_535)),
    st.none() | st.builds(Will, topics, st.sampled_from((0, 1, 60_000)), st.integers(0, 3), st.booleans(), quanta),
    properties(0x27, 0x11),
)
welcome = st.builds(
    Connect,
    st.sampled_from(CLIENTS),
    st.booleans(),
    st.sampled_from((0, 60)),
    st.just(0),
    st.none(),
    st.just(Properties()),
)
"""Those that are let in."""


@dataclass(frozen=True)
class Publish:
    topic: Text
    qos: int
    retain: bool
    payload_bytes: int
    properties: Properties = Properties()
    packet_id: int = 7

    def encoded(self, version: int) -> bytes:
        packet_id = self.packet_id.to_bytes(2) if self.qos else b""
        own = self.properties.encoded if version == 5 else b""
        body = sized(self.topic) + packet_id + own + bytes(self.payload_bytes)
        return packet(0x30 | self.qos << 1 | self.retain, body)


@dataclass(frozen=True)
class Subscribe:
    filters: tuple[Text, ...]
    options: int
    properties: Properties = Properties()

    def encoded(self, version: int) -> bytes:
        own = self.properties.encoded if version == 5 else b""
        return packet(0x82, b"\0\x08" + own + b"".join(sized(one) + bytes((self.options,)) for one in self.filters))


@dataclass(frozen=True)
class Unsubscribe:
    filters: tuple[Text, ...]

    def encoded(self, version: int) -> bytes:
        own = b"\0" if version == 5 else b""
        return packet(0xA2, b"\0\x09" + own + b"".join(map(sized, self.filters)))


@dataclass(frozen=True)
class Other:
    """Any packet: a first byte, and a body."""

    first: int
    body: bytes

    def encoded(self, version: int) -> bytes:  # noqa: ARG002
        return packet(self.first, self.body)


Packet = Publish | Subscribe | Unsubscribe | Other
publishes = st.builds(
    Publish,
    topics,
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from((0, 1, 100, 70_000, 900_000, (1 << 20) - 65_600, 1 << 20)),
    properties(0x02),
)
subscribes = st.builds(
    Subscribe,
    st.lists(filters, min_size=1, max_size=3).map(tuple),
    st.sampled_from((0, 1, 2, 1, 2, 3, 0x2D, 0xFF)),
    properties(),
)
packets: st.SearchStrategy[Packet] = st.one_of(
    publishes,
    subscribes,
    publishes,
    subscribes,
    st.builds(Unsubscribe, st.lists(filters, min_size=1, max_size=3).map(tuple)),
    st.builds(Other, st.integers(0, 255), st.binary(max_size=8)),
    st.sampled_from((Other(0xC0, b""), Other(0xE0, b""), Other(0xE0, b"\x04"), Other(0x62, b"\0\7"))),
)


def conversation(version: int, connect: Connect, said: Sequence[Packet]) -> bytes:
    return connect.encoded(version) + b"".join(one.encoded(version) for one in said)
