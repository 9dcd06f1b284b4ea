"""A carrier: an MQTT or AMQP 1.0 broker that both ends of a link can reach, and that carries the link."""

import re

import msgspec

_URL = re.compile(r"(mqtts?|amqps?)://([^/,@\s]+)/([^+#\s]{1,200})")


class Carrier(msgspec.Struct, frozen=True):
    address: str
    """As clients write it: `mqtts://host:port`."""
    prefix: str
    """What topics, or addresses of AMQP, begin with."""

    @property
    def is_amqp(self) -> bool:
        return self.address.startswith("amqp")

    def topic(self, destination: str, source: str) -> str:
        """Of messages from one broker to another. AMQP brokers separate levels by dots, if they have any."""
        return ("." if self.is_amqp else "/").join((self.prefix, destination, source))

    @property
    def url(self) -> str:
        return f"{self.address}/{self.prefix}"


def parse_carrier(url: str) -> Carrier:
    """`mqtt://host:port/prefix` or `amqp://host:port/prefix`; ValueError if it is none."""
    found = _URL.fullmatch(url)
    if found is None or found[3].startswith("$"):
        raise ValueError("not an MQTT or AMQP broker and a prefix of topics")
    return Carrier(f"{found[1]}://{found[2]}", found[3].rstrip("/"))
