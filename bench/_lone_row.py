"""Brokers a - b - c with drivers and links, but without sockets: the benchmark carries the bytes between them.

The event loop is replaced by one that runs only on request, and the transport by one that keeps the written bytes. So
one message can be followed broker by broker, and only the work of the brokers is counted.
"""

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, cast

import mqtt5

from overlane.adminapi.topic_filters import TopicFilters
from overlane.core.broker import OverlayBroker
from overlane.core.events import ReportedEffect
from overlane.core.units import SECOND, Nanos
from overlane.membership.neighbours import NeighbourChanges, NeighbourConfig
from overlane.mqtt.arrival_counts import Tally
from overlane.mqtt.server import MqttServer
from overlane.network.classes import broker_config, qos_table
from overlane.network.reading import parse_network
from overlane.node.admin.delivery_stats import DeliveryStats
from overlane.node.clock import Clock
from overlane.node.driver import Driver
from overlane.node.links import overlay_link as overlaylink
from overlane.node.links.overlay import Overlay
from overlane.node.links.overlay_link import OverlayLink
from overlane.node.logs.event_log import EventLog
from overlane.node.store.none import NoStore
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.state import Settings
from overlane.telemetry.arrivals import ArrivalCounter
from overlane.telemetry.deliveries import DeliverySample
from overlane.telemetry.message_paths import MessagePaths
from overlane.telemetry.topic_rates import TopicRates
from overlane.turn.assembly import assemble
from overlane.turn.client_link import ClientLink

TOPIC = "plant/7/temperature"
PAYLOAD = bytes(range(64))
SUBSCRIBE = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(TOPIC)]).write()
PUBLISH = mqtt5.PublishPacket(TOPIC, PAYLOAD).write()
LINKED_WITHIN: Nanos = 60 * SECOND
NAMES = "abc"
LINKS = (("a", "b"), ("b", "c"))
NETWORK = "\n".join(
    [
        *(f"[brokers.{name}]\n" for name in NAMES),
        *(f'[[links]]\nends = ["{one}", "{other}"]\nlatency = "0.1ms"\n' for one, other in LINKS),
    ]
)


class Timer:
    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class LoopByHand:
    """What the brokers ask of an event loop. Nothing happens but in `run`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._later: list[tuple[Nanos, int, Timer]] = []
        self._count = 0

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> None:
        self._soon.append((call, arguments))

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> Timer:
        self._count += 1
        timer = Timer(lambda: call(*arguments))
        heappush(self._later, (self._clock.now() + int(delay_s * SECOND), self._count, timer))
        return timer

    def run(self) -> None:
        """One iteration: what was to be called soon."""
        for _ in range(len(self._soon)):
            call, arguments = self._soon.popleft()
            call(*arguments)

    def run_timers(self) -> None:
        while self._later and self._later[0][0] <= self._clock.now():
            call = heappop(self._later)[2].call
            if call is not None:
                call()


class Wire:
    """A transport whose bytes somebody has to carry."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def taken(self) -> bytes:
        data = b"".join(self.written)
        self.written.clear()
        return data

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 0) if name == "peername" else None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise AssertionError("a connection was ended")

    def close(self) -> None:
        raise AssertionError("a connection was closed")

    def abort(self) -> None:
        raise AssertionError("a connection was broken off")


class Counting:
    """What telemetry does for each message, without its files."""

    def __init__(self, server: MqttServer, core: OverlayBroker, clock: Clock) -> None:
        state = server.state
        sample = DeliverySample(
            lambda: state.settings.qos, MessagePaths(core), lambda _: None, clock.now, rows_per_second=10
        )
        self.rates = TopicRates(state)
        self._arrivals = ArrivalCounter(self.rates, sample)

    def delivered(self, tally: Tally) -> None:
        self._arrivals.delivered(tally)

    def happened(self, effect: ReportedEffect) -> None:
        pass


