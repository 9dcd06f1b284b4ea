"""Random clients, a random network, a store that is slow and a broker that dies: one seed is one story.

Publishers number their messages and follow the protocol: what was not acknowledged they send again when they come back,
with the duplicate flag and the same packet identifier. Subscribers are subscribed before it begins and stay so. Bytes
are cut and late in both directions, connections break or are taken over, commits come late, and the broker dies between
any two steps. At the end everything heals, and `Soak.faults` tells from outside what went wrong:

    lost         a message was acknowledged to its publisher and never reached a subscriber whose session was kept
    repeated     a message of QoS 2 reached a QoS 2 subscriber twice, or one of QoS 1 did where publisher and subscriber
                 have asked for it once; in stories without a bad disk, with which that is not promised
    reordered    first arrivals from one publisher at one QoS are not in the order in which they were published
    invented     a message that nobody published
    unmarked     a message came again under its packet identifier without the duplicate flag; in stories
                 without a bad disk, which does not always know what is sent
    overrun      more messages unacknowledged at a client than it takes
    leaked       records of messages in the store when nobody is owed anything
    forgotten    a session that was to be kept and was not

More of them: `python tests/mqtt/mqtt_soak.py FIRST LAST`.
"""

import sys
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import mqtt5
from clients import NEVER_S, Bench, Client, Wire

from overlane.core.units import MS, Nanos
from overlane.mqtt.codec import codec5, codec311
from overlane.pubsub.delivery import delivery
from overlane.pubsub.sessions.deduplication import PROPERTY

STEPS = 1_500
UNACKNOWLEDGED_MAX = 8


class SlowNetwork(Bench):
    """A bench on which nothing arrives by itself, until it is healed."""

    is_healed = False

    def settle(self) -> None:
        if self.is_healed:
            super().settle()
        else:
            self.end_turn()


class LateClient(Client):
    """What it says lies in `outbox` until it is carried to the server, in pieces."""

    def __init__(self, soak: "Soak", client_id: str, version: int, **wishes: Any) -> None:
        super().__init__(soak.bench, client_id, version, **wishes)
        soak.bench.clients.append(self)
        self.soak = soak
        self.outbox = b""
        self.is_known = False
        self.unanswered: set[int] = set()
        """Identifiers of messages of this connection that it has not acknowledged."""
        self.heard: set[tuple[int, bytes]] = set()
        """Identifiers and payloads of all that came."""
        self.receive_max = wishes.get("receive_max", 65_535)
        self.is_promised_once = False
        self.finished: set[int] = set()
        """Identifiers of QoS 1 messages that it has acknowledged, where the server does not soon use them anew."""

    @property
    def asks_for_once(self) -> bool:
        return "user_properties" in self.wishes

    def send(self, *packets: mqtt5.Packet | bytes, settle: bool = True) -> None:
        for one in packets:
            if isinstance(one, mqtt5.PublishPacket) and one.duplicate:
                self.soak.published_again.add(one.payload)
            if isinstance(one, mqtt5.PubAckPacket | mqtt5.PubCompPacket):
                self.unanswered.discard(one.packet_id)
            if isinstance(one, mqtt5.PubAckPacket) and self.is_promised_once:
                self.finished.add(one.packet_id)
            self.outbox += one if isinstance(one, bytes) else (codec5 if self.version == 5 else codec311).write(one)
        if self.bench.is_healed:  # type: ignore[attr-defined]
            self.carry(len(self.outbox))
            if settle:
                self.bench.settle()

    @property
    def is_let_in(self) -> bool:
        return self.connack is not None and not int(self.connack.reason_code)

    def carry(self, size: int) -> None:
        """So many bytes reach the server."""
        if self.wire is not None and not self.wire.is_broken:
            data, self.outbox = self.outbox[:size], self.outbox[size:]
            self.bench.server.receive(self.wire.connection, data, self.bench.now)

    def open(self) -> "Client":
        self.outbox, self.unanswered = b"", set()
        return super().open()

    def slip_away(self) -> Wire | None:
        """The network is gone, and the server does not know yet."""
        wire, self.wire, self.is_open = self.wire, None, False
        if wire is not None:
            wire.is_broken = True
        return wire

    def _hear(self, packet: mqtt5.Packet) -> None:
        if isinstance(packet, mqtt5.ConnAckPacket):
            self.is_promised_once = (PROPERTY, self.id) in packet.user_properties
            if not (self.is_promised_once and packet.session_present):
                self.finished.clear()
        if isinstance(packet, mqtt5.ConnAckPacket) and self.expiry and not int(packet.reason_code):
            if self.is_known and not packet.session_present:
                self.soak.note("forgotten", self.id)
            self.is_known = True
        if isinstance(packet, mqtt5.PubAckPacket | mqtt5.PubRecPacket) and int(packet.reason_code) < 0x80:
            message = self.owed.get(packet.packet_id)
            if message is not None:
                self.soak.acknowledged.add(message.payload)
        super()._hear(packet)

    def _hear_message(self, packet: mqtt5.PublishPacket) -> None:
        if packet.packet_id is not None:
            self.unanswered.add(packet.packet_id)
            if len(self.unanswered) > self.receive_max:
                self.soak.note("overrun", f"{self.id} has {len(self.unanswered)}")
            heard = packet.packet_id, packet.payload
            if heard in self.heard and not packet.duplicate and not self._may_be_new(packet.payload):
                self.soak.note("unmarked", f"{self.id} got {packet.payload!r} again")
            self.heard.add(heard)
        is_repeated = packet.packet_id in self.finished
        super()._hear_message(packet)
        if is_repeated:
            self.inbox.pop()

    def _may_be_new(self, payload: bytes) -> bool:
        """What was published again may come as another message, and after a crash under a number of before."""
        return not self.expiry or self.soak.has_bad_disk or payload in self.soak.published_again


