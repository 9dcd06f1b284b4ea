"""The soak of whole brokers notices when a broker is broken on purpose.

Each sabotage takes one safeguard away. Beside it stands a seed that shows it, counted from 0, found by

    python tests/sim/test_whole_sabotage.py

Seeds depend on everything that a broker does, so that another change may move it: then one of the next few does.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import pytest

from overlane.mqtt.connection import Connection
from overlane.pubsub.delivery.window import Entry, Window
from overlane.pubsub.sessions.session import RECEIVED
from overlane.sim.whole.disk import Disk, SimulatedStore
from overlane.sim.whole.running import run_seed
from overlane.turn.turn import Records

Sabotage = Callable[[], AbstractContextManager[object]]

_taken = Connection.taken
_submit = SimulatedStore.submit


def acknowledgements_before_the_commit() -> AbstractContextManager[object]:
    """No packet waits for the records that its promise rests on."""

    def taken(self: Connection) -> tuple[list[bytes], bool]:
        chunks, _ = _taken(self)
        return chunks, False

    return patch.object(Connection, "taken", taken)


@contextmanager
def packet_identifiers_used_again() -> Iterator[None]:
    """Messages to a client get an identifier that another one still has."""

    def next_to_send(self: Window) -> Entry | None:
        return self._waiting[0] if self._waiting and len(self.sent) < self.receive_max else None

    with (
        patch.object(Entry, "tag", property(lambda self: self.sequence % 3 + 1)),
        patch.object(Window, "next_to_send", next_to_send),
    ):
        yield


def deduplication_records_lost() -> AbstractContextManager[object]:
    """That a message of QoS 2 was received is not on disk."""

    def submit(self: SimulatedStore, batch: int, records: Records) -> None:
        _submit(self, batch, {name: value for name, value in records.items() if name[0] != RECEIVED})

    return patch.object(SimulatedStore, "submit", submit)


def batches_torn() -> AbstractContextManager[object]:
    """What is left of a batch without its commit mark counts."""

    def recover(self: Disk) -> None:
        self.apply()

    return patch.object(Disk, "_recover", recover)


SEEDS: dict[Sabotage, int] = {
    acknowledgements_before_the_commit: 2,
    packet_identifiers_used_again: 0,
    deduplication_records_lost: 25,
    batches_torn: 15,
}
SEEDS_MAX = 200
SEEDS_TRIED = 20


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", SEEDS, ids=lambda sabotage: sabotage.__name__)
def test_the_soak_notices(sabotage: Sabotage) -> None:
    seed = first_broken(sabotage, range(SEEDS[sabotage], SEEDS[sabotage] + SEEDS_TRIED))
    assert seed is not None
    assert run_seed(seed).broken is None


def first_broken(sabotage: Sabotage, seeds: range) -> int | None:
    with sabotage():
        return next((seed for seed in seeds if run_seed(seed).broken), None)


if __name__ == "__main__":
    for one in SEEDS:
        sys.stdout.write(f"{one.__name__}: seed {first_broken(one, range(SEEDS_MAX))}\n")
        sys.stdout.flush()
