"""Reservations in virtual time: the RSVP processes of many brokers, and a network between them.

Messages go over the links as bytes, with the latency of the link and in order, as on the control lane of brokers that
run. `Weather` makes it worse than that: messages are lost, repeated, or overtake others, drawn by a seeded generator.
Links fail and come back, brokers restart without what they knew. The map of links reaches all brokers at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from overlane.reservation.agent import RsvpAgent
from overlane.reservation.contract import (
    Admitted,
    Ask,
    Broker,
    Effect,
    Event,
    Interrupted,
    LinkDown,
    LinkUp,
    Offer,
    Received,
    Release,
    ReservationRefused,
    Send,
    SetLeaves,
    SetTopology,
    Tick,
)
from overlane.reservation.link_ledger import LinkTerms
from overlane.reservation.rsvp import messages
from overlane.reservation.rsvp.objects import broker_address
from overlane.reservation.rsvp.pcap import Captured
from overlane.reservation.soft_state import REFRESH_MS

TURNAROUND_NS = 100_000
"""Between the arrival of a message at a broker and what it sends for it."""
OVERTAKEN_NS = 50_000_000
"""By how much a message may be late that others overtake."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How likely a message is lost, repeated, or late."""

    loss: float = 0.0
    repetition: float = 0.0
    overtaking: float = 0.0


