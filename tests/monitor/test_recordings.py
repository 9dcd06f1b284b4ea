"""Recordings of simulations: written beside a run that they do not change, and read back whole."""

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from overlane.cli.main import app
from overlane.core.units import MS, SECOND
from overlane.errors import ConfigError, Unavailable
from overlane.monitor.history import TARGET, Head
from overlane.monitor.overlay_state import OverlayState, apply_delta
from overlane.monitor.recording_file import is_recording, read_recording, write_recording
from overlane.monitor.simulation_recorder import SimulationRecorder
from overlane.network import Crash, Cut, Simulation
from overlane.sim.story import link, network_of, topic
from overlane.sim.world import World

FIVE_CITIES = Path(__file__).parents[2] / "examples" / "five-cities.toml"


def small_network() -> World:
    network = network_of(
        {("a", "b"): 10 * MS, ("b", "c"): 10 * MS, ("a", "c"): link(30 * MS)},
        {"alarms": topic(60 * MS, routing="multipath"), "orders": topic(reliability="reliable")},
        publishers=[("a", "alarms", 50), ("a", "orders", 10)],
        subscribers=[("c", "alarms"), ("b", "orders")],
        simulation=Simulation(duration_ns=8 * SECOND, seed=1),
    )
    return World(network)


def test_a_recording_ends_as_the_report_of_the_run_says_and_does_not_change_it(tmp_path: Path) -> None:
    file = tmp_path / "run.recording"
    options = ["simulate", str(FIVE_CITIES), "--duration", "27s", "--json"]
    plain = CliRunner().invoke(app, options)
    recorded = CliRunner().invoke(app, [*options, "--record", str(file)])
    report = json.loads(recorded.stdout)
    assert report == json.loads(plain.stdout)
    head, changes = read_recording(file)
    picture = head.picture
    for change in changes:
        picture = apply_delta(picture, change)
    for name, told in report["topics"].items():
        total = picture.topics[name].total
        counted = total.published, total.delivered, total.in_time, total.lost
        assert counted == (told["published"], told["delivered"], told["in_time"], told["lost"])
        assert total.max_ms == pytest.approx(told["latency_ms"]["max"], rel=0.01)
    assert picture.links["denver|seattle"].state in ("failed", "down")
    assert picture.routes["seattle/1"].paths["washington"][0] == ("seattle", "los-angeles", "washington")
    happened = [one.text for change in changes for one in change.happenings]
    assert "seattle - denver is cut" in happened
    assert len([text for text in happened if text.startswith("alarms/# now over")]) == len(
        [one for one in report["route_changes"] if one["topics"] == ["alarms/#"]]
    )


def test_what_a_crash_costs_is_in_the_pictures() -> None:
    world = small_network()
    network = world.plan.network
    recorder = SimulationRecorder(world, network, "crash")
    world.engine.at(2 * SECOND, world.do, Cut(2 * SECOND, ("a", "c")))
    world.engine.at(3 * SECOND, world.do, Crash(3 * SECOND, "b"))
    world.run(recorder.sample)
    picture = recorder.head().picture
    for change in recorder.changes:
        picture = apply_delta(picture, change)
    assert picture.brokers["b"].state == "lost"
    assert {name: one.state for name, one in picture.links.items()}["a|c"] in ("failed", "down")
    # 50 a second from the crash to the end, but for those of the last two seconds, which might still come.
    assert 200 <= picture.topics["alarms"].total.lost <= 250
    texts = [one.text for change in recorder.changes for one in change.happenings]
    assert "b crashes" in texts
    assert any("cannot reach" in text for text in texts)


def test_a_recording_is_told_from_a_network_file(tmp_path: Path) -> None:
    file = tmp_path / "some.recording"
    head = Head(title="x", is_live=False, target=TARGET, picture=OverlayState(at_s=0.0))
    write_recording(file, head, [])
    assert is_recording(file)
    assert read_recording(file) == (head, [])
    assert not is_recording(FIVE_CITIES)
    assert not is_recording(tmp_path / "nothing")


@pytest.mark.parametrize(
    "content",
    [
        b"\x1f\x8bnot really",
        gzip.compress(b"", mtime=0),
        gzip.compress(b"[1, 2]\n", mtime=0),
        gzip.compress(
            b'{"format":"other","version":1,"title":"","is_live":false,"target":1,"picture":{"at_s":0}}\n', mtime=0
        ),
        gzip.compress(b'{"format":"overlane recording"}\n', mtime=0) + b"rubbish",
        gzip.compress(b"x" * 10_000, mtime=0)[:50],
    ],
    ids=["no gzip", "empty", "no head", "another format", "rubbish behind", "cut off"],
)
def test_a_damaged_recording_is_refused_with_what_is_allowed(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "damaged"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="allowed is a recording"):
        read_recording(file)
    shown = CliRunner().invoke(app, ["monitor", str(file)])
    assert shown.exit_code == 2
    assert "Traceback" not in shown.output


def test_a_recording_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        write_recording(
            tmp_path / "no" / "such", Head(title="x", is_live=False, target=1.0, picture=OverlayState(at_s=0.0)), []
        )
    refused = CliRunner().invoke(app, ["simulate", "--soak", "1", "--record", str(tmp_path / "x")])
    assert refused.exit_code == 2
