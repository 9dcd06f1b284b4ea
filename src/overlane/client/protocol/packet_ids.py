"""Packet identifiers: which of 1 to 65535 this client uses, for publications and subscriptions.

They are assigned in turn, so that a late response rarely matches a new user of its identifier.
"""

from overlane.client.errors import InvalidRequest

IDS_MAX = 65_535


class PacketIds:
    def __init__(self) -> None:
        self._used: set[int] = set()
        self._last = 0

    def take(self) -> int:
        if len(self._used) >= IDS_MAX:
            raise InvalidRequest(f"more than {IDS_MAX} requests are waiting for a response of the broker")
        while True:
            self._last = self._last % IDS_MAX + 1
            if self._last not in self._used:
                self._used.add(self._last)
                return self._last

    def give_back(self, packet_id: int) -> None:
        self._used.discard(packet_id)
