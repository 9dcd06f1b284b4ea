"""The soak of whole brokers notices when a broker is broken on purpose.

Each sabotage takes one safeguard away. Beside it stands a seed that shows it, counted from 0, found by

    python tests/sim/test_whole_sabotage.py

Seeds depend on everything that a broker does, so that another change may move it: then one of the next few does. What
is shown by none of the first 200 is shown by a seed that it once broke.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
from test_whole_soak import BROKE
from test_whole_soak import SEEDS as SOAKED

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.mqtt import keep_alive, read_ahead
from overlane.mqtt.connection import Connection
from overlane.mqtt.keep_alive import KeepAlive
from overlane.pubsub import state
from overlane.pubsub.contract.consumer import Consumer
from overlane.pubsub.delivery.delivery import OVERRUN, Delivery, Given
from overlane.pubsub.delivery.window import Entry, Window
from overlane.pubsub.message import Message
from overlane.pubsub.retained import messages
from overlane.pubsub.retained.messages import RetainedMessages
from overlane.pubsub.sessions import wills
from overlane.pubsub.sessions.registry import Sessions
from overlane.pubsub.sessions.session import RECEIVED, Session
from overlane.pubsub.sessions.wills import Will, Wills
from overlane.pubsub.subscriptions.table import SharedGroup, Subscription
from overlane.sim.whole.disk import Disk, SimulatedStore
from overlane.sim.whole.running import run_seed
from overlane.turn import turn
from overlane.turn.turn import Records

Sabotage = Callable[[], AbstractContextManager[object]]
May = Callable[[Session], bool]

_taken = Connection.taken
_submit = SimulatedStore.submit
_leave = Sessions.leave
_connected = Wills.connected
_publish = Wills._publish
_share = Delivery.share
_choose = SharedGroup.choose
_silent_until = keep_alive._silent_until


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
    return without(RECEIVED)


def batches_torn() -> AbstractContextManager[object]:
    """What is left of a batch without its commit mark counts."""

    def recover(self: Disk) -> None:
        self.apply()

    return patch.object(Disk, "_recover", recover)


def without(table: str, *, erased_only: bool = False) -> AbstractContextManager[object]:
    """Changes of these records, or their removals, are not on disk."""

    def submit(self: SimulatedStore, batch: int, records: Records) -> None:
        kept = {name: value for name, value in records.items() if name[0] != table or (erased_only and value)}
        _submit(self, batch, kept)

    return patch.object(SimulatedStore, "submit", submit)


def retained_messages_not_stored() -> AbstractContextManager[object]:
    return without(messages.TABLE)


def retained_messages_come_back() -> AbstractContextManager[object]:
    """What was cleared is there again after a restart."""
    return without(messages.TABLE, erased_only=True)


def retained_messages_of_others_not_kept() -> AbstractContextManager[object]:
    return patch.object(RetainedMessages, "keep_if_later", lambda _self, _message: [])


def wills_not_stored() -> AbstractContextManager[object]:
    return without(wills.TABLE)


def wills_said_after_disconnect() -> AbstractContextManager[object]:
    def leave(self: Sessions, consumer: Consumer, _with_will: bool, now: Nanos) -> None:
        _leave(self, consumer, True, now)

    return patch.object(Sessions, "leave", leave)


def wills_without_delay() -> AbstractContextManager[object]:
    def connected(self: Wills, session: Session, will: Will | None) -> bool:
        return _connected(self, session, will and replace(will, delay_s=0))

    return patch.object(Wills, "connected", connected)


def wills_said_twice() -> AbstractContextManager[object]:
    def publish(self: Wills, client_id: str, will: Will, now: Nanos) -> bool:
        return _publish(self, client_id, will, now) and _publish(self, client_id, will, now)

    return patch.object(Wills, "_publish", publish)


def all_members_of_a_group() -> AbstractContextManager[object]:
    """A message goes to each member at the broker."""

    def share(self: Delivery, message: Message, group: SharedGroup, now: Nanos, overrun: int = OVERRUN) -> Given | None:
        given = [_share(self, message, group, now, overrun) for _ in group.members]
        return given[0] if given else None

    return patch.object(Delivery, "share", share)


def no_member_of_a_group_that_is_away() -> AbstractContextManager[object]:
    def choose(self: SharedGroup, may: May, takes: May) -> Subscription | None:
        return _choose(self, lambda session: session.consumer is not None and may(session), takes)

    return patch.object(SharedGroup, "choose", choose)


def silent_clients_stay() -> AbstractContextManager[object]:
    return patch.object(KeepAlive, "watch", lambda _self, _connection: None)


def keep_alive_without_grace() -> AbstractContextManager[object]:
    """A client is ended after half of its keep-alive, and pings come in vain."""
    return patch.object(keep_alive, "_silent_until", lambda connection: _silent_until(connection) - SECOND)


def resting_clients_not_heard() -> AbstractContextManager[object]:
    """Acknowledgements of a client that has to rest wait behind what it publishes."""
    return patch.object(read_ahead, "ACKNOWLEDGEMENTS", frozenset())


@contextmanager
def slow_disk_held_against_clients() -> Iterator[None]:
    """A client counts as one that does not answer, though what it was sent waits for the disk."""
    with patch.object(state, "SLOW_COMMIT", NEVER), patch.object(turn, "SLOW_COMMIT", NEVER):
        yield


SEEDS: dict[Sabotage, int] = {
    acknowledgements_before_the_commit: 8,
    packet_identifiers_used_again: 0,
    deduplication_records_lost: 55,
    batches_torn: 70,
    retained_messages_not_stored: 13,
    retained_messages_come_back: 17,
    retained_messages_of_others_not_kept: 3,
    wills_not_stored: 0,
    wills_said_after_disconnect: 7,
    wills_without_delay: 12,
    wills_said_twice: 0,
    all_members_of_a_group: 1,
    no_member_of_a_group_that_is_away: 29,
    silent_clients_stay: 3,
    keep_alive_without_grace: 0,
    resting_clients_not_heard: 7110,
    slow_disk_held_against_clients: 439,
}
SEEDS_MAX = 200
SEEDS_TRIED = 40


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", SEEDS, ids=lambda sabotage: sabotage.__name__)
def test_the_soak_notices(sabotage: Sabotage) -> None:
    seed = first_broken(sabotage, range(SEEDS[sabotage], SEEDS[sabotage] + SEEDS_TRIED))
    assert seed is not None
    assert seed < SOAKED or seed in BROKE  # the soak proves that it is not broken without the sabotage


def first_broken(sabotage: Sabotage, seeds: range) -> int | None:
    with sabotage():
        return next((seed for seed in seeds if run_seed(seed).broken), None)


if __name__ == "__main__":
    for one in SEEDS:
        sys.stdout.write(f"{one.__name__}: seed {first_broken(one, range(SEEDS_MAX))}\n")
        sys.stdout.flush()
