"""A replicated broker through the situations of decision 28, on simulated hosts without random faults."""

from dataclasses import replace

import pytest
from replica_world import SETTINGS, Host, World

from overlane.core.units import MS, SECOND, Nanos
from overlane.recovery.events import Alarm, AlarmKind, HandOver, Received, ReplicaSettings
from overlane.recovery.replica import NotPrimary, Replica
from overlane.recovery.replication.fragments import whole
from overlane.recovery.replication.frames import Acknowledge, Frame, SnapshotPart, encode
from overlane.recovery.replication.primary import Primary


class Story(World):
    def __init__(self, hosts: int = 3, settings: ReplicaSettings = SETTINGS) -> None:
        super().__init__(1, hosts, settings)
        self.arbiter.is_faulty = False
        self.snapshots = 0
        self.passing(400 * MS)

    def passing(self, duration: Nanos) -> None:
        for _ in range(duration // (25 * MS)):
            self.run(25 * MS)
            for host in self.hosts.values():
                self.watch(host)

    def _arrive(self, sender: str, to: str, frame: object) -> None:
        self.snapshots += isinstance(frame, SnapshotPart)
        super()._arrive(sender, to, frame)  # type: ignore[arg-type]

    @property
    def serving(self) -> list[str]:
        return [host.name for host in self.hosts.values() if host.epoch]

    @property
    def arbiter_version(self) -> int:
        """How often the replica set was changed."""
        return len(self.sets)

    @property
    def in_sync(self) -> list[str]:
        assert self.arbiter.value is not None
        return sorted(copy.host for copy in self.arbiter.value.in_sync)

    def publish_at(self, name: str, *, is_mirrored: bool = False) -> int:
        """The policy of a message is that of its number."""
        if (self.published + 1) % 2 != is_mirrored:
            self.published += 1
        number = self.publish(self.hosts[name])
        assert number is not None
        return number

    def isolate(self, name: str) -> None:
        for other in self.hosts:
            self.cuts |= {(name, other), (other, name)}

    def has(self, name: str, number: int) -> bool:
        return number in self.hosts[name].disk.batches

    def replica(self, name: str) -> Replica:
        replica = self.hosts[name].replica
        assert replica is not None
        return replica


class Counted(Story):
    """Of what is sent, the bytes are counted."""

    sent_bytes = 0

    def _send(self, sender: str, to: str, frame: Frame) -> None:
        self.sent_bytes += len(whole(encode(frame)))
        super()._send(sender, to, frame)


def test_to_watch_an_idle_broker_takes_less_than_230_bytes_a_second_in_both_directions_together() -> None:
    story = Counted(2, ReplicaSettings())
    story.passing(5 * SECOND)
    assert story.in_sync == ["a", "b"]
    before = story.sent_bytes
    story.passing(60 * SECOND)
    assert 60 < story.sent_bytes - before < 60 * 230
    assert story.alarms == []


@pytest.fixture
def story() -> Story:
    return Story()


def test_the_home_of_the_broker_makes_the_first_set_and_others_join_with_all_records(story: Story) -> None:
    assert story.serving == ["a"]
    assert story.in_sync == ["a", "b", "c"]
    assert all(story.has(name, 0) for name in "abc")


def test_what_is_acknowledged_is_on_every_disk(story: Story) -> None:
    number = story.publish_at("a", is_mirrored=True)
    story.passing(50 * MS)
    assert number in story.acked
    assert all(story.has(name, number) for name in "abc")


def test_a_mirror_continues_the_broker_at_once_when_the_process_has_ended(story: Story) -> None:
    number = story.publish_at("a", is_mirrored=True)
    story.passing(50 * MS)
    story.crash(story.hosts["a"], is_wiped=True)
    story.passing(75 * MS)
    (successor,) = story.serving
    assert successor in "bc"
    assert story.has(successor, number)


def test_a_mirror_continues_the_broker_when_its_lease_has_ended_in_silence(story: Story) -> None:
    story.isolate("a")
    story.arbiter.cut("a")
    story.run(SETTINGS.mirror_lease - 60 * MS)
    for host in story.hosts.values():
        story.watch(host)
    assert story.serving == ["a"]
    story.passing(200 * MS)
    assert story.serving[-1] in "bc"


def test_when_only_the_link_between_them_breaks_the_primary_wins(story: Story) -> None:
    story.isolate("a")
    story.passing(500 * MS)
    assert story.serving == ["a"]
    assert story.in_sync == ["a"]
    assert story.arbiter.value is not None
    assert story.arbiter.value.epoch == story.hosts["a"].epoch


def test_without_a_mirror_local_topics_go_on_and_mirrored_ones_wait(story: Story) -> None:
    story.isolate("a")
    story.passing(300 * MS)
    local, mirrored = story.publish_at("a"), story.publish_at("a", is_mirrored=True)
    story.passing(100 * MS)
    assert local in story.acked
    assert mirrored not in story.acked
    assert {AlarmKind.MIRROR_DROPPED, AlarmKind.NO_MIRROR} <= {alarm.kind for alarm in story.alarms}
    story.cuts.clear()
    story.passing(300 * MS)
    assert mirrored in story.acked
    assert story.in_sync == ["a", "b", "c"]


def test_a_mirror_is_dropped_before_anything_is_acknowledged_without_it(story: Story) -> None:
    story.isolate("c")
    story.arbiter.cut("c")
    story.arbiter.cut("a")
    number = story.publish_at("a")
    story.passing(400 * MS)
    assert number not in story.acked
    story.arbiter.heal("a")
    story.passing(200 * MS)
    assert story.in_sync == ["a", "b"]
    assert number in story.acked


def test_primary_and_mirrors_go_on_without_the_coordination_service(story: Story) -> None:
    for name in "abc":
        story.arbiter.cut(name)
    number = story.publish_at("a", is_mirrored=True)
    story.passing(500 * MS)
    assert number in story.acked
    assert story.serving == ["a"]


def test_a_primary_alone_without_the_coordination_service_holds_acknowledgements(story: Story) -> None:
    story.isolate("a")
    story.arbiter.cut("a")
    story.passing(125 * MS)
    number = story.publish_at("a")
    assert not story.replica("a").may_deliver(story.clock(story.hosts["a"]))
    story.passing(500 * MS)
    assert number not in story.acked
    assert len(story.serving) == 2  # it does not know better; nothing that it says is heard


def test_a_mirror_without_the_coordination_service_never_continues_the_broker() -> None:
    story = Story(hosts=2)
    story.arbiter.cut("b")
    story.crash(story.hosts["a"])
    story.passing(500 * MS)
    assert story.serving == []
    story.arbiter.heal("b")
    story.passing(250 * MS)
    assert story.serving == ["b"]


def test_the_former_host_comes_back_as_a_mirror_and_its_tail_is_discarded(story: Story) -> None:
    story.isolate("a")
    story.arbiter.cut("a")
    tail = story.publish_at("a")
    story.passing(500 * MS)
    assert story.has("a", tail)
    story.cuts.clear()
    story.arbiter.heal("a")
    story.passing(500 * MS)
    assert story.serving in (["b"], ["c"])
    assert story.in_sync == ["a", "b", "c"]
    assert not story.has("a", tail)
    assert Alarm(AlarmKind.TAIL_DISCARDED, "1 batches of epoch 2") in story.alarms


def test_a_second_failure_after_the_first_is_survived(story: Story) -> None:
    number = story.publish_at("a", is_mirrored=True)
    story.passing(50 * MS)
    story.crash(story.hosts["a"], is_wiped=True)
    story.passing(200 * MS)
    (second,) = story.serving
    story.crash(story.hosts[second], is_wiped=True)
    story.passing(200 * MS)
    (third,) = story.serving
    assert {second, third} == {"b", "c"}
    assert story.has(third, number)


def test_a_primary_that_was_stopped_while_nothing_was_under_way_needs_no_snapshot_when_it_restarts(
    story: Story,
) -> None:
    story.publish_at("a")
    story.passing(50 * MS)
    epoch, story.snapshots = story.hosts["a"].epoch, 0
    for name in "bc":
        story.arbiter.cut(name)  # else one of them would be quicker
    story.crash(story.hosts["a"])
    story.start(story.hosts["a"])
    story.passing(200 * MS)
    assert story.serving == ["a"]
    assert story.hosts["a"].epoch == epoch + 1
    assert story.in_sync == ["a", "b", "c"]
    assert story.snapshots == 0


def test_a_host_with_an_emptied_disk_is_a_new_mirror(story: Story) -> None:
    story.crash(story.hosts["c"], is_wiped=True)
    story.start(story.hosts["c"])
    story.passing(400 * MS)
    assert story.arbiter.value is not None
    assert story.hosts["c"].disk.stored.storage in story.arbiter.value.storages
    assert story.in_sync == ["a", "b", "c"]


def test_nothing_is_served_when_no_storage_of_the_set_exists_any_more() -> None:
    story = Story(hosts=2)
    for host in story.hosts.values():
        story.crash(host, is_wiped=True)
    for host in story.hosts.values():
        story.start(host)
    story.passing(500 * MS)
    assert story.serving == []


def test_when_an_operator_has_forgotten_a_broker_of_which_nothing_is_left_its_home_begins_anew_in_a_later_epoch() -> (
    None
):
    story = Story(hosts=2)
    for host in story.hosts.values():
        story.crash(host, is_wiped=True)
    for host in story.hosts.values():
        story.start(host)
    story.passing(200 * MS)
    before = story.arbiter.value
    assert before is not None
    story.acked.clear()  # what was acknowledged is lost, and somebody has said so
    story.arbiter.forget()
    story.passing(500 * MS)
    assert (story.serving, story.in_sync) == (["a"], ["a", "b"])
    assert story.hosts["a"].epoch > before.epoch


def test_a_storage_that_was_in_a_forgotten_set_does_not_begin_anew_by_itself() -> None:
    story = Story(hosts=2)
    story.arbiter.forget()
    story.passing(500 * MS)
    assert story.serving == []


def test_that_the_first_mirror_takes_a_while_to_join_is_no_alarm_and_that_none_comes_is_one() -> None:
    assert Story().alarms == []
    story = Story(hosts=1, settings=replace(SETTINGS, alone_max=600 * MS))
    assert (story.serving, story.alarms) == (["a"], [])
    story.passing(1_000 * MS)
    assert story.alarms == [Alarm(AlarmKind.NO_MIRROR)]


def test_a_batch_is_not_taken_where_the_broker_is_not_served(story: Story) -> None:
    with pytest.raises(NotPrimary):
        story.replica("b").submit((), 0)


def test_a_mirror_that_is_not_wanted_is_dropped_when_another_is_in_sync(story: Story) -> None:
    primary = story.replica("a").role
    assert isinstance(primary, Primary)
    host: Host = story.hosts["a"]
    story.carry_out(host, primary.want(frozenset({"b"}), story.clock(host)))
    story.passing(200 * MS)
    assert story.in_sync == ["a", "b"]


def test_an_acknowledgement_of_a_batch_that_was_never_sent_counts_for_nothing(story: Story) -> None:
    value = story.arbiter.value
    assert value is not None
    story.isolate("b")
    storage = story.hosts["b"].disk.stored.storage
    forged = Acknowledge("seattle", value.epoch, 1_000, storage, 0)
    story.give(story.hosts["a"], Received("b", forged))
    number = story.publish_at("a")
    story.run(30 * MS)
    assert number not in story.acked


@pytest.mark.parametrize(
    ("heartbeat", "primary_lease", "mirror_lease"),
    [(300, 300, 900), (300, 600, 600), (300, 600, 700), (0, 600, 900)],
)
def test_leases_that_protect_nothing_are_refused(heartbeat: int, primary_lease: int, mirror_lease: int) -> None:
    with pytest.raises(ValueError, match="lease"):
        ReplicaSettings(heartbeat=heartbeat, primary_lease=primary_lease, mirror_lease=mirror_lease)


def test_a_broker_that_is_moved_goes_on_where_it_was_sent_without_a_snapshot(story: Story) -> None:
    (before,) = story.serving
    to = next(name for name in story.hosts if name != before)
    number = story.publish_at(before)
    story.passing(100 * MS)
    snapshots = story.snapshots
    story.give(story.hosts[before], HandOver(to))
    story.passing(300 * MS)
    assert story.serving == [to]
    assert number in story.acked
    assert story.has(to, number)
    assert story.snapshots == snapshots
    story.passing(600 * MS)
    assert story.in_sync == sorted(story.hosts)


def test_a_broker_is_not_moved_to_a_host_without_a_copy(story: Story) -> None:
    serving = story.serving
    story.give(story.hosts[serving[0]], HandOver("elsewhere"))
    story.passing(200 * MS)
    assert story.serving == serving


def test_a_mirror_that_is_heard_and_whose_disk_hangs_is_dropped_until_it_gets_on() -> None:
    story = Story(settings=replace(SETTINGS, stall_max=300 * MS))
    (primary,) = story.serving
    slow = next(name for name in story.hosts if name != primary)
    story.hosts[slow].disk_slow = 1_500 * MS
    number = story.publish_at(primary)
    story.passing(200 * MS)
    assert number not in story.acked
    story.passing(400 * MS)
    assert number in story.acked
    assert slow not in story.in_sync
    version = story.arbiter_version
    story.passing(400 * MS)
    assert story.arbiter_version == version, "it is not taken in again and again"
    story.hosts[slow].disk_slow = 0
    story.passing(3_000 * MS)
    assert slow in story.in_sync


def test_a_silent_mirror_is_dropped_once(story: Story) -> None:
    (primary,) = story.serving
    silent = next(name for name in story.hosts if name != primary)
    story.isolate(silent)
    story.passing(250 * MS)
    assert silent not in story.in_sync
    version = story.arbiter_version
    story.passing(500 * MS)
    assert story.arbiter_version == version
