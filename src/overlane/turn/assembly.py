"""A broker from its records: the overlay's core, the MQTT server and their turns, put together in one way only."""

from collections.abc import Callable, Iterable

from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig
from overlane.core.gossip.incarnation_proofs import BrokerIdentity
from overlane.core.units import Nanos
from overlane.mqtt import runs
from overlane.mqtt.server import Server
from overlane.pubsub.recovery import Record
from overlane.pubsub.state import Settings
from overlane.turn.turn import Turn
from overlane.turn.uplink import CoreUplink

CORE_TABLES = frozenset({"parcel", "inflow", "subscription", "interest", "history"})


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
    """`is_alone`: there are no other brokers, until `Turn.meet_others`. `fresh_id` makes client identifiers."""
    records = list(records)
    of_core = [record for record in records if record[0] in CORE_TABLES]
    core = OverlayBroker(config, incarnation, of_core, now, identity, instance)
    uplink = CoreUplink(core, is_alone)
    server = Server(config.name, settings, uplink, fresh_id, records, now)
    core.set_readers(server.admission.take)
    core.count_messages(runs.count)
    core.split_bundles(runs.split)
    return Turn(server, core, uplink)
