"""A carrier: an MQTT broker that both ends of a link can reach, and that carries the link."""

import re

import msgspec

_URL = re.compile(r"(mqtts?)://([^/,@\s]+)/([^+#\s]{1,200})")


class Carrier(msgspec.Struct, frozen=True):
    address: str
    """As clients write it: `mqtts://host:port`."""
    prefix: str
    """What topics begin with."""

    @property
    def url(self) -> str:
        return f"{self.address}/{self.prefix}"


def parse_carrier(url: str) -> Carrier:
    """`mqtt://host:port/prefix`; ValueError if it is none."""
    found = _URL.fullmatch(url)
    if found is None or found[3].startswith("$"):
        raise ValueError("not an MQTT broker and a prefix of topics")
    return Carrier(f"{found[1]}://{found[2]}", found[3].rstrip("/"))
