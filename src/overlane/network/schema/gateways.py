"""Gateways to foreign brokers and to DDS domains."""

import msgspec

from overlane.network.schema.choices import AddressSyntax, DdsFormat, MqttVersion, SaslMechanism
from overlane.topic_names import NameRule


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """A process that joins a broker of the overlay and a foreign broker, and passes messages on between them."""

    name: str
    broker: str
    """The broker of the overlay."""
    to: str
    """Where the foreign broker is: `mqtt://host:port`, several addresses separated by commas."""
    topics: tuple[NameRule, ...] = ()
    version: MqttVersion = "5"
    qos: int = 1
    """The highest QoS with which messages cross."""
    backlog_rate: int | None = 1_000
    """Messages a second in each direction while what has waited is passed on."""
    stream: str | None = None
    """A JetStream stream that has what comes from NATS."""
    address: str = "{}"
    """How an AMQP broker writes the address of a topic; `{}` is its name."""
    syntax: AddressSyntax = "slashes"
    queue: str | None = None
    """The address of an AMQP queue that has what comes from there."""
    user: str | None = None
    password_file: str | None = None
    sasl: SaslMechanism = "PLAIN"
    """How it logs in at Kafka."""
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    overlay_user: str | None = None
    """How it logs in at the broker of the overlay."""
    overlay_password_file: str | None = None


class DomainName(msgspec.Struct, frozen=True, kw_only=True):
    """Names of topics in a domain, and in the overlay."""

    domain: str
    local: str
    overlay: str


class DdsGateway(msgspec.Struct, frozen=True, kw_only=True):
    """A process that joins a broker of the overlay and a DDS domain."""

    name: str
    broker: str
    domain: int = 0
    topics: tuple[str, ...] = ("*",)
    """Patterns of the DDS topics that may cross."""
    prefix: str = "dds"
    """Gateways with the same prefix interoperate; the topics of the overlay begin with it."""
    format: DdsFormat = "cdr"
