"""Many random stories: whatever happens, nothing acknowledged is lost, nothing repeated of QoS 2 and where it was asked
for of QoS 1, nothing left over.

And proof that the stories would tell: with a server that does one thing wrong, some of them end badly.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

import pytest
from mqtt_soak import BurstSoak, run_seed

from examples import seeds
from overlane.core.events import Effect, Erase
from overlane.mqtt.connection import Connection
from overlane.pubsub.delivery import delivery, queue_records
from overlane.pubsub.delivery.queue_records import QueueRecords
from overlane.pubsub.delivery.window import Entry, EntryRecord, Window
from overlane.pubsub.message import Run, encode_run
from overlane.pubsub.publishing.publishing import Publishing
from overlane.pubsub.sessions.deduplication import Deduplication
from overlane.pubsub.sessions.session import RECEIVED, Session

SEEDS = seeds(120)
SEEDS_PER_TEST = 10
SEEDS_OF_SABOTAGE = 60


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that are full after a few messages, or they never would be."""
    monkeypatch.setattr(delivery, "SEND_AHEAD_BYTES", 300)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_no_story_ends_badly(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        soak = run_seed(seed)
        assert not soak.faults, f"seed {seed}: " + "\n".join(soak.told)


@pytest.mark.parametrize("seed", [1477, 1830, 1946])
def test_numbers_given_while_a_client_was_away_are_not_used_anew_after_the_next_crash(seed: int) -> None:
    """Messages were lost: the client took them for repeated ones."""
    assert not run_seed(seed).told


@pytest.mark.parametrize("seed", [1107, 1396, 2482])
def test_what_was_acknowledged_is_recognised_although_the_broker_does_not_know_that_it_was_sent(seed: int) -> None:
    assert not run_seed(seed).told


@pytest.mark.parametrize("seed", [2426, 2891, 2913, 3187, 4446])
def test_what_was_heard_later_because_the_disk_failed_is_answered_with_its_records(seed: int) -> None:
    """They belonged to no turn, or the answers to an earlier one: QoS 2 was repeated, and identifiers stayed behind."""
    assert not run_seed(seed).told


@pytest.mark.parametrize("first", range(0, seeds(40), SEEDS_PER_TEST))
def test_no_story_with_bursts_of_qos_1_ends_badly(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_noted(monkeypatch)
    for seed in range(first, first + SEEDS_PER_TEST):
        soak = run_seed(seed, BurstSoak)
        assert not soak.faults, f"seed {seed}: {soak.told}"
    assert sum(count > 1 for count in runs) > SEEDS_PER_TEST


def runs_noted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages were taken together."""
    found: list[int] = []
    publish_run = Publishing.publish_run

    def noted(self: Publishing, run: Run, *rest: Any) -> Any:
        found.append(len(run.messages))
        return publish_run(self, run, *rest)

    monkeypatch.setattr(Publishing, "publish_run", noted)
    return found


def test_the_stories_are_eventful() -> None:
    soaks = [run_seed(seed) for seed in range(20)]
    published = sum(len(payloads) for soak in soaks for payloads in soak.published.values())
    acknowledged = sum(len(soak.acknowledged) for soak in soaks)
    assert published > 400
    assert acknowledged > published / 2
    assert sum(soak.crashes for soak in soaks) > 50


# Sabotage


def send_before_it_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Connection.taken
    monkeypatch.setattr(Connection, "taken", lambda self: (taken(self)[0], False))


def forget_which_messages_came(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(self: Session, packet_id: int) -> Effect:
        return Erase(RECEIVED, self._key(packet_id.to_bytes(2)))

    monkeypatch.setattr(Session, "saved_received", forgotten)


def forget_what_was_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueRecords, "changed", lambda *_: None)


def forget_which_messages_were_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deduplication, "take", lambda *_: [])


def use_numbers_anew_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "go_on_at", lambda *_: None)


def forget_how_far_sending_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "recovered", lambda *_: None)


def do_not_store_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueRecords, "put_run", lambda *_: None)


def keep_what_is_done_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueRecords, "_take_of", lambda *_: None)


def resend_the_last_first(monkeypatch: pytest.MonkeyPatch) -> None:
    reconnected = Window.reconnected

    def backwards(self: Window) -> list[Entry]:
        released = reconnected(self)
        if self._waiting:
            self._waiting.reverse()
        return released

    monkeypatch.setattr(Window, "reconnected", backwards)


def ignore_the_receive_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    def next_to_send(self: Window) -> Entry | None:
        return self._waiting[0] if self._waiting and self._waiting[0].tag not in self.sent else None

    def plain_to_send(self: Window) -> list[Entry]:
        return list(takewhile(lambda entry: entry.is_plain and entry.tag not in self.sent, self._waiting or ()))

    monkeypatch.setattr(Window, "next_to_send", next_to_send)
    monkeypatch.setattr(Window, "plain_to_send", plain_to_send)


def number_anew_after_every_send(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Window.send

    def renumbered(self: Window, entry: Entry, *rest: Any) -> None:
        send(self, entry, *rest)
        if entry.tries > 1:
            del self.sent[entry.tag]
            entry.sequence += 1_000
            self.sent[entry.tag] = entry

    monkeypatch.setattr(Window, "send", renumbered)


@pytest.mark.parametrize(
    ("sabotage", "fault"),
    [
        (send_before_it_is_on_disk, "lost"),
        (forget_which_messages_came, "repeated"),
        (forget_what_was_released, "repeated"),
        (forget_which_messages_were_taken, "repeated"),
        (use_numbers_anew_after_a_crash, "lost"),
        (forget_how_far_sending_has_come, "unmarked"),
        (do_not_store_queues, "lost"),
        (keep_what_is_done_with, "leaked"),
        (resend_the_last_first, "reordered"),
        (ignore_the_receive_maximum, "overrun"),
        (number_anew_after_every_send, "leaked"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_server_that_does_one_thing_wrong_is_found_out(
    sabotage: Callable[[pytest.MonkeyPatch], None], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    for seed in range(SEEDS_OF_SABOTAGE):
        if run_seed(seed).faults[fault]:
            return
    raise AssertionError(f"{SEEDS_OF_SABOTAGE} stories, and none tells that anything was {fault}")


def erase_a_run_with_its_first_message(monkeypatch: pytest.MonkeyPatch) -> None:
    take_of = QueueRecords._take_of

    def taken(self: QueueRecords, record: EntryRecord, done: Sequence[Entry]) -> None:
        record.left = len(done)
        take_of(self, record, done)

    monkeypatch.setattr(QueueRecords, "_take_of", taken)


def store_the_first_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_records, "encode_run", lambda messages: encode_run(messages[:1]))


def send_a_run_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    take_run = Connection.take_run
    monkeypatch.setattr(Connection, "take_run", lambda self, entries: take_run(self, entries[::-1]))


@pytest.mark.parametrize(
    ("sabotage", "fault"),
    [
        (erase_a_run_with_its_first_message, "lost"),
        (store_the_first_of_a_run, "lost"),
        (send_a_run_backwards, "reordered"),
        (ignore_the_receive_maximum, "overrun"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_server_that_does_one_thing_wrong_with_runs_is_found_out(
    sabotage: Callable[[pytest.MonkeyPatch], None], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    for seed in range(SEEDS_OF_SABOTAGE):
        if run_seed(seed, BurstSoak).faults[fault]:
            return
    raise AssertionError(f"{SEEDS_OF_SABOTAGE} stories, and none tells that anything was {fault}")
