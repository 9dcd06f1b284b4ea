"""The directory of items, as a broker knows it."""

import msgspec

from overlane.adminapi.views.view import View


class ItemView(View, frozen=True, kw_only=True):
    item: str
    topics: list[str]
    critical: bool
    primary: str
    """Empty: not placed yet."""
    mirror: str


class DirectoryView(View, frozen=True, kw_only=True):
    """Empty without [items]."""

    domain: str = ""
    master: str = ""
    """The broker whose agent decides; empty: none."""
    epoch: int = 0
    state: str = ""
    """The failed brokers; "normal" without any."""
    plan: int = 0
    """Version of the applied plan; 0: computed from live rates."""
    states: int = 0
    """Policies in the case base."""
    items: list[ItemView] = msgspec.field(default_factory=list)
    predicted: dict[str, float] = msgspec.field(default_factory=dict)
    """Pr(V > C) of each broker by the plan."""
    measured: dict[str, float] = msgspec.field(default_factory=dict)
    """The same by the rates of the last minute."""
