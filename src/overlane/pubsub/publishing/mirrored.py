"""Topics whose messages are acknowledged only when another host has a copy too (`durability = "mirrored"`).

Two rules together. While no mirror is in sync, messages of QoS 1 and 2 on such topics are refused, and others go on. A
message that was accepted before makes the batch of its turn wait for a mirror, and all later batches wait behind it.
"""

from collections.abc import Callable, Mapping

from overlane.core.qos import QosClass, QosTable

NO_MIRROR = "no other host has a copy of this broker now; try again"


class MirroredTopics:
    def __init__(self, filters: Mapping[str, bool]) -> None:
        """By filter, whether its topics are mirrored. The most specific one counts, as with QoS classes."""
        self._table = QosTable({name: QosClass(reliable=is_mirrored) for name, is_mirrored in filters.items()})

    def under(self, renamed: Callable[[str], str | None]) -> "MirroredTopics":
        """The same topics, where they have other names."""
        found = MirroredTopics({})
        found._table = self._table.under(renamed)
        return found

    def has(self, topic: str) -> bool:
        return self._table.of(topic).reliable
