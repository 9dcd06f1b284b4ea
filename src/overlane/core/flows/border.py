"""The border on entry: messages of other brokers that the rules of this one refuse.

Each is counted. Operators get a report from time to time, by origin, with one topic as an example: otherwise a closed
border would fill their log.
"""

from dataclasses import dataclass, field

from overlane.core.events import RefusedAtBorder


@dataclass(slots=True)
class EntryRefusals:
    messages: int = 0
    _untold: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By origin, a topic and how many."""

    def add(self, origin: str, topic: str, messages: int) -> None:
        self.messages += messages
        first, before = self._untold.get(origin, (topic, 0))
        self._untold[origin] = first, before + messages

    def take_told(self) -> list[RefusedAtBorder]:
        untold, self._untold = self._untold, {}
        return [RefusedAtBorder(origin, topic, count) for origin, (topic, count) in sorted(untold.items())]
