"""Large frames in parts: what is reserved goes in between, and the other end has whole frames again."""

from itertools import permutations
from random import Random

import pytest
from handwired import Overlay
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from examples import examples
from overlane.core.events import Lane, LinkReservation, SetLinkReservations
from overlane.core.links.fragmentation import INCOMPLETE_BYTES_MAX, INCOMPLETE_MAX, Fragmenter, Reassembly
from overlane.core.links.neighbour import Neighbour, OutgoingParcel
from overlane.core.links.scheduling import QueuedItem
from overlane.core.qos import QosClass
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.core.wire import frame_codec
from overlane.core.wire.fragments import HEAD_BYTES, fragment, read_fragment
from overlane.core.wire.frame_codec import FrameType, Header, RouteName, parcel
from overlane.errors import ProtocolViolation

NAME = RouteName(1, 7, 1, 3, 0)


def header(sequence: int) -> Header:
    return Header(0, NAME.version, NAME.origin, NAME.incarnation, sequence, NAME.route, 0, 0, 1, 0)


def frame(size: int, sequence: int = 1) -> bytes:
    return parcel(header(sequence), Random(sequence).randbytes(size))


def added(reassembly: Reassembly, part: bytes) -> bytes | None:
    [(kind, body)], used = frame_codec.split(part)
    assert (kind, used) == (FrameType.FRAGMENT, len(part))
    return reassembly.add(read_fragment(body))


def test_a_small_frame_leaves_as_it_is() -> None:
    fragments = Fragmenter(1000)
    small = frame(1000 - frame_codec.PARCEL_BYTES)
    assert fragments.begin(small, NEVER, 0) == small
    assert not fragments


@examples(100)
@given(st.integers(1001, 70_000), st.integers(700, 66_000), st.randoms())
def test_the_parts_make_the_same_frame_in_any_order(size: int, part_bytes: int, chance: Random) -> None:
    whole, fragments = frame(size), Fragmenter(part_bytes)
    parts = [fragments.begin(whole, NEVER, 0)]
    while fragments:
        assert fragments.rest_bytes == len(whole) - len(parts) * part_bytes
        parts.append(fragments.go_on(0))
    assert fragments.rest_bytes == 0
    if len(parts) == 1 and parts[0] == whole:
        return
    assert max(map(len, parts)) <= part_bytes + HEAD_BYTES
    chance.shuffle(parts)
    reassembly = Reassembly()
    found = [added(reassembly, part) for part in parts]
    assert found == [None] * (len(parts) - 1) + [whole]
    assert not len(reassembly)


def test_the_time_between_the_parts_is_added_to_the_age_of_the_parcel() -> None:
    fragments, reassembly = Fragmenter(1000), Reassembly()
    parts = [fragments.begin(frame(1500), NEVER, 5 * MS), fragments.go_on(9 * MS)]
    whole = [added(reassembly, part) for part in parts][-1]
    assert whole is not None
    assert frame_codec.read_parcel(memoryview(whole)[5:], NAME)[0].age_us == 4 * MS // US


def test_the_size_may_change_between_parts() -> None:
    fragments, reassembly, whole = Fragmenter(1000), Reassembly(), frame(5000)
    parts = [fragments.begin(whole, NEVER, 0)]
    for size in (700, 1500, 60_000):
        fragments.fragment_bytes = size
        parts.append(fragments.go_on(0))
    assert [added(reassembly, part) for part in parts] == [None, None, None, whole]


def test_the_most_urgent_frame_goes_on_first() -> None:
    fragments, reassembly = Fragmenter(1000), Reassembly()
    frames = {finish_ns: frame(2500, finish_ns) for finish_ns in (30, 10, 20)}
    for finish_ns, one in frames.items():
        assert added(reassembly, fragments.begin(one, finish_ns, 0)) is None
    done = [whole for _ in range(6) if (whole := added(reassembly, fragments.go_on(0))) is not None]
    assert done == [frames[10], frames[20], frames[30]]