class SimulatedReservations:
    def __init__(
        self, links: Iterable[tuple[Broker, Broker, LinkTerms]], seed: int = 0, refresh_ms: int = REFRESH_MS
    ) -> None:
        """`links`: each stands for both directions, of the same terms."""
        self.now = 0
        self._refresh_ms = refresh_ms
        self.weather = Weather()
        self.sent: list[Captured] | None = None
        """If a list is put here, every message that is sent is added to it."""
        self.messages_sent = 0
        self.outcome: dict[str, Admitted | ReservationRefused | Interrupted] = {}
        """Of every request, the last that its subscriber was told."""
        self._luck = Random(seed)
        self._terms = {link: terms for one, other, terms in links for link in ((one, other), (other, one))}
        self._up = set(self._terms)
        self._connection = dict.fromkeys(self._terms, 0)
        self._arrives = dict.fromkeys(self._terms, 0)
        """When the last message in flight arrives: the next one arrives no earlier."""
        self._flight: list[tuple[int, int, Broker, Broker, int, bytes]] = []
        self._number = 0
        self._incarnation = {one: 1 for one, _ in self._terms}
        self._offers: dict[Broker, dict[str, Offer]] = {}
        self._leaves: dict[str, set[Broker]] = {}
        self.asks: dict[str, tuple[Broker, Ask]] = {}
        self.agents = {one: RsvpAgent(one, 1, refresh_ms=refresh_ms) for one in self._incarnation}
        self._deadlines = {one: agent.next_deadline() for one, agent in self.agents.items()}
        for (one, other), terms in self._terms.items():
            self.tell(one, LinkUp(other, terms))
        self._tell_map()

    def topology(self) -> dict[Broker, dict[Broker, int]]:
        found: dict[Broker, dict[Broker, int]] = {}
        for one, other in sorted(self._up):
            found.setdefault(one, {})[other] = self._terms[one, other].latency_us
        return found

    # What people do

    def offer(self, broker: Broker, offer: Offer) -> None:
        self._offers.setdefault(broker, {})[offer.topic_filter] = offer
        self.tell(broker, offer)
        self.tell(broker, SetLeaves(offer.topic_filter, frozenset(self._leaves.get(offer.topic_filter, ()))))

    def ask(self, broker: Broker, ask: Ask) -> None:
        self.asks[ask.request] = broker, ask
        self.outcome.pop(ask.request, None)
        self._set_leaves(ask.topic_filter, self._leaves.get(ask.topic_filter, set()) | {broker})
        self.tell(broker, ask)

    def release(self, request: str) -> None:
        broker, ask = self.asks.pop(request)
        self.tell(broker, Release(request))
        if not any(one == broker and other.topic_filter == ask.topic_filter for one, other in self.asks.values()):
            self._set_leaves(ask.topic_filter, self._leaves[ask.topic_filter] - {broker})

    def _set_leaves(self, topic_filter: str, leaves: set[Broker]) -> None:
        if self._leaves.get(topic_filter) == leaves:
            return
        self._leaves[topic_filter] = leaves
        for broker, offers in self._offers.items():
            if topic_filter in offers:
                self.tell(broker, SetLeaves(topic_filter, frozenset(leaves)))

    # What befalls the network

    def fail(self, one: Broker, other: Broker) -> None:
        self._cut([(one, other), (other, one)])
        self._tell_map()

    def heal(self, one: Broker, other: Broker) -> None:
        for link in ((one, other), (other, one)):
            if link not in self._up:
                self._up.add(link)
                self.tell(link[0], LinkUp(link[1], self._terms[link]))
        self._tell_map()

    def restart(self, broker: Broker) -> None:
        """With everything forgotten but what its clients ask again."""
        links = [link for link in sorted(self._up) if broker in link]
        self._cut(links)
        self._tell_map()
        self._incarnation[broker] += 1
        self.agents[broker] = RsvpAgent(broker, self._incarnation[broker], self.now, refresh_ms=self._refresh_ms)
        for one, other in links:
            if one == broker:
                self.heal(one, other)
        for offer in self._offers.get(broker, {}).values():
            self.offer(broker, offer)
        for one, ask in list(self.asks.values()):
            if one == broker:
                self.tell(broker, ask)

    def change(self, one: Broker, other: Broker, terms: LinkTerms) -> None:
        """A link can do more or less than before, in one direction."""
        self._terms[one, other] = terms
        if (one, other) in self._up:
            self.tell(one, LinkUp(other, terms))

    def _cut(self, links: list[tuple[Broker, Broker]]) -> None:
        for link in links:
            self._up.discard(link)
            self._connection[link] += 1
        for one, other in links:
            self.tell(one, LinkDown(other))

    def _tell_map(self) -> None:
        topology = self.topology()
        for broker in self.agents:
            self.tell(broker, SetTopology(topology))

    # Time

    def run(self, duration_ns: int) -> None:
        end = self.now + duration_ns
        while (when := self._next()) <= end:
            self.now = when
            while self._flight and self._flight[0][0] <= when:
                _, _, one, other, connection, data = heappop(self._flight)
                if connection == self._connection[one, other]:
                    self.tell(other, Received(one, messages.decode(data)))
            for broker, deadline in self._deadlines.items():
                if deadline <= when:
                    self.tell(broker, Tick())
        self.now = end

    def settle(self, limit_ns: int) -> None:
        """Until no message is under way, or the limit has passed."""
        end = self.now + limit_ns
        while self._flight and self._flight[0][0] <= end:
            self.run(self._flight[0][0] - self.now)

    def _next(self) -> int:
        return min([*self._deadlines.values(), *(flight[0] for flight in self._flight[:1])])

    def tell(self, broker: Broker, event: Event) -> None:
        agent = self.agents[broker]
        self._carry_out(broker, agent.handle(event, self.now))
        self._deadlines[broker] = agent.next_deadline()

    def _carry_out(self, broker: Broker, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, message):
                    self._send(broker, peer, messages.encode(message))
                case Admitted(request) | ReservationRefused(request) | Interrupted(request):
                    self.outcome[request] = effect

    def _send(self, broker: Broker, peer: Broker, data: bytes) -> None:
        link = broker, peer
        self.messages_sent += 1
        if self.sent is not None:
            self.sent.append(Captured(self.now, broker_address(broker), broker_address(peer), data))
        if link not in self._up:
            return
        copies = 0 if self._happens(self.weather.loss) else 2 if self._happens(self.weather.repetition) else 1
        for _ in range(copies):
            at = max(self.now + self._terms[link].latency_us * 1000 + TURNAROUND_NS, self._arrives[link])
            if self._happens(self.weather.overtaking):
                at += self._luck.randrange(OVERTAKEN_NS)
            else:
                self._arrives[link] = at
            self._number += 1
            heappush(self._flight, (at, self._number, broker, peer, self._connection[link], data))

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._luck.random() < probability
