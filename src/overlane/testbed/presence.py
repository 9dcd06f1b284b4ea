"""When each broker of a trial was part of the overlay, and which subscribers are meant to get which messages.

A broker is present from the start unless it joins later, and until it leaves. Its clients come and go with it: messages
published while it is absent are neither expected at its subscribers nor counted for its publishers. A crash does not
end its presence: the subscriptions persist.

Times are relative to time zero of the trial.
"""

from collections.abc import Iterator

from overlane.core.topics import matches
from overlane.core.units import NEVER, Nanos
from overlane.network import Network, Publisher, Subscriber
from overlane.network.classes import may_cross

Span = tuple[Nanos, Nanos]
ALWAYS: Span = (-NEVER, NEVER)


class Presence:
    def __init__(self, network: Network) -> None:
        absent = network.absent_at_start()
        self._spans: dict[str, list[Span]] = {
            broker.name: [] if broker.name in absent else [ALWAYS] for broker in network.brokers
        }

    def came(self, broker: str, at_ns: Nanos) -> None:
        """Nothing new of one who is there."""
        if not self.is_there(broker):
            self._spans[broker].append((at_ns, NEVER))

    def left(self, broker: str, at_ns: Nanos) -> None:
        if self.is_there(broker):
            since_ns, _ = self._spans[broker].pop()
            self._spans[broker].append((since_ns, at_ns))

    def is_there(self, broker: str) -> bool:
        """By the latest event."""
        return bool(self._spans[broker]) and self._spans[broker][-1][1] == NEVER

    def has(self, broker: str, at_ns: Nanos) -> bool:
        return any(since_ns <= at_ns < until_ns for since_ns, until_ns in self._spans[broker])

    def of_subscriber(self, subscriber: Subscriber) -> Iterator[Span]:
        """From when to when it is subscribed. Who starts at time zero is there before it."""
        start_ns = subscriber.start_ns or -NEVER
        stop_ns = NEVER if subscriber.stop_ns is None else subscriber.stop_ns
        for since_ns, until_ns in self._spans[subscriber.broker]:
            if max(start_ns, since_ns) < min(stop_ns, until_ns):
                yield max(start_ns, since_ns), min(stop_ns, until_ns)


def is_for(network: Network, publisher: Publisher, subscriber: Subscriber) -> bool:
    """Whether the subscriber asks for what the publisher says, and the borders between their brokers let it pass."""
    return matches(subscriber.topic, publisher.topic) and may_cross(
        network, publisher.topic, publisher.broker, subscriber.broker
    )
