"""A bench for the AMQP server: virtual time, a store that can be slow or crash, and a peer that says what a test says.

    bench = Bench()
    peer = bench.open("container")
    peer.begin()
    peer.attach_receiver("t/#")
    peer.credit(10)
    peer.attach_sender("t/1", handle=1)
    peer.transfer(b"x", handle=1)
    assert peer.payloads() == [b"x"]

The bench is the driver: at the end of each turn the records go to the store as one batch, and what waits for them
leaves when the batch is committed: at once, or while `is_store_slow` with `commit()`.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from overlane.amqp.codec import composites, encoding
from overlane.amqp.codec.framing import PROTOCOL, PROTOCOL_BYTES, SASL_FRAME, SASL_PROTOCOL, Framer, frame, frame_of
from overlane.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from overlane.amqp.codec.types import Symbol
from overlane.amqp.connection import Connection
from overlane.amqp.messages.reading import Incoming, read_message
from overlane.amqp.server import AmqpServer
from overlane.core.events import Erase, Save
from overlane.core.units import SECOND, Nanos
from overlane.pubsub.access import Access, Rule
from overlane.pubsub.cluster.uplink import Alone, Uplink
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import Authenticate, LoginVerdict
from overlane.pubsub.limits import Limits
from overlane.pubsub.service import PubSub
from overlane.pubsub.state import Settings

T = TypeVar("T")
Name = tuple[str, bytes]


class Bench:
    def __init__(
        self,
        *,
        rules: Iterable[Rule] = (),
        users: Mapping[str, bytes] | None = None,
        anonymous: bool | None = None,
        uplink: Uplink | None = None,
        **limits: int,
    ) -> None:
        self.now: Nanos = 1_000 * SECOND
        self.store: dict[Name, bytes] = {}
        self.users = users
        self.settings = Settings(Limits(**limits), Access(rules), anonymous=anonymous)
        self.is_store_slow = False
        self._uplink = uplink or Alone()
        self._fresh = 0
        self._batches: deque[tuple[dict[Name, bytes | None], int]] = deque()
        self._submitted = self._committed = 0
        self.peers: list[AmqpPeer] = []
        self.start()

    def start(self) -> None:
        records = [(table, key, value) for (table, key), value in self.store.items()]
        self.pubsub = PubSub("seattle", self.settings, self._uplink, self._fresh_id, records, self.now)
        self.server = AmqpServer(self.pubsub)
        self.end_turn()

    def crash(self) -> None:
        """The process dies now, and starts again: what was not committed is lost, and so is what was not sent."""
        self._batches.clear()
        self._committed = self._submitted
        self.peers = []
        self.start()

    def _fresh_id(self) -> str:
        self._fresh += 1
        return f"fresh-{self._fresh}"

    def peer(self, *, certified: str | None = None, is_loopback: bool = True) -> "AmqpPeer":
        found = Peer("nowhere", is_loopback=is_loopback, certified=certified, listener="amqp")
        peer = AmqpPeer(self, self.server.connected(found, self.now))
        self.peers.append(peer)
        return peer

    def open(self, container: str = "container", **fields: Any) -> "AmqpPeer":
        peer = self.peer()
        peer.send(PROTOCOL, frame_of(0, Open(container, **fields)))
        return peer

    def pass_time(self, seconds: float) -> None:
        until = self.now + int(seconds * SECOND)
        while (due := self.pubsub.next_deadline()) <= until:
            self.now = max(self.now, due)
            self.pubsub.tick(self.now)
            self.end_turn()
        self.now = until

    def end_turn(self) -> None:
        state = self.pubsub.state
        for failure, _ in state.failures:
            raise failure.error
        questions, state.questions[:] = list(state.questions), []
        records: dict[Name, bytes | None] = {}
        for effect in self.pubsub.take_records():
            match effect:
                case Save(table, key, value):
                    records[table, key] = value
                case Erase(table, key):
                    records[table, key] = None
                case _:
                    raise AssertionError(effect)
        turn = state.turn - 1
        if records:
            self._submitted += 1
            self._batches.append((records, turn))
        touched, state.touched[:] = list(state.touched), []
        for connection in touched:
            assert isinstance(connection, Connection)
            chunks, waits = connection.taken()
            for peer in self.peers:
                if peer.connection is connection:
                    peer.held += [(chunk, self._submitted if waits else 0) for chunk in chunks]
        if not records and not self._batches:
            self.pubsub.durable(turn, self.now)
        if not self.is_store_slow:
            self.commit()
        self.deliver()
        for question in questions:
            self._answer(question)

    def _answer(self, question: object) -> None:
        assert isinstance(question, Authenticate)
        assert isinstance(question.connection, Connection)
        if self.users is None:
            verdict = LoginVerdict.IS_ANONYMOUS
        else:
            is_user = self.users.get(question.user) == question.password.reveal()
            verdict = LoginVerdict.IS_USER if is_user else LoginVerdict.IS_NOT
        self.server.authenticated(question.connection, verdict, self.now)
        self.end_turn()

    def commit(self) -> None:
        while self._batches:
            records, turn = self._batches.popleft()
            self._committed += 1
            for name, value in records.items():
                if value is None:
                    self.store.pop(name, None)
                else:
                    self.store[name] = value
            self.pubsub.durable(turn, self.now)
        self.deliver()

    def deliver(self) -> None:
        for peer in self.peers:
            while peer.held and peer.held[0][1] <= self._committed:
                peer.arrived(peer.held.popleft()[0])


class Got(NamedTuple):
    """A delivery as a client gets it."""

    handle: int
    delivery_id: int
    settled: bool
    raw: bytes

    @property
    def message(self) -> Incoming:
        return read_message(self.raw, 100)


class AmqpPeer:
    def __init__(self, bench: Bench, connection: Connection) -> None:
        self.bench = bench
        self.connection = connection
        self.held: deque[tuple[bytes, int]] = deque()
        self.headers: list[bytes] = []
        self.frames: list[object] = []
        """What the server has said: performatives, of channel 0 and all others."""
        self.empty_frames = 0
        self.deliveries: list[Got] = []
        self._framer = Framer(1 << 20)
        self._partial: dict[int, tuple[Transfer, bytes]] = {}
        self._next_id = 0

    # What it hears

    def arrived(self, data: bytes) -> None:
        self._framer.feed(data)
        while True:
            if self._framer._data[self._framer._at :].startswith(b"AMQP"):
                header = self._framer.take_protocol()
                assert header is not None
                assert len(header) == PROTOCOL_BYTES
                self.headers.append(header)
                continue
            found = self._framer.take_frame()
            if found is None:
                return
            _, _, body = found
            if not body:
                self.empty_frames += 1
                continue
            performative, end = composites.read(body, 0)
            if isinstance(performative, Transfer):
                self._transferred(performative, body[end:])
            else:
                self.frames.append(performative)

    def _transferred(self, transfer: Transfer, payload: bytes) -> None:
        first, before = self._partial.pop(transfer.handle, (transfer, b""))
        if transfer.more:
            self._partial[transfer.handle] = first, before + payload
            return
        assert first.delivery_id is not None
        self.deliveries.append(Got(transfer.handle, first.delivery_id, bool(first.settled), before + payload))

    def take(self, kind: type[T]) -> list[T]:
        """The performatives of a kind that have come since this was last asked."""
        found = [one for one in self.frames if isinstance(one, kind)]
        self.frames = [one for one in self.frames if not isinstance(one, kind)]
        return found

    def last(self, kind: type[T]) -> T:
        return self.take(kind)[-1]

    def got(self) -> list[Got]:
        found, self.deliveries = self.deliveries, []
        return found

    def payloads(self) -> list[bytes]:
        return [one.message.payload for one in self.got()]

    # What it says

    def send(self, *pieces: bytes) -> None:
        self.bench.server.receive(self.connection, b"".join(pieces), self.bench.now)
        self.bench.end_turn()

    def say(self, performative: object, payload: bytes = b"", channel: int = 0) -> None:
        self.send(frame(channel, composites.write(performative) + payload))

    def sasl(self, mechanism: str, response: bytes | None = None) -> None:
        self.send(SASL_PROTOCOL, frame_of(0, SaslInit(mechanism, response), SASL_FRAME))

    def begin(self, window: int = 2**31 - 1, channel: int = 0) -> None:
        self.say(Begin(None, 0, window, 2**31 - 1), channel=channel)

    def attach_receiver(
        self, address: str | None, handle: int = 0, *, name: str = "", mode: int | None = None, **source: Any
    ) -> Attach:
        source.setdefault("capabilities", None)
        if source["capabilities"] is not None:
            source["capabilities"] = tuple(map(Symbol, source["capabilities"]))
        self.say(
            Attach(
                name or f"receiver-{handle}",
                handle,
                RECEIVER,
                mode,
                source=Source(address, **source),
                target=Target("me"),
            )
        )
        return self.last(Attach)

    def attach_sender(self, address: str | None, handle: int = 0, *, name: str = "", **target: Any) -> Attach:
        if "capabilities" in target:
            target["capabilities"] = tuple(map(Symbol, target["capabilities"]))
        self.say(
            Attach(
                name or f"sender-{handle}",
                handle,
                SENDER,
                source=Source("me"),
                target=Target(address, **target),
                initial_delivery_count=0,
            )
        )
        return self.last(Attach)

    def credit(self, credit: int, handle: int = 0, count: int = 0, **fields: Any) -> None:
        self.say(Flow(0, 2**31 - 1, 0, 2**31 - 1, handle, count, credit, **fields))

    def transfer(self, payload: bytes, handle: int = 0, *, settled: bool = False, raw: bytes = b"") -> int:
        delivery_id = self._next_id
        self._next_id += 1
        body = raw or encoding.described(0x75, encoding.binary(payload))
        self.say(Transfer(handle, delivery_id, delivery_id.to_bytes(4), 0, settled), body)
        return delivery_id

    def accept(self, *deliveries: Got, state: object = None, settled: bool = True) -> None:
        for one in deliveries:
            self.say(Disposition(RECEIVER, one.delivery_id, None, settled, Accepted() if state is None else state))

    def detach(self, handle: int = 0, *, closed: bool = True) -> None:
        self.say(Detach(handle, closed))

    def lose(self) -> None:
        """The network breaks."""
        self.bench.server.lost(self.connection, self.bench.now)
        self.bench.peers.remove(self)
        self.bench.end_turn()
