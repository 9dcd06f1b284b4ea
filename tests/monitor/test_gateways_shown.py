"""Gateways on the monitor: where they lead, whether they work, how much crosses and waits."""

from pathlib import Path

import msgspec
import pytest
from browser import chromium, keep_screenshot, page_of, seek, serving, text_of
from glances import glance

from overlane.adminapi.views import GatewayView, LaneView, SideView, SnapshotView
from overlane.monitor.history import TARGET, Head
from overlane.monitor.observer import Observer
from overlane.monitor.overlay_state import ForeignBroker
from overlane.monitor.recording_file import write_recording
from overlane.network import Broker
from overlane.network.schema import Network

NETWORK = Network(brokers=(Broker(name="west"),))
DEPOT = GatewayView(
    name="depot",
    broker="west",
    to="amqp://depot:5672",
    state="up",
    inwards=LaneView(per_second=12.3456, waiting=3),
    outwards=LaneView(per_second=2.0, waiting=1, backlog=40),
)
PLANT = GatewayView(
    name="plant",
    broker="west",
    to="mqtt://plant:1883",
    state="connecting",
    foreign=SideView(last_error="plant:1883: refused"),
    inwards=LaneView(per_second=7.0),
)


def answers() -> dict[str, SnapshotView | str]:
    return {"west": msgspec.structs.replace(glance(name="west"), gateways=(DEPOT, PLANT))}


def test_a_broker_has_its_gateways_with_rates_while_they_are_up_and_reasons_while_not() -> None:
    seen = Observer(NETWORK)
    seen.update(1.0, answers())
    assert seen.picture.brokers["west"].gateways == (
        ForeignBroker(gateway="depot", to="amqp://depot:5672", state="up", in_hz=12.3, out_hz=2.0, waiting=43),
        ForeignBroker(gateway="plant", to="mqtt://plant:1883", state="connecting", why="plant:1883: refused"),
    )
    seen.update(2.0, {"west": glance(name="west")})
    assert not seen.picture.brokers["west"].gateways


@pytest.mark.slow
def test_the_page_shows_the_gateways_of_a_broker(tmp_path: Path) -> None:
    made = Observer(NETWORK)
    head = Head(title="gateways", is_live=False, target=TARGET, until_s=2.0, picture=made.picture)
    write_recording(tmp_path / "a.rec", head, [made.update(at_s, answers()) for at_s in (0.1, 1.0)])
    with serving(tmp_path / "a.rec") as url, chromium() as browser, page_of(browser, url) as page:
        seek(page, 2.0)
        page.click("#tab-brokers")
        page.wait_for_selector("[data-broker='west'] .more:has-text('gateway plant not up')")
        page.click("[data-broker='west']")
        page.wait_for_selector("#inspector .gateways")
        rows = [row.split("\t") for row in text_of(page, "#inspector .gateways").split("\n")]
        assert [[cell.strip() for cell in row] for row in rows[1:]] == [
            ["name", "to", "state", "in, out", "waiting"],
            ["depot", "amqp://depot:5672", "up", "12.3/s, 2.0/s", "43"],
            ["plant", "mqtt://plant:1883", "connecting: plant:1883: refused", "0/s, 0/s", "0"],
        ]
        keep_screenshot(page, "gateways")
