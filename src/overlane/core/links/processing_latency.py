"""Processing latency: how long parcels of each class wait in this broker, and what of it has been advertised.

Classes are told apart by their deadlines, as coarse as in the labels that others read.
"""

from overlane.core.qos import coarse_us

ADVERTISED_US_MIN = 500
"""Less is not advertised."""


class ProcessingLatency:
    __slots__ = ("_advertised", "_average_us", "has_news")

    def __init__(self) -> None:
        self._average_us: dict[int, int] = {}
        self._advertised: dict[int, int] = {}
        self.has_news = False

    def measured(self, deadline_us: int, waited_us: int) -> None:
        deadline_us = coarse_us(deadline_us)
        known = self._average_us.get(deadline_us, 0)
        self._average_us[deadline_us] = average = known + ((waited_us - known) >> 3)
        if processing_differs(self._advertised.get(deadline_us, 0), average):
            self.has_news = True

    def decay(self) -> None:
        """Halve all, so that classes without traffic are forgotten."""
        self._average_us = {deadline_us: us >> 1 for deadline_us, us in self._average_us.items() if us > 1}
        self.has_news = bool(self._advertised)

    def to_advertise(self) -> dict[int, int]:
        return {deadline_us: us for deadline_us, us in self._average_us.items() if us >= ADVERTISED_US_MIN}

    def advertised(self, latencies: dict[int, int]) -> None:
        self._advertised = latencies


def processing_differs(old_us: int, new_us: int) -> bool:
    """Whether it has really changed, and not just by a hair."""
    return abs(new_us - old_us) > max(2000, old_us // 2)
