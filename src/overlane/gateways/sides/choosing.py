"""Which side a foreign broker needs, and the secrets for it."""

import ssl
from collections.abc import Sequence
from pathlib import Path

from overlane.amqp.client.contract import ClientOptions, Receiver
from overlane.client import Tls
from overlane.errors import Unavailable
from overlane.extras import is_installed, missing_extra
from overlane.gateways.sides.amqp.addresses import Addresses
from overlane.gateways.sides.amqp.side import AmqpOptions, AmqpSide
from overlane.gateways.sides.mqtt5 import Mqtt5Options, Mqtt5Side
from overlane.gateways.sides.mqtt311 import Mqtt311Side
from overlane.gateways.sides.side import Side, SideHost
from overlane.network.schema import Gateway
from overlane.network.sections.gateways import ForeignAddress, foreign_address
from overlane.secret_file import read_secret_file
from overlane.topic_names import overlaps

CLIENT_ID = "overlane-{name}"


def password_in(file: str | None) -> bytes | None:
    """ConfigError if the file cannot be read."""
    return (
        None
        if file is None
        else read_secret_file(file, "a readable file with the password in its first line").split(b"\n")[0].rstrip(b"\r")
    )


def foreign_side(host: SideHost, gateway: Gateway, filters: Sequence[str], group: str | None) -> Side:
    """ConfigError if a file cannot be read, Unavailable if a package is missing."""
    address = foreign_address(gateway.to)
    scheme = "mqtts" if address.is_tls else "mqtt"
    tls = None
    if address.is_tls:
        tls = Tls(ca=_path(gateway.ca), certificate=_path(gateway.certificate), key=_path(gateway.key))
    options = Mqtt5Options(
        addresses=tuple(f"{scheme}://{one}" for one in address.endpoints),
        client_id=CLIENT_ID.format(name=gateway.name),
        filters=tuple(filters),
        group=group,
        qos=gateway.qos,
        user=gateway.user,
        password=password_in(gateway.password_file),
        tls=tls,
    )
    match address.technology, gateway.version:
        case "mqtt", "5":
            return Mqtt5Side(host, options)
        case "mqtt", _:
            return Mqtt311Side(host, options, address.endpoints, needs_bridge=_goes_both_ways(gateway))
        case "nats", _:
            _require("nats", "nats")
            # Only here: other gateways do without the package.
            from overlane.gateways.sides.nats import NatsOptions, NatsSide

            password = None if options.password is None else options.password.decode()
            servers = [f"{'tls' if tls else 'nats'}://{one}" for one in address.endpoints]
            context = None if tls is None else tls.context()
            return NatsSide(
                host,
                NatsOptions(
                    servers, options.client_id, filters, group, gateway.stream, gateway.user, password, context
                ),
            )
        case "amqp", _:
            context = None if tls is None else tls.context()
            return AmqpSide(host, _amqp_options(gateway, address, options, context))
        case "kafka", _:
            _require("confluent_kafka", "kafka")
            from overlane.gateways.sides.kafka.settings import kafka_options
            from overlane.gateways.sides.kafka.side import KafkaSide

            place = group or options.client_id
            return KafkaSide(host, kafka_options(gateway, address, place, filters, options.password))
    raise AssertionError(address.technology)


def _amqp_options(
    gateway: Gateway, address: ForeignAddress, options: Mqtt5Options, tls: ssl.SSLContext | None
) -> AmqpOptions:
    addresses = Addresses(gateway.address, gateway.syntax)
    if gateway.queue is not None and options.filters:
        receivers = [Receiver(gateway.queue, None)]
    else:
        receivers = [Receiver(addresses.of(one), one) for one in options.filters]
    client = ClientOptions(
        container_id=options.client_id,
        hostname="",
        receivers=tuple(receivers),
        group=options.group,
        is_reliable=gateway.qos > 0,
        user=gateway.user,
        password=options.password,
        has_certificate=gateway.certificate is not None,
        node="queue" if gateway.address.startswith("queue://") else "topic",
    )
    return AmqpOptions(address.endpoints, client, addresses, options.filters, gateway.qos, tls)


def _goes_both_ways(gateway: Gateway) -> bool:
    return any(
        out.direction != "in" and into.direction != "out" and overlaps(out.local, into.local)
        for out in gateway.topics
        for into in gateway.topics
    )


def _require(package: str, extra: str) -> None:
    if not is_installed(package):
        raise Unavailable(extra, missing_extra(package, extra))


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
