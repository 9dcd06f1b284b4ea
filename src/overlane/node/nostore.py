"""No store at all: for a broker that may forget everything when it ends. Every promise holds until then."""

from collections.abc import Iterator, Mapping
from time import time

from overlane.node.recordfile import Name, Quarantined
from overlane.node.salvage import Salvage
from overlane.node.store import Done, Soon, StoreError


class NoStore:
    def __init__(self, soon: Soon) -> None:
        self._soon = soon
        self.incarnation = int(time())
        self.quarantined: list[Quarantined] = []
        self.failing: StoreError | None = None
        self.salvaged: Salvage | None = None

    def records(self) -> Iterator[tuple[str, bytes, bytes]]:
        return iter(())

    def submit(self, changes: Mapping[Name, bytes | None], done: Done) -> None:  # noqa: ARG002
        self._soon(done, None)

    def close(self) -> StoreError | None:
        return None
