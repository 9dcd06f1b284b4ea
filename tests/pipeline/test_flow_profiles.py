"""Profiles that are proposed from what was measured, for people and for publishers."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overlane.pipeline.output_directory import OutputDirectory
from overlane.pipeline.report.flow_profiles import KEEP, LOWER, NOTHING, RAISE, proposals
from overlane.pipeline.report.sections import Tables, reservations
from overlane.pubsub.reservations.advertisement import read_advertisement
from sparks import pipeline

FLOW: dict[str, Any] = {
    "broker": "a",
    "filter": "plant/video",
    "seconds": 3600.0,
    "advertised": 120_000,
    "reserved": 120_000.0,
    "used": 100_000.0,
    "share": 0.8,
    "messages": 360_000,
    "excess_messages": 0,
    "size_max": 1_000,
    "rate": 120_000,
    "bucket": 1_000,
}
IDLE = FLOW | {"filter": "plant/+/spare", "used": 1_200.0, "share": 0.01, "rate": 30_000}
BEYOND = FLOW | {"filter": "plant/bursts", "excess_messages": 9_000, "rate": 180_000, "bucket": 500}
SILENT = FLOW | {"filter": "plant/none", "used": 0.0, "share": 0.0, "messages": 0, "rate": None, "bucket": None}


def test_advice_follows_from_what_was_used() -> None:
    found = {one.filter: one.advice for one in proposals([FLOW, IDLE, BEYOND, SILENT])}
    assert found == {"plant/video": KEEP, "plant/+/spare": LOWER, "plant/bursts": RAISE, "plant/none": NOTHING}


def test_the_flow_with_most_that_is_set_aside_in_vain_comes_first() -> None:
    assert [one.filter for one in proposals([FLOW, BEYOND, IDLE])] == ["plant/+/spare", "plant/bursts", "plant/video"]


def test_what_is_proposed_is_an_advertisement_that_brokers_take() -> None:
    for row in (FLOW, IDLE, BEYOND):
        (one,) = proposals([row])
        name = one.topic().removeprefix("$overlane/advertise/")
        advertised = read_advertisement(name, json.dumps(one.document()).encode())
        assert (advertised.filter, advertised.profile.size_max) == (row["filter"], 1_000)
        assert advertised.profile.token_bucket is not None
        assert (advertised.profile.token_bucket.r, advertised.profile.token_bucket.b) == (row["rate"], 1_000)
    assert proposals([SILENT])[0].document() is None


def test_the_command_and_the_report_tell_the_flows_of_the_last_run(tmp_path: Path) -> None:
    output = OutputDirectory(tmp_path)
    run = output.begin()
    (run.tables / "reserved_flows").mkdir()
    pq.write_table(pa.Table.from_pylist([FLOW, IDLE, BEYOND]), run.tables / "reserved_flows" / "part-0.parquet")
    output.complete(run)
    section = reservations(Tables(run))
    assert section is not None
    assert "Of 3 advertised flows, 1 used less than 50% of what links had set aside, and 1 need more" in section.finding
    words = pipeline("profiles", "--out", str(tmp_path))
    told = json.loads(subprocess.run([*words, "--json"], capture_output=True, check=True).stdout)
    assert [(one["filter"], one["advice"]) for one in told] == [
        ("plant/+/spare", LOWER),
        ("plant/bursts", RAISE),
        ("plant/video", KEEP),
    ]
    shown = subprocess.run(words, capture_output=True, check=True, text=True).stdout
    assert 'mosquitto_pub -r -t \'$overlane/advertise/plant/_/spare\' -m \'{"filter": "plant/+/spare",' in shown
    assert "advertise/plant/video'" not in shown
