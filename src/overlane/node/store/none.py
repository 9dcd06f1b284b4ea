"""No store: for a broker that may forget everything when it ends. All guarantees hold until then."""

import logging
from collections.abc import Iterator, Mapping
from time import time

from overlane.core.gossip.incarnation import choose
from overlane.core.records import Record
from overlane.node.store.durable import Done, Soon, StoreError
from overlane.node.store.record_file import Name, Quarantined, fresh_instance
from overlane.node.store.salvage import Salvage

log = logging.getLogger("overlane.store")


class NoStore:
    def __init__(self, soon: Soon, incarnation_min: int = 0) -> None:
        self._soon = soon
        self.incarnation, warning = choose(None, int(time()), incarnation_min)
        if warning:
            log.error("%s", warning)
        self.instance = fresh_instance()
        self.quarantined: list[Quarantined] = []
        self.unknown: dict[str, int] = {}
        self.failing: StoreError | None = None
        self.salvaged: Salvage | None = None

    def records(self) -> Iterator[Record]:
        return iter(())

    def replica(self) -> Iterator[Record]:
        """Nobody can continue what is forgotten."""
        return iter(())

    def submit(
        self,
        changes: Mapping[Name, bytes | None],  # noqa: ARG002
        done: Done,
        *,
        needs_mirror: bool = False,  # noqa: ARG002
    ) -> None:
        self._soon(done, None)

    def close(self) -> StoreError | None:
        return None
