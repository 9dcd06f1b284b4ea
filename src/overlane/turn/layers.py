"""What lies between the service and the core of one broker: mediation at borders, and topic names of its domain.

    service -- local names --> names (`pubsub.cluster.renaming`) -- names of the overlay --> borders --> core

Each is there only if the configuration has it; otherwise the service uses the core's uplink itself.

Tables of the network file are for the names of the overlay: QoS classes, policies, mirrored topics, mediation at
borders. Access rights and mediation where messages are published are for the names that clients use.
"""

from collections.abc import Iterable
from dataclasses import replace

from overlane.core.events import HeldMessageSent, InterestChanged
from overlane.core.units import Nanos
from overlane.domain_names import DomainNames
from overlane.mediation.border import BorderMediation
from overlane.mqtt.run_names import rename_run
from overlane.pubsub.cluster.border import MediatedUplink, OnFailed, Receive
from overlane.pubsub.cluster.local_names import LocalNames
from overlane.pubsub.cluster.renaming import RenamedUplink
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.message import Message
from overlane.pubsub.state import Settings
from overlane.turn.reconfigure import RestartNeeded


class Layers:
    def __init__(self, settings: Settings, uplink: Uplink, on_failed: OnFailed) -> None:
        """`on_failed`: takes a message for which a rule at a border has failed, under its local name."""
        self.uplink = uplink
        self._rules = settings.names
        self._names = DomainNames(settings.names) if settings.names else None
        self._on_failed = on_failed
        self._border: BorderMediation | None = None
        self._mediated: MediatedUplink | None = None
        self._renamed: RenamedUplink | None = None
        if settings.borders is not None:
            self._border = BorderMediation(settings.borders)
            self.uplink = self._mediated = MediatedUplink(self.uplink, self._border, self._failed)
        if self._names is not None:
            self.uplink = self._renamed = RenamedUplink(self.uplink, LocalNames(self._names), rename_run)

    def settings(self, settings: Settings) -> Settings:
        """For topics as clients here name them; RestartNeeded if there are to be other names or layers than before."""
        if settings.names != self._rules:
            raise RestartNeeded("names of topics cannot change while the broker runs")
        if (settings.borders is None) != (self._border is None):
            raise RestartNeeded("mediation at borders cannot begin or end while the broker runs")
        if self._border is not None and settings.borders is not None:
            self._border.follow(settings.borders)
        names = self._names
        if names is None:
            return settings
        mirrored, policies = settings.mirrored, settings.policies
        return replace(
            settings,
            qos=settings.qos.under(names.to_overlay),
            mirrored=None if mirrored is None else mirrored.under(names.to_overlay),
            policies=None if policies is None else policies.under(names.to_overlay, names.filters_to_overlay),
        )

    def receiver(self, receive: Receive) -> Receive:
        """What takes messages from the core, for the service."""
        if self._renamed is not None:
            receive = self._renamed.receiver(receive)
        return receive if self._mediated is None else self._mediated.receiver(receive)

    def filters(self, change: InterestChanged) -> Iterable[str]:
        """The filters, as clients here name them, that another broker needs or needs no more."""
        if self._renamed is None:
            return (change.topic_filter,)
        return self._renamed.interest(change.topic_filter, change.broker, change.is_needed)

    def held(self, held: HeldMessageSent) -> HeldMessageSent | None:
        """Under the name that clients here know; None if it has none."""
        return held if self._renamed is None else self._renamed.held(held)

    def _failed(self, message: Message, reason: str, now: Nanos) -> None:
        topic = message.topic if self._names is None else self._names.to_local(message.topic) or message.topic
        local = Message(topic, message.payload, message.qos, encoded=message.encoded, published_ns=message.published_ns)
        self._on_failed(local, reason, now)
