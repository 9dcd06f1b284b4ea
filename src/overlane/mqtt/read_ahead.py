"""Reading ahead: acknowledgements of a client from which nothing else is taken for the moment.

A client whose messages find no room has to rest, or to stop. What it sends meanwhile is kept in its order, but for its
acknowledgements of messages it was given: these are handled at once. Otherwise a client that both publishes and
subscribes would seem to answer nothing: its own queue would fill up, those who publish to it would have to rest for it,
and so each client would wait for the next one.

Acknowledgements keep their order among each other, which is all that MQTT asks for (section 4.6). PUBREL is not one of
them: it belongs to what the client publishes.
"""

from typing import Final

from overlane.mqtt.codec.framing import packet_end
from overlane.mqtt.codec.malformed import Malformed
from overlane.mqtt.codec.writing import PUBACK, PUBCOMP, PUBREC

ACKNOWLEDGEMENTS: Final = frozenset({PUBACK, PUBREC, PUBCOMP})
"""The first bytes of their packets."""


class ReadAhead:
    """What one client has sent and is kept. Bytes are looked at once, unless their packet is not whole."""

    __slots__ = ("_kept", "_kept_bytes", "_part", "acknowledgements")

    def __init__(self) -> None:
        self.acknowledgements = b""
        """Those that were not handled yet, one behind the other."""
        self._kept: list[bytes] = []
        self._part = b""
        """The beginning of a packet whose end has not come."""
        self._kept_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        return len(self.acknowledgements) + self._kept_bytes + len(self._part)

    def feed(self, data: bytes) -> None:
        """Find the acknowledgements in it, and keep everything else. What is no packet is kept too: it is found out
        when its turn comes."""
        data = self._part + data
        found = [self.acknowledgements]
        position = start = 0
        end = len(data)
        while position < end:
            try:
                following = packet_end(data, position)
            except Malformed:
                break
            if not 0 <= following <= end:
                break
            if data[position] in ACKNOWLEDGEMENTS:
                self._keep(data[start:position])
                found.append(data[position:following])
                start = following
            position = following
        self._keep(data[start:position])
        self._part = data[position:]
        self.acknowledgements = b"".join(found)

    def _keep(self, data: bytes) -> None:
        if data:
            self._kept.append(data)
            self._kept_bytes += len(data)

    def take(self) -> bytes:
        """All that was not handled: acknowledgements, and then the others in their order."""
        data = b"".join((self.acknowledgements, *self._kept, self._part))
        self._kept.clear()
        self._kept_bytes = 0
        self._part = self.acknowledgements = b""
        return data
