"""Settings that are one of several words, and the words."""

from typing import Literal, TypeAlias, get_args

from overlane.membership.membership import Role
from overlane.pubsub.reservations.advertisement import Excess

Reliability: TypeAlias = Literal["reliable", "best-effort"]
RELIABILITIES: tuple[Reliability, ...] = get_args(Reliability)
Order: TypeAlias = Literal["strict", "deadline"]
ORDERS: tuple[Order, ...] = get_args(Order)
Routing: TypeAlias = Literal["single", "multipath", "flood", "adaptive", "thrifty"]
ROUTINGS: tuple[Routing, ...] = get_args(Routing)
Scheduling: TypeAlias = Literal["edf-shed", "edf", "laxity"]
SCHEDULINGS: tuple[Scheduling, ...] = get_args(Scheduling)
Ownership: TypeAlias = Literal["shared", "exclusive"]
OWNERSHIPS: tuple[Ownership, ...] = get_args(Ownership)
Durability: TypeAlias = Literal["local", "mirrored"]
DURABILITIES: tuple[Durability, ...] = get_args(Durability)
Transport: TypeAlias = Literal["datagram", "stream"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
ClientCertificate: TypeAlias = Literal["required", "optional"]
CLIENT_CERTIFICATES: tuple[ClientCertificate, ...] = get_args(ClientCertificate)
History: TypeAlias = int | Literal["all"]
MqttVersion: TypeAlias = Literal["5", "3.1.1"]
MQTT_VERSIONS: tuple[MqttVersion, ...] = get_args(MqttVersion)
AddressSyntax: TypeAlias = Literal["slashes", "dots"]
ADDRESS_SYNTAXES: tuple[AddressSyntax, ...] = get_args(AddressSyntax)
SaslMechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SASL_MECHANISMS: tuple[SaslMechanism, ...] = get_args(SaslMechanism)
DdsFormat: TypeAlias = Literal["cdr", "json"]
DDS_FORMATS: tuple[DdsFormat, ...] = get_args(DdsFormat)
Launcher: TypeAlias = Literal["local", "command", "systemd", "kubernetes"]
LAUNCHERS: tuple[Launcher, ...] = get_args(Launcher)
ROLES: tuple[Role, ...] = get_args(Role)
EXCESSES: tuple[Excess, ...] = get_args(Excess)
STRATEGIES = ("least-loaded", "topics", "latency")