class Soak:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.faults: Counter[str] = Counter()
        self.told: list[str] = []
        self.bench = SlowNetwork(
            in_flight=random.choice([1, 2, 5, 20]), tries=1_000_000, session_expiry_s_max=NEVER_S, topic_aliases=3
        )
        self.published: dict[str, list[bytes]] = {}
        """By publisher and QoS, in order."""
        self.published_again: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.crashes = 0
        self.has_bad_disk = random.random() < 0.3
        """Then messages are refused, and come again behind later ones if the refusal did not reach their publisher."""
        self._numbers: Counter[str] = Counter()
        self._half_open: list[Wire] = []
        self.publishers = [LateClient(self, f"p{n}", random.choice([4, 5]), **self._kept()) for n in range(3)]
        self.subscribers: dict[LateClient, int] = {}
        for number in range(4):
            wishes = self._kept()
            version = random.choice([4, 5])
            if version == 5 and random.random() < 0.7:
                wishes |= {"receive_max": random.choice([1, 2, 3, 10]), "topic_alias_max": random.choice([0, 2])}
            subscriber = LateClient(self, f"s{number}", version, **wishes)
            self.subscribers[subscriber] = random.choice([1, 2, 2])
        for client in (*self.publishers[:2], *list(self.subscribers)[:3]):
            if client.version == 5:
                client.wishes |= {"user_properties": [(PROPERTY, client.id)]}
        self.plain = LateClient(self, "plain", 5)
        self._begin()

    def _kept(self) -> dict[str, Any]:
        return {"expiry": NEVER_S, "clean": False}

    def _begin(self) -> None:
        self.bench.is_healed = True
        for client in self._clients():
            client.connect()
        for subscriber, qos in self.subscribers.items():
            subscriber.subscribe("t/#", qos=qos)
        self.plain.subscribe("#", qos=2)
        self.bench.is_healed = False

    def _clients(self) -> list[LateClient]:
        return [*self.publishers, *self.subscribers, self.plain]

    def note(self, fault: str, told: str) -> None:
        self.faults[fault] += 1
        self.told.append(f"{fault}: {told}")

    # What may happen

    def run(self) -> None:
        random, bench = self.random, self.bench
        bench.is_store_slow = True
        deeds: list[tuple[int, Callable[[], None]]] = [
            (40, self._publish),
            (60, self._carry),
            (60, self._read),
            (40, bench.end_turn),
            (30, lambda: bench.commit(random.choice([1, 1, 100]))),
            (3, self._drop),
            (2, self._slip_away),
            (2, self._notice),
            (30, self._return),
            (3, lambda: self._pass(random.randrange(5_000) * MS)),
            (2, self._overlap),
            (1, self._disk),
            (1, self._crash),
        ]
        weights = [weight for weight, _ in deeds]
        for _ in range(STEPS):
            random.choices(deeds, weights)[0][1]()
        self._heal()
        self._judge()

    def _publish(self) -> None:
        publisher = self.random.choice(self.publishers)
        self._publish_one(None, publisher)

    def _publish_one(self, qos: int | None, publisher: LateClient) -> None:
        at_most = min(UNACKNOWLEDGED_MAX, self.bench.settings.limits.in_flight)  # as the server said in its CONNACK
        if not publisher.is_open or len(publisher.owed) >= at_most or not publisher.is_let_in:
            return
        qos = self.random.choice([0, 1, 1, 2, 2]) if qos is None else qos
        self._numbers[publisher.id] += 1
        payload = f"{publisher.id} {qos} {self._numbers[publisher.id]}".encode()
        self.published.setdefault(f"{publisher.id} {qos}", []).append(payload)
        publisher.publish(f"t/{publisher.id}", payload, qos=qos, settle=False)

    def _carry(self) -> None:
        client = self.random.choice(self._clients())
        client.carry(self.random.choice([1, 7, 30, 1_000]))

    def _read(self) -> None:
        self.random.choice(self._clients()).read(self.random.choice([1, 2, 50]))

    def _drop(self) -> None:
        self.random.choice(self._clients()).drop()

    def _slip_away(self) -> None:
        client = self.random.choice(self._clients())
        if client is not self.plain and (wire := client.slip_away()) is not None:
            self._half_open.append(wire)

    def _notice(self) -> None:
        """The server finds out about a connection that is broken."""
        if self._half_open:
            wire = self._half_open.pop(self.random.randrange(len(self._half_open)))
            if wire in self.bench.wires:
                self.bench.wires.remove(wire)
                self.bench.server.lost(wire.connection, self.bench.now)

    def _return(self) -> None:
        client = self.random.choice(self._clients())
        if not client.is_open:
            client.connect()

    def _pass(self, time: Nanos) -> None:
        self.bench.now += time
        self.bench.server.tick(self.bench.now)

    def _overlap(self) -> None:
        """A subscription beside the one that matters comes and goes."""
        subscriber = self.random.choice(list(self.subscribers))
        if subscriber.is_open and subscriber.is_let_in:
            packet_id = subscriber.next_id()
            if self.random.random() < 0.5:
                qos = mqtt5.QoS(self.random.randrange(2))
                subscriber.send(mqtt5.SubscribePacket(packet_id, [mqtt5.TopicFilter("+/p0", max_qos=qos)]))
            else:
                subscriber.send(mqtt5.UnsubscribePacket(packet_id, ["+/p0"]))

    def _crash(self) -> None:
        self.crashes += 1
        self._half_open.clear()
        self.bench.crash()

    def _disk(self) -> None:
        if self.has_bad_disk:
            self.bench.server.store_is_failing(self.random.random() < 0.3)

    # The end

    def _heal(self) -> None:
        bench = self.bench
        bench.server.store_is_failing(False)
        bench.is_store_slow = False
        bench.is_healed = True
        while self._half_open:
            self._notice()
        for client in self._clients():
            if not client.is_open:
                client.connect()
            client.carry(len(client.outbox))
        bench.settle()
        for client in self._clients():
            if not client.is_open:  # it had sent half a packet, or was refused
                client.connect()
        bench.settle()
        bench.wait(0.1)  # until all have looked through what is retained

    def _judge(self) -> None:
        everything = {payload for payloads in self.published.values() for payload in payloads}
        for subscriber, most in self.subscribers.items():
            arrived = [got.payload for got in subscriber.inbox if got.topic.startswith("t/")]
            for payload in sorted(set(arrived) - everything):
                self.note("invented", f"{subscriber.id} got {payload!r}")
            for payload, times in Counter(arrived).items():
                if times > 1 and self._is_owed_once(payload, subscriber, most):
                    self.note("repeated", f"{subscriber.id} got {payload!r} {times} times")
            for payload in sorted(self.acknowledged - set(arrived)):
                self.note("lost", f"{subscriber.id} did not get {payload!r}")
            for flow, payloads in self.published.items():
                first = list(dict.fromkeys(payload for payload in arrived if payload in set(payloads)))
                if first != sorted(first, key=payloads.index) and not self.has_bad_disk:
                    self.note("reordered", f"{subscriber.id} got of {flow}: {first}")
        for publisher in self.publishers:
            if publisher.owed:
                self.note("stuck", f"{publisher.id} still owes {publisher.owed}")
        for table in ("mqtt.message@2", "mqtt.queue@2", "mqtt.received", "mqtt.past", "mqtt.will"):
            if count := self.bench.tables().get(table, 0):
                self.note("leaked", f"{count} records of {table}")

    def _is_owed_once(self, payload: bytes, subscriber: LateClient, most: int) -> bool:
        name, qos, _ = payload.split()
        if qos == b"2" and most == 2:
            return True
        is_once = qos == b"2" or any(one.asks_for_once for one in self.publishers if one.id == name.decode())
        return qos != b"0" and is_once and subscriber.asks_for_once and not self.has_bad_disk