class BrokerByHand:
    def __init__(self, name: str, is_recorded: bool) -> None:
        network = parse_network(NETWORK, "lone")
        self.clock = Clock()
        self.loop = LoopByHand(self.clock)
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        config, settings = broker_config(network, name), Settings(qos=qos_table(network))
        turn = assemble(config, settings, 1, (), self.clock.now(), lambda: f"client-{name}")

        def make_links(driver: Driver) -> Overlay:
            self.overlay = Overlay(turn.core, self.clock.now, driver)
            return self.overlay

        self.driver = Driver(loop, self.clock, turn, NoStore(self.loop.call_soon), None, make_links)
        observers = self.driver.observing.observers
        observers += (DeliveryStats(name, TopicFilters(network)), EventLog(turn.core, self.clock))
        if is_recorded:
            observers += (Counting(turn.server, turn.core, self.clock),)
        self.links: dict[str, tuple[OverlayLink, Wire]] = {}
        self.driver.start()

    def link(self, peer: str, dials: bool) -> None:
        self.overlay.reconfigure(NeighbourChanges((), {peer: NeighbourConfig()}))
        events._set_running_loop(cast(asyncio.AbstractEventLoop, self.loop))
        link, wire = OverlayLink(self.overlay, peer if dials else ""), Wire()
        events._set_running_loop(None)
        link.connection_made(cast(asyncio.Transport, wire))
        self.links[peer] = link, wire

    def attach(self) -> tuple[ClientLink, Wire]:
        wire = Wire()
        link = self.driver.attach(wire, Peer("127.0.0.1:1"), self.clock.now())
        link.received(mqtt5.ConnectPacket("").write())
        return link, wire

    def hear(self, peer: str, data: bytes) -> None:
        """What a neighbour has sent, as the transport hands it over."""
        link = self.links[peer][0]
        link.get_buffer(-1)[: len(data)] = data
        link.buffer_updated(len(data))


class LoneRow:
    """A publisher at a, a subscriber at c, everything set up; with telemetry or without."""

    def __init__(self, is_recorded: bool = True, message: bytes = PUBLISH) -> None:
        self._message = message
        self.brokers = {name: BrokerByHand(name, is_recorded) for name in NAMES}
        for one, other in LINKS:
            self.brokers[one].link(other, dials=True)
            self.brokers[other].link(one, dials=False)
        self.publisher, _ = self.brokers["a"].attach()
        self.subscriber, self.received = self.brokers["c"].attach()
        self.subscriber.received(SUBSCRIBE)
        self._await_first()

    def settle(self) -> None:
        """Everything but messages: pings, what brokers tell each other, whatever is due."""
        busy = True
        while busy:
            busy = False
            for name, broker in self.brokers.items():
                broker.loop.run_timers()
                broker.loop.run()
                for peer, (_, wire) in broker.links.items():
                    if data := wire.taken():
                        busy = True
                        self.brokers[peer].hear(name, data)

    def _await_first(self) -> None:
        clock = self.brokers["a"].clock
        until = clock.now() + LINKED_WITHIN
        while clock.now() < until:
            self.settle()
            if self.accept(self.received.taken()):  # what was published before may come late
                return
            self.publisher.received(self._message)
            self.settle()
            if self.accept(self.received.taken()):
                return
        raise AssertionError("no message has passed")

    # One message, broker by broker; all but these calls is the kernel's work

    def publish(self) -> None:
        """At a, until it has been written to b."""
        self.publisher.received(self._message)
        self.brokers["a"].loop.run()

    def transit(self, data: bytes) -> None:
        """At b, until it has been written to c. The bytes lie where the transport puts them."""
        broker = self.brokers["b"]
        broker.links["a"][0].buffer_updated(len(data))
        broker.loop.run()

    def deliver(self, data: bytes) -> None:
        """At c, until it has been written to the subscriber."""
        broker = self.brokers["c"]
        broker.links["b"][0].buffer_updated(len(data))
        broker.loop.run()

    def carry(self, source: str, target: str) -> bytes:
        data = self.brokers[source].links[target][1].taken()
        overlaylink._buffer[: len(data)] = data
        return data

    def check(self) -> None:
        if not self.accept(arrived := self.received.taken()):
            raise AssertionError(f"{len(arrived)} bytes have arrived instead of {len(self._message)}")

    def accept(self, data: bytes) -> bool:
        """Take what the subscriber got; False unless it is the message, and nothing else."""
        return data == self._message
