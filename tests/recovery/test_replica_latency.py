"""What mirrors cost: one round trip for an acknowledgement, nothing for the rate at which batches follow each other."""

from replica_world import Host, World

from overlane.core.units import MS, SECOND, Nanos
from overlane.recovery.events import HandOver, ReplicaSettings

ONE_WAY: Nanos = 10 * MS
SYNC: Nanos = 3 * MS


class Steady(World):
    """Every frame takes as long as the others, and so does every sync."""

    def __init__(self, hosts: int) -> None:
        self.acked_at: dict[int, Nanos] = {}
        super().__init__(1, hosts, ReplicaSettings())
        self.arbiter.is_faulty = False
        self.run(5 * SECOND)

    def _delay(self) -> Nanos:
        return ONE_WAY

    def _sync_delay(self) -> Nanos:
        return SYNC

    def _acknowledge(self, host: Host, local: int, mirrored: int) -> None:
        before = set(self.acked)
        super()._acknowledge(host, local, mirrored)
        self.acked_at |= dict.fromkeys(self.acked - before, self.now)

    @property
    def primary(self) -> Host | None:
        return next((host for host in self.hosts.values() if host.epoch), None)

    def latencies(self, pause: Nanos, count: int = 100) -> set[Nanos]:
        """What acknowledgements take when so many batches follow each other."""
        sent_at = {}
        for _ in range(count):
            assert self.primary is not None
            number = self.publish(self.primary)
            assert number is not None
            sent_at[number] = self.now
            self.run(pause)
        self.run(SECOND)
        return {self.acked_at[number] - at for number, at in sent_at.items()}


def test_an_acknowledgement_takes_one_round_trip_more_with_a_mirror_and_no_more_than_that_with_two() -> None:
    assert Steady(2).latencies(100 * MS) == {SYNC + 2 * ONE_WAY}
    assert Steady(3).latencies(100 * MS) == {SYNC + 2 * ONE_WAY}


def test_batches_do_not_wait_for_acknowledgements_of_those_before_them() -> None:
    assert Steady(2).latencies(MS) == {SYNC + 2 * ONE_WAY}


def test_a_planned_move_keeps_a_broker_from_serving_for_less_than_a_tenth_of_a_second() -> None:
    story = Steady(2)
    assert story.primary is not None
    before = story.primary.name
    story.give(story.primary, HandOver("b" if before == "a" else "a"))
    since = story.now
    while story.primary is None or story.primary.name == before:
        assert story.now < since + SECOND
        story.run(MS)
    assert story.now - since < 100 * MS
