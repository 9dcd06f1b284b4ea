"""The uplink of a broker where rules of mediation hold at borders (`overlane.mediation.border`).

A message that clients publish is changed at this broker, once for each domain that needs it: what a rule drops does not
travel to that domain, and brokers of this domain get the message as it is. Messages that become the same for several
domains are sent together. A retained message is exchanged by all brokers, and is changed where it arrives (`receiver`).

Rules see the names of the overlay. A message for which a rule fails does not cross, and is a dead letter here.
"""

from collections.abc import Callable
from dataclasses import replace

from overlane.core.events import Deliver, PublishResult, Reception
from overlane.core.qos import QosClass
from overlane.core.units import Nanos
from overlane.core.wire.parcel import Message as Brought
from overlane.mediation.border import BorderMediation
from overlane.mediation.draft import Draft
from overlane.mediation.mediation import Failed, Passed
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.arrivals import Mixed
from overlane.pubsub.cluster.names import HANDOUT, RETAINED, SHARE, read_share_name
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.message import Message

STAMP_BYTES = 8

Receive = Callable[[Deliver, Nanos, list[Mixed] | None], Reception]
OnFailed = Callable[[Message, str, Nanos], None]
"""A message for which a rule has failed, and why."""


class MediatedUplink:
    def __init__(self, uplink: Uplink, border: BorderMediation, on_failed: OnFailed) -> None:
        self._uplink = uplink
        self._border = border
        self._on_failed = on_failed
        self.share_of, self.progress_of = uplink.share_of, uplink.progress_of
        self.send_to, self.needs_size = uplink.send_to, uplink.needs_size
        self.can_reach, self.carriers = uplink.can_reach, uplink.carriers
        self.can_share, self.bundle_of, self.needing = uplink.can_share, uplink.bundle_of, uplink.needing
        self.carries, self.is_subscribed = uplink.carries, uplink.is_subscribed
        self.destinations, self.withheld_from = uplink.destinations, uplink.withheld_from
        self.way_share, self.way_of, self.crowding = uplink.way_share, uplink.way_of, uplink.crowding
        self.publish_mixed_run = uplink.publish_mixed_run
        self.subscribe, self.unsubscribe, self.renew = uplink.subscribe, uplink.unsubscribe, uplink.renew
        self.reserved_interest = uplink.reserved_interest

    has_names = False

    @property
    def is_alone(self) -> bool:
        return self._uplink.is_alone

    @property
    def is_edge(self) -> bool:
        return self._uplink.is_edge

    @property
    def is_routing(self) -> bool:
        return self._uplink.is_routing

    @property
    def has_border(self) -> bool:
        return self._uplink.has_border

    @property
    def changes(self) -> int:
        return self._uplink.changes

    def mediates(self, topic: str) -> bool:
        """Whether messages of the topic may change on their way to some domain, and are looked at one by one."""
        rules = self._border.rules
        domains = {rules.domain_of(one) for one in self._uplink.needing(topic)}
        return any(self._border.concerns(rules.own, one, topic) for one in domains)

    def publish(
        self, topic: str, body: bytes, flags: int, qos: QosClass, now: Nanos, served: tuple[str, ...] = ()
    ) -> PublishResult:
        if topic.startswith(SHARE):
            return self._publish_shared(topic, body, flags, qos, now)
        if topic.startswith("$") or not self.mediates(topic):
            return self._uplink.publish(topic, body, flags, qos, now, served)
        rules, parts = self._border.rules, dict[tuple[int, bytes], list[str]]()
        made: dict[str, tuple[int, bytes] | None] = {}
        for broker in self._uplink.needing(topic):
            domain = rules.domain_of(broker)
            if domain not in made:
                made[domain] = self._crossed(topic, flags, body, domain, now)
            if (found := made[domain]) is not None:
                parts.setdefault(found, []).append(broker)
        results = [
            self._uplink.publish(topic, its_body, its_flags, replace(qos, only=tuple(brokers)), now, served)
            for (its_flags, its_body), brokers in parts.items()
        ]
        return max(results, default=PublishResult.ACCEPTED)

    def _publish_shared(self, name: str, body: bytes, flags: int, qos: QosClass, now: Nanos) -> PublishResult:
        """For a member of a shared subscription at one broker."""
        _, broker, _, topic = read_share_name(name)
        found = (
            self._crossed(topic, flags, body, self._border.rules.domain_of(broker), now) if broker else (flags, body)
        )
        if found is None:
            return PublishResult.ACCEPTED
        return self._uplink.publish(name, found[1], found[0], qos, now)

    def _crossed(self, topic: str, flags: int, body: bytes, domain: str, now: Nanos) -> tuple[int, bytes] | None:
        """What a message becomes on its way to a domain; None if it does not cross."""
        own = self._border.rules.own
        if not self._border.concerns(own, domain, topic):
            return flags, body
        message = envelope.unpack(topic, flags, body, now)
        changed = self._changed(message, own, domain, now)
        if changed is None or changed is message:
            return None if changed is None else (flags, body)
        return envelope.pack(changed, now)

    def _changed(self, message: Message, source: str, destination: str, now: Nanos) -> Message | None:
        draft = draft_of(message)
        result = self._border.run(source, destination, draft, now)
        if isinstance(result, Failed):
            self._on_failed(message, f"rule {result.rule}: {result.reason}", now)
        if not isinstance(result, Passed):
            return None
        if result.draft is draft:
            return message
        made = result.draft
        encoded = message.properties._replace(
            content_type=made.content_type, is_text=made.is_text, user_properties=made.properties
        ).encode()
        return Message(
            message.topic,
            made.payload,
            message.qos,
            message.retain,
            encoded,
            message.sender,
            message.published_ns,
            message.expires_ns,
        )

    # What the overlay brings

    def receiver(self, receive: Receive) -> Receive:
        """Changes retained messages of other domains, for the service."""

        def deliver(effect: Deliver, now: Nanos, opened: list[Mixed] | None = None) -> Reception:
            source, own = self._border.rules.domain_of(effect.origin), self._border.rules.own
            if source != own and any(topic.startswith((RETAINED, HANDOUT)) for topic, _, _ in effect.messages):
                kept = [one for brought in effect.messages if (one := self._arrived(brought, source, now)) is not None]
                effect = effect._replace(messages=kept)
            return receive(effect, now, opened)

        return deliver

    def _arrived(self, brought: Brought, source: str, now: Nanos) -> Brought | None:
        name, flags, body = brought
        if not name.startswith((RETAINED, HANDOUT)):
            return brought
        topic = name.split("/", 2 if name.startswith(HANDOUT) else 1)[-1]
        if not self._border.concerns(source, self._border.rules.own, topic):
            return brought
        try:
            message = envelope.unpack(topic, flags, body[STAMP_BYTES:], now)
            changed = self._changed(message, source, self._border.rules.own, now)
        except (ValueError, IndexError):
            return brought  # the service refuses it, and counts that
        if changed is None or changed is message:
            return None if changed is None else brought
        new_flags, new_body = envelope.pack(changed, now)
        return name, new_flags | flags & envelope.ASKED, body[:STAMP_BYTES] + new_body


def draft_of(message: Message) -> Draft:
    properties = message.properties
    return Draft(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        properties.content_type,
        properties.is_text,
        properties.user_properties,
    )
