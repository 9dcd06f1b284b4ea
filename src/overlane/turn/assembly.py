"""A broker from its records: the core, the MQTT server and their turns, assembled in one way only."""

from collections.abc import Callable, Iterable

from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig
from overlane.core.gossip.incarnation_proofs import BrokerIdentity
from overlane.core.records import Record
from overlane.core.units import Nanos
from overlane.mqtt import runs
from overlane.mqtt.server import MqttServer
from overlane.pubsub.message import Message
from overlane.pubsub.state import Settings
from overlane.pubsub.timers import Timers
from overlane.turn.layers import Layers
from overlane.turn.reserving import RsvpNetwork
from overlane.turn.turn import Turn
from overlane.turn.uplink import CoreUplink


def assemble(
    config: BrokerConfig,
    settings: Settings,
    incarnation: int,
    records: Iterable[Record],
    now: Nanos,
    fresh_id: Callable[[], str],
    *,
    is_alone: bool = False,
    identity: BrokerIdentity | None = None,
    instance: int = 0,
) -> Turn:
    """`is_alone`: there are no other brokers, until `Turn.reconfigure` names a neighbour. `fresh_id` makes client
    identifiers."""
    records = list(records)
    core = OverlayBroker(
        config, incarnation, records, now, identity, instance, asks_readers=True, count=runs.count, split=runs.split
    )
    uplink, timers = CoreUplink(core, is_alone), Timers()
    reserving = RsvpNetwork(core, timers, uplink.tell)

    def failed_at_border(message: Message, reason: str, at: Nanos) -> None:
        server.pubsub.mediating.failed_at_border(message, reason, at)

    layers = Layers(settings, uplink, failed_at_border)
    local = layers.settings(settings)
    server = MqttServer(config.name, local, layers.uplink, fresh_id, records, now, reserving, timers)
    return Turn(server, core, uplink, reserving, layers)
