"""A message between two sides: what every technology can say of one, as far as it has words for it."""

from dataclasses import dataclass

VIA = "overlane-via"
"""The property with the names of the gateways that a message has passed, separated by commas."""
VIA_MAX = 16
"""A message that has passed more gateways goes round in a circle."""


@dataclass(frozen=True, slots=True)
class BridgedMessage:
    topic: str
    body: bytes
    qos: int = 1
    retain: bool = False
    expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def via(self) -> tuple[str, ...]:
        """The gateways that it has passed."""
        return tuple(name for key, value in self.properties if key == VIA for name in value.split(",") if name)
