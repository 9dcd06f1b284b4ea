"""Retained messages: what a new subscription gets of topics that each have one publisher.

- At the publisher's broker: for each topic the last message that was acknowledged before the subscription was asked
  for, or a later one. Where the last was acknowledged as cleared, no message before that.
- At other brokers: no message before one of QoS 2 that a subscription there was given earlier. What was given to a
  session that does not outlive its connection counts until that broker is down: it need not have been on disk. It does
  not count then for those either who had asked before and have not got anything.
- At all brokers, when everything has come to rest: the last message that was acknowledged.
- What must come does come, if the subscription is for more than QoS 0.

QoS 1 is left out of the second: a message that its publisher sends again takes the place of a later one.
"""

from collections.abc import Callable, Mapping

from overlane.core.topics import matches
from overlane.sim.soak.invariants import Broken
from overlane.sim.whole.message import SimulatedMessage

Report = Callable[[str, str], None]


class RetainedRule:
    def __init__(self, broker_of: Mapping[str, str], passing: frozenset[str], report: Report) -> None:
        """`broker_of`: of each client. `passing`: those whose session ends with the connection."""
        self._broker_of = broker_of
        self._passing = passing
        self._report = report
        self._is_at_rest = False
        self._publishers: dict[str, str] = {}
        self._acknowledged: dict[str, SimulatedMessage] = {}
        """By topic, the last."""
        self._last_clear: dict[str, int] = {}
        """By topic, the last message that clears it, acknowledged or not."""
        self._seen: dict[tuple[str, str], int] = {}
        self._seen_in_passing: dict[tuple[str, str], int] = {}
        """By broker and topic, the latest that a subscription was given."""
        self._floors: dict[tuple[str, str], dict[str, int]] = {}
        """By client and filter, the earliest that it may be given of each topic."""
        self._lasting_floors: dict[tuple[str, str], dict[str, int]] = {}
        """The same, without what was given in passing."""
        self._owed: dict[tuple[str, str, str], int] = {}
        """By client, filter and topic, what it must be given, or something later."""
        self.replayed = 0

    def sent(self, message: SimulatedMessage) -> None:
        self._publishers[message.topic] = message.publisher
        if message.clears:
            self._last_clear[message.topic] = message.number

    def acknowledged(self, message: SimulatedMessage) -> None:
        before = self._acknowledged.get(message.topic)
        if before is None or before.number < message.number:
            self._acknowledged[message.topic] = message

    def broker_went_down(self, broker: str) -> None:
        for key in [key for key in self._seen_in_passing if key[0] == broker]:
            del self._seen_in_passing[key]
        for (client, topic_filter), lasting in self._lasting_floors.items():
            if self._broker_of[client] == broker:
                self._floors[client, topic_filter] = lasting
                for topic, floor in lasting.items():
                    owed = client, topic_filter, topic
                    if owed in self._owed:
                        self._owed[owed] = min(self._owed[owed], floor)

    def come_to_rest(self) -> None:
        """Every broker has everything that was acknowledged."""
        self._is_at_rest = True

    def asked(self, client: str, topic_filter: str) -> None:
        """For the first time: later ones, after a broken connection, may be given what the first may."""
        if (client, topic_filter) not in self._floors:
            topics = [topic for topic in self._publishers if matches(topic_filter, topic)]
            lasting = {topic: self._lasting_floor(client, topic) for topic in topics}
            here = self._broker_of[client]
            self._lasting_floors[client, topic_filter] = lasting
            self._floors[client, topic_filter] = {
                topic: max(floor, self._seen_in_passing.get((here, topic), 0)) for topic, floor in lasting.items()
            }

    def _lasting_floor(self, client: str, topic: str) -> int:
        key = self._broker_of[client], topic
        floor = self._seen.get(key, 0)
        acknowledged = self._acknowledged.get(topic)
        is_near = self._broker_of[self._publishers[topic]] == key[0]
        if acknowledged is not None and (is_near or self._is_at_rest):
            floor = max(floor, acknowledged.number)
        return floor

    def subscribed(self, client: str, topic_filter: str, qos: int) -> None:
        """What is asked for now must come, unless its client does not stay."""
        if not qos or (client in self._passing and not self._is_at_rest):
            return
        for topic, floor in self._floors.get((client, topic_filter), {}).items():
            if floor > self._last_clear.get(topic, 0) and (client, topic_filter, topic) not in self._owed:
                self._owed[client, topic_filter, topic] = floor

    def got(self, client: str, message: SimulatedMessage, qos: int) -> None:
        self.replayed += 1
        topic, number = message.topic, message.number
        for (who, topic_filter), floors in self._floors.items():
            if who == client and matches(topic_filter, topic):
                if number < floors.get(topic, 0):
                    told = f"{client} got {message}, at least {floors[topic]} was retained when it subscribed"
                    self._report("a new subscription gets what was retained last", told)
                self._owed[client, topic_filter, topic] = 0
        if qos and message.qos == 2:
            seen = self._seen_in_passing if client in self._passing else self._seen
            key = self._broker_of[client], topic
            seen[key] = max(seen.get(key, 0), number)

    def missing(self) -> Broken | None:
        for (client, _, topic), number in self._owed.items():
            if number > self._last_clear.get(topic, 0):
                told = f"{client} got nothing of {topic}, at least {number} was retained when it subscribed"
                return Broken("a new subscription gets what was retained last", told)
        return None
