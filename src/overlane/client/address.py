"""Address of a broker: `host`, `host:port`, `[::1]:1883`, with an optional `mqtt://` or `mqtts://` in front."""

import re
from dataclasses import dataclass

from overlane.client.errors import InvalidRequest

PORT = 1883
PORT_TLS = 8883

_FORM = re.compile(r"(?:(mqtts?)://)?(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\s\[\]:/@]+))(?::([0-9]{1,5}))?/?")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str, tls: bool = False) -> Address:
    """`tls` applies to addresses without a scheme."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidRequest(f'invalid address {text!r}: expected "host:port", "[::1]:1883" or "mqtts://host"')
    scheme, bracketed, plain, port = match.groups()
    if scheme == "mqtt" and tls:
        raise InvalidRequest(f"address {text}: mqtt:// is without TLS, but TLS options are given; use mqtts://")
    with_tls = tls or scheme == "mqtts"
    number = int(port) if port else PORT_TLS if with_tls else PORT
    if not 1 <= number <= 65535:
        raise InvalidRequest(f"address {text}: got port {number}; expected 1 to 65535")
    return Address(bracketed or plain, number, with_tls)