def test_a_frame_with_a_lost_part_is_forgotten_when_there_is_no_room() -> None:
    reassembly = Reassembly()
    for number in range(3 * INCOMPLETE_MAX):
        assert reassembly.add(read_fragment(memoryview(fragment(number, 0, False, 0, b"x" * 10))[5:])) is None
    assert len(reassembly) == INCOMPLETE_MAX
    large = Reassembly()
    for number in range(20):
        part = b"x" * (INCOMPLETE_BYTES_MAX // 8)
        assert large.add(read_fragment(memoryview(fragment(number, 0, False, 0, part))[5:])) is None
    assert len(large) == 8


@pytest.mark.parametrize("order", list(permutations([(0, True), (1, False), (2, True)])))
def test_parts_that_contradict_each_other_are_a_violation(order: list[tuple[int, bool]]) -> None:
    reassembly = Reassembly()
    parts = [read_fragment(memoryview(fragment(1, index, is_last, 0, b"abc"))[5:]) for index, is_last in order]
    with pytest.raises(ProtocolViolation):
        [reassembly.add(part) for part in parts]


@pytest.mark.parametrize("body", [b"", bytes(11), bytes(6) + b"\x02" + bytes(5)])
def test_a_fragment_without_a_part_or_with_another_flag_is_a_violation(body: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_fragment(memoryview(body))


@examples(200)
@given(st.binary(max_size=80))
def test_whatever_the_parts_contain_it_is_a_frame_or_a_violation(content: bytes) -> None:
    reassembly = Reassembly()
    try:
        for index in range(len(content)):
            part = content[index : index + 1]
            reassembly.add(read_fragment(memoryview(fragment(1, index, index == len(content) - 1, 9, part))[5:]))
    except ProtocolViolation:
        pass


def test_brokers_send_large_messages_in_parts_while_their_link_has_reservations_and_whole_ones_after_that() -> None:
    net = Overlay({"a-b": 5}, {"sure": QosClass(reliable=True)})
    net.run(2000)
    for topic in ("any", "sure"):
        net.subscribe("b", topic)
    net.run(2000)

    def sent(body: bytes) -> set[int]:
        """The types of the data frames in which it went, in either class."""
        before = len(net.frames)
        for topic in ("any", "sure"):
            net.publish("a", topic, body)
        net.run(200)
        assert net.bodies("b")[-2:] == [body, body]
        frames = [data for sender, _, lane, data in net.frames[before:] if sender == "a" and lane is Lane.DATA]
        return {data[4] for data in frames if frame_codec.carries_parcel(data)}

    large = Random(1).randbytes(50_000)
    flows = {(1, 1): LinkReservation(1000, 1000, "one")}
    net.handle("a", SetLinkReservations("b", flows, 1200))
    assert sent(large) == {FrameType.FRAGMENT}
    assert FrameType.FRAGMENT not in sent(b"small")
    # Nothing is left of it: parcels may be cut through again.
    net.handle("a", SetLinkReservations("b", {}, 1200))
    assert FrameType.FRAGMENT not in sent(large)


def test_a_lane_without_flows_is_gone_once_what_has_begun_is_sent() -> None:
    net = Overlay({"a-b": 5})
    net.run(2000)
    broker = net.brokers["a"]
    queue = broker._neighbours["b"].queue
    net.handle("a", SetLinkReservations("b", {(1, 1): LinkReservation(1000, 1000, "one")}, 1000))
    broker._neighbours["b"].enqueue(queued(1, 2500, net.now, None), net.now)
    [(_, first)] = broker.pull("b", 1, net.now)
    assert first[4] == FrameType.FRAGMENT
    broker.handle(SetLinkReservations("b", {}, 1000), net.now)
    assert not queue.is_passable
    [(_, rest)] = broker.pull("b", 1 << 20, net.now)
    assert len(rest) == 1500 + HEAD_BYTES
    assert queue.is_passable


# A link, with flows that send as early as they may, and as much best effort as can be.

LINK_RATE = 1_250_000
PART_BYTES = 2500


def queued(sequence: int, size: int, now: Nanos, flow: tuple[int, int] | None) -> QueuedItem:
    out = OutgoingParcel(header(sequence), bytes(size - frame_codec.PARCEL_BYTES), now, NEVER, 0, flow=flow)
    return QueuedItem(out, size, now, NEVER, droppable=True, flow=flow)


def longest_excess(data: st.DataObject, part_bytes: int) -> Nanos:
    """By how much a parcel left later than a link of its flow's own would have sent it, at worst."""
    neighbour = Neighbour("there", "edf-shed", 4 << 20, SECOND)
    neighbour.connect("here", 1, 0)
    shares = data.draw(st.lists(st.sampled_from([0.05, 0.1, 0.3]), min_size=1, max_size=3))
    flows = {
        (1, number): LinkReservation(int(LINK_RATE * share), 40_000, number) for number, share in enumerate(shares, 1)
    }
    neighbour.queue.reserve(flows, part_bytes)
    lane = neighbour.queue.reserved
    assert lane is not None
    arrivals = sorted(
        (at_ns, flow, size)
        for flow, terms in flows.items()
        for size in [data.draw(st.sampled_from([200, 1400, 9000, 30_000]))]
        for at_ns in greedy(size, terms, data.draw(st.integers(0, 60 * MS)))
    )
    virtual: dict[tuple[int, int], Nanos] = dict.fromkeys(flows, 0)
    due: dict[int, Nanos] = {}
    reassembly, now, sequence, worst = Reassembly(), 0, 0, -NEVER
    while arrivals or due:
        while neighbour.queue.bytes < 200_000:
            sequence += 1
            neighbour.enqueue(queued(sequence, data.draw(st.sampled_from([64_000, 500_000])), now, None), now)
        while arrivals and arrivals[0][0] <= now:
            at_ns, flow, size = arrivals.pop(0)
            sequence += 1
            assert neighbour.enqueue(queued(sequence, size, at_ns, flow), at_ns) == []
            virtual[flow] = max(at_ns, virtual[flow]) + size * SECOND // flows[flow].rate
            due[sequence] = virtual[flow]
        _, part, _ = neighbour.pull_part(lane, now, 0)
        now += len(part) * SECOND // LINK_RATE
        whole = added(reassembly, part) if part[4] == FrameType.FRAGMENT else part
        if whole is not None:
            left = frame_codec.read_parcel(memoryview(whole)[5:], NAME)[0].sequence
            if (by := due.pop(left, None)) is not None:
                worst = max(worst, now - by)
    return worst


def greedy(size: int, terms: LinkReservation, began_ns: Nanos) -> list[Nanos]:
    """When a flow sends that sends as early as it may, for 150 ms."""
    at = [
        began_ns + max(0, number * size - terms.bucket_bytes + 100) * SECOND // terms.rate for number in range(1, 500)
    ]
    return [one + MS // 1000 for one in at if one < began_ns + 150 * MS]


@examples(40)
@given(st.data())
def test_a_reserved_parcel_leaves_at_most_a_part_later_than_on_a_link_of_its_own(data: st.DataObject) -> None:
    # A hundredth more for the heads of parts, which no reservation counts.
    assert longest_excess(data, PART_BYTES) <= (PART_BYTES + HEAD_BYTES) * SECOND // LINK_RATE * 1.01 + MS


def test_without_parts_it_would_wait_for_a_large_frame() -> None:
    @settings(max_examples=20, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(st.data())
    def run(data: st.DataObject) -> None:
        assert longest_excess(data, frame_codec.FRAME_BYTES_MAX) <= (PART_BYTES + HEAD_BYTES) * SECOND // LINK_RATE + MS

    with pytest.raises(AssertionError):
        run()
