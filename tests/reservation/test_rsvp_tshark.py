"""The bytes of RSVP messages, read by tshark: an implementation of the RFCs that is not ours."""

import json
import shutil
import subprocess
import sys
from pathlib import Path as FilePath
from typing import Any

import pytest

from overlane.planning.reserve import RSpec, TSpec
from overlane.reservation.rsvp.intserv import AdSpec, FlowSpec
from overlane.reservation.rsvp.messages import (
    Flow,
    Message,
    Path,
    PathErr,
    PathTear,
    Resv,
    ResvConf,
    ResvErr,
    ResvTear,
    encode,
)
from overlane.reservation.rsvp.objects import (
    AdmissionValue,
    ErrorCode,
    ErrorSpec,
    Hop,
    Sender,
    Style,
    Tree,
    TreeNode,
    broker_address,
    session_of,
)
from overlane.reservation.rsvp.pcap import Captured, capture

TSHARK = shutil.which("tshark") or shutil.which(FilePath(sys.executable).parent / "tshark")
pytestmark = pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")

TSPEC = TSpec(10_000.0, 3000.0, 20_000.0, 100, 1000)
NORTH, SOUTH = broker_address(1), broker_address(2)
SENDER = Sender(NORTH, 5)
SESSION = session_of("plant/+/temperature")
GUARANTEED = FlowSpec(TSPEC, RSpec(15_000.0, 0.001))
ADSPEC = AdSpec(2, 1e6, 1234, 1500, 3001, 4002, 303, 404)
LINK = Tree((TreeNode(1, None, False), TreeNode(2, 0, False)))
FULL = ErrorSpec(NORTH, ErrorCode.ADMISSION, AdmissionValue.BANDWIDTH)


def dissected(messages: list[Message], directory: FilePath) -> list[dict[str, Any]]:
    file = directory / "reservations.pcap"
    file.write_bytes(capture(Captured(at * 1_000, NORTH, SOUTH, encode(one)) for at, one in enumerate(messages)))
    command = [str(TSHARK), "-r", str(file), "-T", "json", "--no-duplicate-keys"]
    found = subprocess.run(command, capture_output=True, check=True, timeout=120).stdout
    return [packet["_source"]["layers"] for packet in json.loads(found)]


def fields(tree: object) -> dict[str, list[Any]]:
    """Every field of a packet at any depth, by name."""
    found: dict[str, list[Any]] = {}
    pending = [tree]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            for key, value in one.items():
                found.setdefault(key, []).extend(value if isinstance(value, list) else [value])
            pending += one.values()
        elif isinstance(one, list):
            pending += one
    return found


def test_tshark_reads_every_kind_of_message_without_complaint(tmp_path: FilePath) -> None:
    flow = Flow(GUARANTEED, (SENDER,))
    packets = dissected(
        [
            Path(SESSION, Hop(NORTH, 7), 30_000, SENDER, TSPEC, ADSPEC, LINK, "plant/+/temperature"),
            Resv(SESSION, Hop(SOUTH, 7), 30_000, Style.FF, (flow,), SOUTH),
            PathErr(SESSION, FULL, SENDER, TSPEC, LINK),
            ResvErr(SESSION, Hop(NORTH, 7), FULL, Style.FF, (flow,), (), LINK),
            PathTear(SESSION, Hop(NORTH, 7), SENDER),
            ResvTear(SESSION, Hop(SOUTH, 7), Style.FF, (Flow(None, (SENDER,)),)),
            ResvConf(SESSION, ErrorSpec(NORTH, 0), SOUTH, Style.FF, (flow,)),
        ],
        tmp_path,
    )
    found = [fields(packet) for packet in packets]
    assert [one["rsvp.msg"][0] for one in found] == ["1", "2", "3", "4", "5", "6", "7"]
    assert not any("_ws.expert" in one or "_ws.malformed" in one for one in found)
    assert text_of(tmp_path).count("[correct]") == len(packets)  # checksums


def test_tshark_finds_the_traffic_and_the_path_in_a_path_message(tmp_path: FilePath) -> None:
    dissected([Path(SESSION, Hop(NORTH, 7), 30_000, SENDER, TSPEC, ADSPEC)], tmp_path)
    text = text_of(tmp_path)
    for line in (
        "Neighbor address: fd4f:564c:4e00::1",
        "Refresh interval: 30000 ms",
        "Source port: 5",
        "IS Hop Count: 2",
        "Path b/w estimate: 1000000",
        "Minimum path latency: 1234",
        "Composed MTU: 1500",
        "End-to-end composed value for C: 3001",
        "End-to-end composed value for D: 4002",
        "Since-last-reshaping point composed C: 303",
        "Since-last-reshaping point composed D: 404",
        "Token bucket rate: 10000",
        "Token bucket size: 3000",
        "Peak data rate: 20000",
        "Minimum policed unit [m]: 100",
        "Maximum packet size [M]: 1000",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("style", "flow", "told"),
    [
        (Style.FF, Flow(GUARANTEED, (SENDER,)), ("Fixed Filter", "Guaranteed Rate", "Rate: 15000", "Slack term: 1000")),
        (Style.SE, Flow(FlowSpec(TSPEC), (SENDER, Sender(SOUTH, 6))), ("Shared-Explicit", "Controlled Load")),
        (Style.WF, Flow(FlowSpec(TSPEC)), ("Wildcard Filter", "Controlled Load")),
    ],
)
def test_tshark_finds_style_and_request_in_a_resv_message(
    style: Style, flow: Flow, told: tuple[str, ...], tmp_path: FilePath
) -> None:
    dissected([Resv(SESSION, Hop(SOUTH, 7), 30_000, style, (flow,))], tmp_path)
    text = text_of(tmp_path)
    for words in told:
        assert words in text


def test_tshark_finds_the_bottleneck_in_an_error(tmp_path: FilePath) -> None:
    flow = Flow(GUARANTEED, (SENDER,))
    dissected([ResvErr(SESSION, Hop(NORTH, 7), FULL, Style.FF, (flow,))], tmp_path)
    text = text_of(tmp_path)
    assert "Error node: fd4f:564c:4e00::1" in text
    assert "Admission Control Failure" in text
    assert "Requested bandwidth unavailable" in text


def text_of(directory: FilePath) -> str:
    command = [str(TSHARK), "-r", str(directory / "reservations.pcap"), "-V"]
    return subprocess.run(command, capture_output=True, check=True, timeout=120, text=True).stdout
