"""What an edge knows of a group of topics, and what it has told a routing broker; see `edge_scope.py`."""

from dataclasses import dataclass, field

from overlane.core.links.interest_transfer import Filters


@dataclass(slots=True)
class Group:
    is_ready: bool = False
    period: int = 0
    """When a message was published last."""
    follows: int = 0
    """Advertisements and requests for reservations here that concern it."""

    def is_idle(self, until: int) -> bool:
        """Whether nothing was published since a period, and nobody has to know of it."""
        return self.period <= until and self.is_ready and not self.follows


@dataclass(slots=True)
class Telling:
    """What a routing broker is told over the present connection."""

    is_connected: bool = False
    filters: set[str] = field(default_factory=set)
    groups: dict[int, int] = field(default_factory=dict)
    """With the serials under which they were told."""
    serial: int = 0
    covers: int = 0
    is_complete: bool = False
    """Whether it was told that it has been told everything of these bundles."""
    changed_filters: Filters = field(default_factory=dict)
    changed_groups: dict[int, None] = field(default_factory=dict)
    """What may have to be told."""
    asked: set[str] = field(default_factory=set)
    to_ask: dict[str, None] = field(default_factory=dict)
    """Brokers with doubtful filters: it was asked, or is to be asked, whether it has their word."""
