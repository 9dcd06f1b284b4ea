"""Topic names of a domain, put together for one broker: its uplink, what arrives, and its settings.

Tables of the network file are for the names of the overlay: QoS classes, policies, mirrored topics. Access rights and
mediation are for the names that clients use.
"""

from collections.abc import Iterable
from dataclasses import replace

from overlane.core.events import HeldMessageSent, InterestChanged
from overlane.domain_names import DomainNames
from overlane.mqtt.run_names import rename_run
from overlane.pubsub.cluster.local_names import LocalNames
from overlane.pubsub.cluster.renaming import RenamedUplink
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.state import Settings
from overlane.topic_names import NameRule
from overlane.turn.reconfigure import RestartNeeded


class Naming:
    def __init__(self, rules: tuple[NameRule, ...], uplink: Uplink) -> None:
        self.rules = rules
        self.names = DomainNames(rules)
        self.uplink = RenamedUplink(uplink, LocalNames(self.names), rename_run)

    def local(self, settings: Settings) -> Settings:
        """For topics as clients here name them."""
        names, mirrored, policies = self.names, settings.mirrored, settings.policies
        return replace(
            settings,
            qos=settings.qos.under(names.to_overlay),
            mirrored=None if mirrored is None else mirrored.under(names.to_overlay),
            policies=None if policies is None else policies.under(names.to_overlay, names.filters_to_overlay),
        )


def local_settings(naming: Naming | None, settings: Settings) -> Settings:
    """New settings, for topics as clients here name them; RestartNeeded if they are to have other names than before."""
    if settings.names != (() if naming is None else naming.rules):
        raise RestartNeeded("names of topics cannot change while the broker runs")
    return settings if naming is None else naming.local(settings)


def local_filters(naming: Naming | None, change: InterestChanged) -> Iterable[str]:
    """The filters, as clients here name them, that another broker needs or needs no more."""
    if naming is None:
        return (change.topic_filter,)
    return naming.uplink.interest(change.topic_filter, change.broker, change.is_needed)


def local_held(naming: Naming | None, held: HeldMessageSent) -> HeldMessageSent | None:
    """Under the name that clients here know; None if it has none."""
    return held if naming is None else naming.uplink.held(held)
