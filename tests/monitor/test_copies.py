"""Recovery on the monitor: where a broker runs, which hosts have copies of it, and how far behind they are."""

from pathlib import Path
from typing import Any

import pytest
from browser import chromium, keep_screenshot, page_of, seek, serving, text_of
from glances import glance

from overlane.adminapi.views import MirrorView, RecoveryView, SnapshotView
from overlane.monitor.history import TARGET, Head
from overlane.monitor.observer import Observer
from overlane.monitor.overlay_state import Copies, Mirror
from overlane.monitor.recording_file import write_recording
from overlane.network import Broker
from overlane.network.schema import Network

NETWORK = Network(brokers=tuple(Broker(name=name, role="edge", domain="west") for name in ("west-1", "west-2")))


def mirror(host: str, in_sync: bool, lag_bytes: int, lag_ms: float) -> MirrorView:
    return MirrorView(host=host, in_sync=in_sync, lag_batches=1, lag_bytes=lag_bytes, lag_ms=lag_ms, heard_ms=5.0)


def answers() -> dict[str, SnapshotView | str]:
    """west-1 was taken over by a spare host; west-2 has no copy at present."""
    mirrors = (mirror("west-1", False, 2_048, 40.0), mirror("west-2", True, 0, 0.0))
    return {
        "west-1": glance(name="west-1", recovery=RecoveryView(host="spare", epoch=4, mirrors=mirrors)),
        "west-2": glance(name="west-2", recovery=RecoveryView(host="west-2", epoch=2)),
    }


def observer() -> Observer:
    made = Observer(NETWORK)
    made.update(1.0, answers())
    return made


def test_a_broker_has_its_host_epoch_and_mirrors_and_none_without_recovery() -> None:
    seen = observer()
    assert seen.picture.brokers["west-1"].copies == Copies(
        host="spare",
        epoch=4,
        mirrors=(Mirror(host="west-1", lag_bytes=2_048, lag_ms=40.0), Mirror(host="west-2", in_sync=True)),
    )
    seen.update(2.0, {"west-1": glance(name="west-1")})
    assert seen.picture.brokers["west-1"].copies is None


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Observer(NETWORK)
    head = Head(title="copies", is_live=False, target=TARGET, until_s=2.0, picture=made.picture)
    path = tmp_path_factory.mktemp("copies") / "copies.rec"
    write_recording(path, head, [made.update(at_s, answers()) for at_s in (0.1, 1.0)])
    return path


@pytest.mark.slow
def test_the_page_shows_the_copies_of_a_broker(recording: Path) -> None:
    with serving(recording) as url, chromium() as browser, page_of(browser, url) as page:
        seek(page, 2.0)
        _look(page)


def _look(page: Any) -> None:
    page.click("#tab-brokers")
    page.wait_for_selector("[data-broker='west-1'] .more:has-text('on spare, 1 mirror in sync')")
    assert "no mirrors in sync" in text_of(page, "[data-broker='west-2'] .more")
    page.click("[data-broker='west-1']")
    page.wait_for_selector("#inspector .copies")
    rows = [row.split("\t") for row in text_of(page, "#inspector .copies").split("\n")]
    assert [[cell.strip() for cell in row] for row in rows[1:]] == [
        ["host", "state", "behind"],
        ["spare", "primary, epoch 4", ""],
        ["west-1", "catching up", "2.0 KiB, 40 ms"],
        ["west-2", "in sync", "0 B, 0 ms"],
    ]
    keep_screenshot(page, "copies")
