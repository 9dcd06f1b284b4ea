"""Subscribers: applications that subscribe at some time, and may unsubscribe later.

A subscriber subscribes once. Its subscription is durable, so a restarted broker must recover it from its store; the
subscriber does not repeat it. A subscriber that wants to subscribe or unsubscribe while the broker is down does so when
the broker is back.
"""

from collections.abc import Mapping
from typing import Protocol

from overlane.core.units import NEVER, Nanos
from overlane.network import Subscriber
from overlane.sim.engine import Engine
from overlane.sim.judge import Judge


class SubscriberDriver(Protocol):
    """What a subscriber needs of its broker's driver."""

    @property
    def is_open(self) -> bool: ...
    def subscribe(self, subscriber: str, topic_filter: str) -> None: ...
    def unsubscribe(self, subscriber: str, topic_filter: str) -> None: ...


class _Subscriber:
    __slots__ = ("broker", "driver", "is_subscribed", "name", "owes_unsubscribe", "start", "stop", "topic_filter")

    def __init__(self, name: str, spec: Subscriber, driver: SubscriberDriver, start: Nanos) -> None:
        self.name = name
        self.broker = spec.broker
        self.topic_filter = spec.topic
        self.driver = driver
        self.start = start
        self.stop = NEVER if spec.stop_ns is None else spec.stop_ns
        self.is_subscribed = False
        self.owes_unsubscribe = False  # it unsubscribed while its broker was down


class Subscribers:
    def __init__(self, engine: Engine, drivers: Mapping[str, SubscriberDriver], judge: Judge) -> None:
        self._engine = engine
        self._drivers = drivers
        self._judge = judge
        self._subscribers: dict[str, _Subscriber] = {}
        self._of_broker: dict[str, list[_Subscriber]] = {}

    def add(self, spec: Subscriber) -> str:
        """Add a subscriber that is subscribed from its start to its stop; returns its name. Start zero means now."""
        start = spec.start_ns if spec.start_ns > 0 else self._engine.now
        subscriber = _Subscriber(f"{spec.broker}.{len(self._subscribers)}", spec, self._drivers[spec.broker], start)
        self._subscribers[subscriber.name] = subscriber
        self._of_broker.setdefault(spec.broker, []).append(subscriber)
        self._judge.add_subscriber(subscriber.name, subscriber.broker, subscriber.topic_filter)
        self._engine.at(start, self._subscribe, subscriber)
        if subscriber.stop < NEVER:
            self._engine.at(subscriber.stop, self._unsubscribe, subscriber)
        return subscriber.name

    def remove(self, name: str) -> None:
        """The subscriber unsubscribes now."""
        subscriber = self._subscribers[name]
        subscriber.stop = self._engine.now
        self._unsubscribe(subscriber)

    def broker_is_back(self, broker: str) -> None:
        """Requests that were not possible meanwhile are made now."""
        for subscriber in self._of_broker.get(broker, ()):
            if subscriber.owes_unsubscribe:
                subscriber.owes_unsubscribe = False
                subscriber.driver.unsubscribe(subscriber.name, subscriber.topic_filter)
            self._subscribe(subscriber)

    def broker_leaves(self, broker: str) -> None:
        """The broker leaves for good, and its subscribers with it."""
        for subscriber in self._of_broker.get(broker, ()):
            if subscriber.is_subscribed:
                subscriber.is_subscribed = False
                self._judge.unsubscribed(subscriber.name)

    def _subscribe(self, subscriber: _Subscriber) -> None:
        if (
            subscriber.driver.is_open
            and not subscriber.is_subscribed
            and subscriber.start <= self._engine.now < subscriber.stop
        ):
            subscriber.is_subscribed = True
            self._judge.subscribed(subscriber.name)
            subscriber.driver.subscribe(subscriber.name, subscriber.topic_filter)

    def _unsubscribe(self, subscriber: _Subscriber) -> None:
        if subscriber.is_subscribed:
            subscriber.is_subscribed = False
            self._judge.unsubscribed(subscriber.name)
            if subscriber.driver.is_open:
                subscriber.driver.unsubscribe(subscriber.name, subscriber.topic_filter)
            else:
                subscriber.owes_unsubscribe = True
