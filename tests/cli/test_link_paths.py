"""`overlane links` shows the paths of a link below it."""

from io import StringIO

from rich.console import Console

from overlane.adminapi.views import DatagramsView, LinkList, LinkView, PathView
from overlane.cli.admin.admin_client import AdminAddress, Response
from overlane.cli.admin.links import _show
from overlane.cli.output import QueryResult
from overlane.network.schema import Endpoint

OFFICE = AdminAddress("office", Endpoint("127.0.0.1", 8001))
FIBRE = PathView(
    local="192.0.2.1",
    remote="203.0.113.7",
    state="in_use",
    has_connection=True,
    latency_ms=14.1,
    loss=0.0,
    sent=7,
    received=7,
)
RADIO = PathView(
    local="192.0.2.1",
    remote="198.51.100.7",
    state="gone",
    has_connection=False,
    latency_ms=None,
    loss=0.25,
    sent=7,
    received=0,
)
LINK = LinkView(
    peer="plant",
    state="up",
    latency_ms=14.2,
    jitter_ms=0.1,
    loss=0.0,
    queue_parcels=0,
    queue_bytes=0,
    queue_bytes_max=1,
    datagrams=DatagramsView(
        state="open", rtt_ms=28.2, window_bytes=1, frames_bytes_max=1, sent=14, received=7, lost=0, refused={}
    ),
    paths=(FIBRE, RADIO),
)


def test_each_path_has_a_row_with_its_state_latency_and_loss() -> None:
    shown = StringIO()
    Console(file=shown, width=120).print(_show(QueryResult([Response(OFFICE, LinkList(items=(LINK,)))], {}, 0.0)))
    rows = [line.split() for line in shown.getvalue().splitlines() if ">" in line]
    assert rows == [
        ["192.0.2.1", ">", "203.0.113.7", "in", "use", "tcp+udp", "14.1", "ms", "0.0", "%"],
        ["192.0.2.1", ">", "198.51.100.7", "gone", "udp", "-", "25.0", "%"],
    ]