class BurstSoak(Soak):
    """The same with publishers that write several messages in one go, most of QoS 1: they are taken by the run."""

    def _publish(self) -> None:
        for _ in range(self.random.choice([1, 3, 6])):
            self._publish_one(self.random.choice([0, 1, 1, 1, 1, 1, 1, 2]), self.random.choice(self.publishers[-2:]))
        self._carry_all(self.random.choice(self.publishers))

    def _carry(self) -> None:
        client = self.random.choice(self._clients())
        client.carry(self.random.choice([7, 1_000, 1_000]))

    def _carry_all(self, client: LateClient) -> None:
        if self.random.random() < 0.5:
            client.carry(len(client.outbox))

    def _overlap(self) -> None:
        if self.random.random() < 0.2:
            super()._overlap()


def run_seed(seed: int, kind: type[Soak] = Soak) -> Soak:
    soak = kind(seed)
    soak.run()
    return soak


def main() -> None:
    """Run seeds from FIRST to LAST, and tell of those that end badly."""
    first, last = (int(argument) for argument in sys.argv[1:3])
    delivery.SEND_AHEAD_BYTES = 300
    bad = [soak for soak in map(run_seed, range(first, last)) if soak.faults]
    for soak in bad:
        print(f"seed {soak.seed}:", *soak.told, sep="\n    ")
    print(f"{last - first} stories, {len(bad)} ended badly")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
