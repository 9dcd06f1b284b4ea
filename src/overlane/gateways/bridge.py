"""The bridge: both lanes of a gateway, the names of topics, and protection against loops; pure.

A message that crosses, in either direction, gets the name of the gateway into its property `overlane-via`. So

    inwards     a message that names any gateway of this overlay was here before, and stays out
    outwards    a message that names a gateway to the same foreign broker came from there, or went there, and stays in

That holds with several gateways to one broker, and in circles through several brokers: names of gateways to one broker
must be different, as client identifiers there have to be. Without properties (MQTT 3.1.1) the foreign broker is asked
not to return messages to the connection they came from.

Duplicates: several gateways to one broker are a group. Each message is given to one of them: by a shared subscription
at the overlay, and by whatever the foreign broker has for it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from overlane.gateways.lane import GatewayLane
from overlane.gateways.message import VIA, VIA_MAX, BridgedMessage
from overlane.network.schema import Gateway
from overlane.network.sections.gateways import has_same_peer
from overlane.topic_names import TopicNames

LOOPED, UNNAMED = "looped", "unnamed"


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Other gateways as far as they matter to one."""

    overlay: frozenset[str]
    """All gateways of the overlay."""
    group: frozenset[str]
    """Those to the same foreign broker, itself included."""

    @property
    def is_shared(self) -> bool:
        return len(self.group) > 1

    @property
    def group_name(self) -> str:
        """The same for all of the group, and for no other."""
        return min(self.group)


def neighbourhood(gateway: Gateway, gateways: Iterable[Gateway]) -> Neighbourhood:
    many = tuple(gateways)
    group = {gateway.name} | {other.name for other in many if has_same_peer(gateway, other)}
    return Neighbourhood(frozenset(other.name for other in many) | {gateway.name}, frozenset(group))


class Bridge:
    """`inwards`: from the foreign broker to the overlay. `outwards`: the other direction."""

    def __init__(self, gateway: Gateway, others: Neighbourhood) -> None:
        self._gateway = gateway
        self._others = others
        self.names = TopicNames(gateway.topics)
        self.inwards = GatewayLane(self._to_overlay, gateway.backlog_rate)
        self.outwards = GatewayLane(self._to_foreign, gateway.backlog_rate)

    def _to_overlay(self, message: BridgedMessage) -> BridgedMessage | str:
        return self._crossed(
            message, self.names.to_overlay(message.topic), self._others.overlay, self.names.reply_to_overlay
        )

    def _to_foreign(self, message: BridgedMessage) -> BridgedMessage | str:
        return self._crossed(message, self.names.to_local(message.topic), self._others.group, self.names.reply_to_local)

    def _crossed(
        self,
        message: BridgedMessage,
        topic: str | None,
        closed_to: frozenset[str],
        reply: Callable[[str], str | None],
    ) -> BridgedMessage | str:
        via = message.via
        if len(via) >= VIA_MAX or not closed_to.isdisjoint(via):
            return LOOPED
        if topic is None:
            return UNNAMED
        others = tuple(pair for pair in message.properties if pair[0] != VIA)
        response = message.response_topic
        return BridgedMessage(
            topic,
            message.body,
            min(message.qos, self._gateway.qos),
            message.retain,
            message.expiry_s,
            message.content_type,
            None if response is None else reply(response) or response,
            message.correlation_data,
            (*others, (VIA, ",".join((*via, self._gateway.name)))),
        )
