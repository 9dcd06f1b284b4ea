"""The parts of bench/wan.py that need no network: the judge, the scenarios, and what the load reads and writes."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from _wan_judge import Stream

pytestmark = pytest.mark.usefixtures("bench_folder")

MS = 1_000_000
SECOND = 1_000_000_000
DEADLINE = 60 * MS


def streamed(count: int, arrivals: dict[int, list[int]], usual_ms: int = 30) -> "Stream":
    """A message every 10 ms, each there after the usual time but for those named: when each of their copies came."""
    from _wan_judge import Heard, stream

    due_ns = np.arange(count, dtype=np.int64) * 10 * MS
    heard = [
        (number, int(due_ns[number]) + after_ms * MS)
        for number in range(count)
        for after_ms in arrivals.get(number, [usual_ms])
    ]
    numbers, arrived_ns = (np.array(column, np.int64) for column in zip(*heard, strict=True))
    return stream(due_ns, Heard(numbers, arrived_ns), DEADLINE)


def test_a_message_is_in_time_up_to_its_deadline_and_late_after_it_or_when_it_never_comes() -> None:
    from _wan_judge import Phase, figures

    found = figures(streamed(10, {3: [60], 4: [61], 5: []}), Phase("all", 0, SECOND))
    assert (found.sent, found.in_time, found.delivered, found.duplicated) == (10, 0.8, 0.9, 0)
    assert (found.p50_ms, found.worst_ms) == (30.0, 61.0)


def test_the_first_second_of_a_phase_has_a_share_of_its_own() -> None:
    from _wan_judge import Phase, figures

    late = streamed(400, {number: [100] for number in range(100, 125)})
    found = figures(late, Phase("bulk", SECOND, 4 * SECOND))
    assert (found.first_second, found.in_time) == (0.75, 275 / 300)
    assert figures(late, Phase("short", SECOND, 3 * SECOND // 2)).first_second == 0.5


def test_the_first_copy_counts_and_each_further_one_is_a_duplicate() -> None:
    from _wan_judge import Phase, figures

    found = figures(streamed(10, {3: [80, 40, 90]}), Phase("all", 0, SECOND))
    assert (found.in_time, found.duplicated, found.worst_ms) == (1.0, 2, 40.0)


def test_a_message_belongs_to_the_phase_in_which_it_was_due_however_late_it_came() -> None:
    from _wan_judge import Phase, figures, overall

    late = streamed(200, {number: [1500] for number in range(100)})
    first, second = (
        figures(late, Phase("first", 0, SECOND)),
        figures(late, Phase("second", SECOND, 2 * SECOND)),
    )
    assert (first.in_time, first.delivered, second.in_time) == (0.0, 1.0, 1.0)
    assert overall({"first": first, "second": second}) == {
        "in_time": 0.5,
        "delivered": 1.0,
        "duplicated": 0,
        "worst_phase": 0.0,
    }


@pytest.mark.parametrize(
    ("late", "recovered_s"),
    [
        (range(0), 0.0),
        (range(1), 0.0),  # one in a hundred is 99 % in time
        (range(150), 1.5),
        (range(151), 1.5),
        (range(152), 1.6),
        (range(350), None),  # the second that starts then is not over when the phase is
        (range(0, 400, 20), None),
    ],
)
def test_the_stream_has_recovered_with_the_first_second_that_is_good(late: range, recovered_s: float | None) -> None:
    from _wan_judge import Phase
    from _wan_judge import recovered_s as recovered

    assert recovered(streamed(400, {number: [100] for number in late}), Phase("all", 0, 4 * SECOND)) == recovered_s


def test_the_share_over_time_is_that_of_each_step_and_unknown_where_nothing_was_sent() -> None:
    from _wan_judge import over_time

    shares = over_time(streamed(100, {number: [] for number in range(25)}), 0, 2 * SECOND, SECOND // 2)
    assert shares[:2] == [0.5, 1.0]
    assert all(math.isnan(share) for share in shares[2:])


def test_what_was_never_sent_does_not_count_as_heard() -> None:
    from _wan_judge import Heard, stream

    with pytest.raises(ValueError, match="never sent"):
        stream(np.arange(3, dtype=np.int64), Heard(np.array([3]), np.array([5])), DEADLINE)


def test_every_scenario_has_its_events_within_its_time_and_a_way_that_meets_the_deadline_at_first() -> None:
    from _wan_scenarios import PhaseSeconds, scenarios

    for scenario in scenarios(PhaseSeconds("12")).values():
        assert all(0 <= event.at_s < scenario.duration_s for event in scenario.events), scenario.name
        assert scenario.quickest_ms < scenario.deadline_ms, scenario.name
        assert set(scenario.layout.links) <= set(scenario.paths), scenario.name
        assert set(scenario.layout.tree) == set(scenario.sites), scenario.name


def test_phases_are_as_long_as_was_asked_for_all_scenarios_or_one_of_them() -> None:
    from _wan_scenarios import PhaseSeconds, scenarios

    found = scenarios(PhaseSeconds("4,direct=12"))
    assert (found["direct"].duration_s, found["killed"].duration_s) == (72.0, 8.0)


def test_the_tables_have_every_figure_of_every_system() -> None:
    from _wan_judge import Figures
    from _wan_tables import PhaseRow, ScenarioRow, SystemRow, described

    figures = Figures(100, 0.875, 0.95, 3, 31.25, 42.5, 1234.0, 2000.0, 1.5, 0.625)
    never = Figures(100, 0.0, 0.0, 0, math.nan, math.nan, math.nan, math.nan, None, 0.0)
    phases = {"quiet": PhaseRow(figures, 321.0, 4), "cut": PhaseRow(never, 12.0, 0)}
    row = SystemRow(phases, 0.4375, 0.475, 3, 0.0, 166.5, [1.0], None, 2.5)
    spans = [("quiet", 0.0, 12.0), ("cut", 12.0, 24.0)]
    told = list(described(ScenarioRow("A title", 60.0, 30.0, spans, 24.0, {"A broker": row})))
    assert [line for line in told if line.startswith("| A broker")] == [
        "| A broker | 0.875 | 0.000 | **0.438** | 105 | 3 | 166 | 2.5 |",
        "| A broker | 0.625 | 0.000 |",
        "| A broker | 31.2 / 42.5 / 1,234 | - / - / - |",
        "| A broker | 1.5; 321 | never; 12 |",
    ]
    assert told[:3] == ["## A title", "", "Within 60 ms, where the path itself takes 30; 12 s a phase."]


def test_what_was_measured_before_is_read_again_as_it_was_also_where_nothing_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wan
    from _wan_judge import Figures
    from _wan_tables import PhaseRow, ScenarioRow, SystemRow

    monkeypatch.setattr(wan, "OUT", tmp_path)
    monkeypatch.setattr(wan, "SYSTEMS", ())
    assert wan._measured_before() == {}
    nothing = Figures(100, 0.0, 0.0, 0, math.nan, math.nan, math.nan, math.nan, None)
    row = SystemRow({"cut": PhaseRow(nothing, 12.0, 0)}, 0.0, 0.0, 0, 0.0, 12.0, [0.0, math.nan], None, 2.5)
    found = {"cut": ScenarioRow("A title", 60.0, 30.0, [("cut", 0.0, 12.0)], 12.0, {"A broker": row})}
    wan._save(found, {}, "cubic")
    assert "NaN" not in (tmp_path / "wan.json").read_text()
    # Not a number is equal to nothing, itself included: what is shown of it is.
    assert repr(wan._measured_before()) == repr(found)


def test_the_eight_cases_are_all_combinations_of_two_kinds_on_three_links_in_the_order_of_the_paper() -> None:
    from _wan_scenarios import cases

    names = [span.name for span in cases(12.0, extra=True).spans]
    assert names == ["1: AAA", "2: AAB", "3: ABA", "4: ABB", "5: BAA", "6: BAB", "7: BBA", "8: BBB"]


def test_trouble_on_the_direct_path_leaves_a_way_around_within_the_deadline() -> None:
    from _wan_scenarios import DIRECT, FIVE_CITIES, direct

    around = FIVE_CITIES["seattle", "denver"].latency_ms + FIVE_CITIES["denver", "washington"].latency_ms
    assert (direct(12.0).quickest_ms, around) == (30.0, 34.0)
    assert {event.ends for event in direct(12.0).events if hasattr(event, "ends")} == {DIRECT}


def test_of_two_sites_with_a_link_one_dials_and_it_is_the_one_with_more_uplinks(tmp_path: Path) -> None:
    from _wan_peers import Place
    from _wan_scenarios import DIRECT, uplinks

    scenario = uplinks(12.0)
    addresses = {site: ["one"] for site in scenario.sites}
    for several in ([], [DIRECT[0]], [DIRECT[1]]):
        place = Place(scenario, {**addresses, **{site: ["one", "two"] for site in several}}, tmp_path)
        for one, other in scenario.layout.links:
            assert place.dials(one, other) != place.dials(other, one)
        if several:
            assert all(place.dials(several[0], other) for other in place.neighbours(several[0]))


def test_mqtt_messages_are_found_in_whatever_pieces_they_come_and_acknowledged_at_qos_1() -> None:
    from _wan_load import take_mqtt
    from _wire import Mqtt, packet

    plain = Mqtt().published("alarms/1", 200).message
    sure = packet(0x32, b"\0\x08alarms/1" + b"\0\x07" + b"sure")
    whole = packet(0x90, b"\0\1\0") + plain + sure
    for cut in range(len(whole)):
        heard = list[bytes]()
        buffer = bytearray(whole[:cut])
        answered = take_mqtt(buffer, heard.append)
        buffer += whole[cut:]
        answered += take_mqtt(buffer, heard.append)
        assert (heard, answered, bytes(buffer)) == ([bytes(200), b"sure"], b"\x40\x02\0\x07", b"")


def test_nats_messages_are_found_in_whatever_pieces_they_come_and_pings_answered() -> None:
    from _wan_load import take_nats

    whole = b"PING\r\nMSG alarms.1 1 5\r\n\r\n\r\n!\r\nMSG alarms.1 1 2\r\nok\r\n"
    for cut in range(len(whole)):
        heard = list[bytes]()
        buffer = bytearray(whole[:cut])
        answered = take_nats(buffer, heard.append)
        buffer += whole[cut:]
        answered += take_nats(buffer, heard.append)
        assert (heard, answered, bytes(buffer)) == ([b"\r\n\r\n!", b"ok"], b"PONG\r\n", b"")


def test_the_network_file_that_is_written_for_overlane_is_one_that_it_reads(tmp_path: Path) -> None:
    from _wan_peers import OverlaneOverlay, Place
    from _wan_scenarios import PhaseSeconds, scenarios
    from overlane.network import read_network

    for scenario in scenarios(PhaseSeconds("12")).values():
        addresses = {
            site: [f"10.77.{turn}.{number}" for turn in range(len(scenario.uplinks.get(site, [""])))]
            for number, site in enumerate(scenario.sites, 1)
        }
        place = Place(scenario, addresses, tmp_path)
        file = tmp_path / "network.toml"
        file.write_text(OverlaneOverlay("overlane", "Overlane", "mqtt-0").network(place))
        network = read_network(file)
        assert [broker.name for broker in network.brokers] == scenario.sites
        assert len(network.links) == len(scenario.layout.links)


def test_two_tiers_are_set_up_where_there_is_a_router_and_edges_are_told_nothing_but_zookeeper(tmp_path: Path) -> None:
    from _wan_peers import Place
    from _wan_scenarios import PhaseSeconds, cases, scenarios
    from _wan_tiers import OverlaneTiers

    tiers, case = OverlaneTiers("overlane-tiers", "two tiers", "mqtt-0"), cases(1.0, extra=True)
    fitting = [one.name for one in scenarios(PhaseSeconds("1")).values() if tiers.cannot(one) is None]
    assert fitting == ["cases-single", "cases-extra"]
    place = Place(case, {site: [f"10.77.0.{number}"] for number, site in enumerate(case.sites, 1)}, tmp_path)
    for site in case.sites:
        place.of(site).mkdir()
    commands = {site: tiers.broker(place, site).words for site in case.sites}
    zookeeper = f"{place.addresses['router']}:2181"
    for edge in ("edge-1", "edge-2"):
        words = commands[edge]
        assert words[words.index("--zookeeper") + 1] == zookeeper
        assert not {place.addresses[one] for one in case.sites if one not in (edge, "router")} & set(words)
    configuration = (place.of("router") / "configuration.toml").read_text()
    assert 'deadline = "100ms"' in configuration
    assert "[[links]]" not in configuration
