"""Arrivals: messages from other brokers, on their way to the clients here.

A message is a run of plain messages, a retained message that brokers exchange, a message for one member of a shared
subscription, or a message for all subscribers. One that cannot be decoded is counted as refused, and affects nothing
else that arrived with it.
"""

from typing import NamedTuple, Protocol

from overlane.core.events import TAKEN, Deliver, Reception
from overlane.core.events import LocalDelivery as Delivered
from overlane.core.units import NEVER, Nanos
from overlane.errors import InDoubt
from overlane.pubsub.cluster import envelope, names
from overlane.pubsub.cluster.admission import Admission
from overlane.pubsub.cluster.cluster import LOCAL_SUBSCRIBERS
from overlane.pubsub.counters import Drop, Refusal
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.message import Message
from overlane.pubsub.policies.publishers import PublisherPolicies
from overlane.pubsub.publishing.message_ids import may_have_id, read_id
from overlane.pubsub.retained.handouts import Handouts
from overlane.pubsub.state import State
from overlane.pubsub.suspects import suspect_of


class Mixed(NamedTuple):
    """Of each message of a mixed run, its topic and the bytes of its payload."""

    topics: list[str]
    sizes: list[int]


class Runs(Protocol):
    """A protocol that puts plain messages into the overlay as its own packets."""

    def arrive(self, topic: str, flags: int, body: bytes, now: Nanos) -> Mixed | None:
        """Hand out the messages of a run, or of a mixed run, whose topic is empty; what a mixed run held is returned.
        ValueError or IndexError if it cannot be read, and then nobody gets any."""


class NoRuns:
    def arrive(self, topic: str, flags: int, body: bytes, now: Nanos) -> Mixed | None:  # noqa: ARG002
        raise ValueError("a run of a protocol that is not spoken here")


class Arrivals:
    def __init__(
        self,
        state: State,
        delivery: Delivery,
        admission: Admission,
        runs: Runs,
        handouts: Handouts,
        policies: PublisherPolicies,
    ) -> None:
        self._state = state
        self._policies = policies
        self._handouts = handouts
        self._admission = admission
        self._delivery = delivery
        self._runs = runs
        self._at_hand: Message | None = None
        """The message that is being handed on; None as long as it is being read."""

    def deliver(self, effect: Deliver, now: Nanos, opened: list[Mixed] | None = None) -> Reception:
        """What the overlay brought for local subscribers; nothing is done with reliable messages that find no room.
        What was in mixed runs is added to `opened`."""
        state, reception, overrun = self._state, TAKEN, 1
        if effect.reliable:
            reception = self._admission.admit(effect.messages, now)
            if not reception.is_taken:
                return reception
            overrun = NEVER  # it will be acknowledged for all who are waited for
        for topic, flags, body in effect.messages:
            subscribers = effect.subscribers.get(topic)
            if subscribers is None or not (subscribers or topic.startswith(names.SHARE)):
                continue
            self._at_hand = None
            if state.suspects and suspect_of(effect.origin, 0, topic, body) in state.suspects:
                state.refuse(Refusal.SUSPECT, f"a message of {effect.origin} that has crashed the broker twice")
                continue
            try:
                if flags & envelope.RUN_MASK and not topic.startswith(names.RESERVED):
                    mixed = self._runs.arrive(topic, flags, body, now)
                    if mixed is not None and opened is not None:
                        opened.append(mixed)
                else:
                    one = Delivered(topic, body, flags, subscribers)
                    self._deliver_one(one, effect.origin, now - effect.age_ns, overrun, now)
            except InDoubt:
                raise
            except Exception as error:
                self._failed(effect.origin, topic, body, error)
        return reception

    def _failed(self, origin: str, topic: str, body: bytes, error: Exception) -> None:
        """A message could not be read, or not be handed on. Of one that its origin counts as delivered when the turn is
        on disk nothing must be missing: then nothing of the turn is written, and all of it comes again."""
        message = self._at_hand
        if message is not None and (message.qos or message.retain):
            told = f"a message of {origin} on {message.topic[:100]} has reached some receivers"
            raise InDoubt(told, suspect_of(origin, 0, topic, body)) from error
        if message is None and isinstance(error, (ValueError, IndexError)):
            self._state.refuse(Refusal.MALFORMED, f"a message of {origin} that cannot be read")
        else:
            self._state.failed("delivery", origin, error)

    def _deliver_one(self, one: Delivered, origin: str, published_ns: Nanos, overrun: int, now: Nanos) -> None:
        state = self._state
        if one.topic.startswith((names.RETAINED, names.HANDOUT)):
            arrived = state.cluster.read_retained(one.topic, one.flags, one.body)
            self._at_hand = arrived
            is_handout = one.topic.startswith(names.HANDOUT)
            self._handouts.arrived(arrived, origin, is_handout, bool(one.flags & envelope.ASKED), now)
            return
        if one.topic.startswith(names.SHARE):
            self._deliver_to_group(one, published_ns, overrun, now)
            return
        arrived = envelope.unpack(one.topic, one.flags, one.body, published_ns)
        if arrived.expires_ns > now:
            only = () if one.subscribers == (LOCAL_SUBSCRIBERS,) else one.subscribers
            if may_have_id(arrived.encoded) and not only and self._check_duplicate(arrived):
                return
            self._at_hand = arrived
            audience = state.subscriptions.audience(one.topic)
            if state.settings.policies is not None and not only and (policy := self._policies.of(one.topic)):
                self._policies.spread(arrived, audience, policy, now, overrun=overrun)
                return
            self._delivery.spread(arrived, audience, now, None, only, overrun)

    def _check_duplicate(self, arrived: Message) -> bool:
        """Whether a copy of it was delivered before. Not asked where a history is kept: there a message may come again
        for a subscriber that is new."""
        message_id = read_id(arrived.properties.user_properties)
        if message_id is None or self._state.message_ids.delivered.add(message_id):
            return False
        self._state.message_ids.duplicates += 1
        return True

    def _deliver_to_group(self, one: Delivered, published_ns: Nanos, overrun: int, now: Nanos) -> None:
        """Another broker has chosen this one for a message of a shared subscription. If the last member here has gone
        meanwhile, it goes on to a broker that has members."""
        name, _, tag, topic = names.read_share_name(one.topic)
        arrived = envelope.unpack(topic, one.flags, one.body, published_ns)
        if arrived.expires_ns <= now:
            return
        self._at_hand = arrived
        if not self._delivery.share_by_name(arrived, name, tag, now, overrun):
            self._state.counters.dropped[Drop.SESSION_ENDED] += 1
