"""A gateway's table in the network file as settings of librdkafka."""

from collections.abc import Iterable

from overlane.gateways.sides.kafka.side import KafkaOptions
from overlane.network.schema import Gateway
from overlane.network.sections.gateways import ForeignAddress


def kafka_options(
    gateway: Gateway, address: ForeignAddress, group: str, filters: Iterable[str], password: bytes | None
) -> KafkaOptions:
    return KafkaOptions(
        settings=_settings(gateway, address, password),
        group=group,
        topics_in=tuple(sorted({one.split("/")[0] for one in filters})),
        probed=gateway.topics[0].local.split("/")[0],
        shown=gateway.to,
    )


def _settings(gateway: Gateway, address: ForeignAddress, password: bytes | None) -> dict[str, object]:
    settings: dict[str, object] = {"bootstrap.servers": ",".join(str(one) for one in address.endpoints)}
    has_login = gateway.user is not None
    if address.is_tls:
        settings["security.protocol"] = "sasl_ssl" if has_login else "ssl"
        files = {"ssl.ca.location": gateway.ca, "ssl.certificate.location": gateway.certificate}
        files["ssl.key.location"] = gateway.key
        settings |= {name: file for name, file in files.items() if file is not None}
    elif has_login:
        settings["security.protocol"] = "sasl_plaintext"
    if has_login:
        settings |= {"sasl.mechanism": gateway.sasl, "sasl.username": gateway.user}
        settings["sasl.password"] = (password or b"").decode()
    return settings
