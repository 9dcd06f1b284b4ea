"""Names of topics as addresses of an AMQP broker, and back; pure.

`address` is a template with `{}` in the place of the name, `syntax` says how the name is written there:

    slashes   orders/new    orders/+      orders/#        as in MQTT; the default
    dots      orders.new    orders.*      orders.#        RabbitMQ, ActiveMQ Artemis; a dot in a level is %2E

AMQP has no field for the topic that a message was published on. What brokers and clients say of it is tried in this
order, and the first that a rule of the gateway has is taken: the annotations `x-opt-topic` (Overlane) and
`x-routing-key` (RabbitMQ), the properties `to` and `subject`. Where none is, it is the address that the link reads
from, if that has no wildcards.
"""

from collections.abc import Iterable, Sequence

from overlane.core.topics import matches
from overlane.network.schema import AddressSyntax

PLACE = "{}"
PREFIXES = ("topic://", "queue://")


class Addresses:
    def __init__(self, template: str, syntax: AddressSyntax) -> None:
        self._before, _, self._behind = template.partition(PLACE)
        self._has_dots = syntax == "dots"

    def of(self, name: str) -> str:
        """The address of a topic, or of a filter."""
        return self._before + (_dotted(name) if self._has_dots else name) + self._behind

    def name(self, address: str) -> str:
        """The opposite. An address without what the template has around the name is a name."""
        inner = address
        if address.startswith(self._before) and address.endswith(self._behind):
            inner = address[len(self._before) : len(address) - len(self._behind)]
        for prefix in PREFIXES:
            inner = inner.removeprefix(prefix)
        return _undotted(inner) if self._has_dots else inner


def chosen_name(told: Iterable[str], addresses: Addresses, filters: Sequence[str], read_from: str | None) -> str | None:
    """`told`: what is said of the topic of a message, best first. `read_from`: the filter of its link, if that is the
    filter of a rule. None if no rule has any of them."""
    for one in told:
        name = addresses.name(one)
        if any(matches(topic_filter, name) for topic_filter in filters):
            return name
    if read_from is not None and not {"+", "#"}.intersection(read_from.split("/")):
        return read_from
    return None


def _dotted(name: str) -> str:
    levels = name.split("/")
    return ".".join("*" if one == "+" else one.replace("%", "%25").replace(".", "%2E") for one in levels)


def _undotted(text: str) -> str:
    return "/".join(one.replace("%2E", ".").replace("%25", "%") for one in text.split("."))
