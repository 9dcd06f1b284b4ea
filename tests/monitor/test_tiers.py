"""Two tiers on the monitor: edges by domain, routing brokers between them, the leader, and who carries how much."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from browser import chromium, keep_screenshot, page_of, seek, serving, text_of
from glances import glance, link

from overlane.adminapi.views import CoordinationView, SnapshotView
from overlane.monitor.history import TARGET, Head
from overlane.monitor.observer import Observer
from overlane.monitor.recording_file import write_recording
from overlane.network import Broker, Topic
from overlane.network.schema import Network

NETWORK = Network(
    brokers=(
        Broker(name="routing-1", role="routing"),
        Broker(name="routing-2", role="routing"),
        Broker(name="west-1", role="edge", domain="west"),
        Broker(name="west-2", role="edge", domain="west"),
        Broker(name="east-1", role="edge", domain="east"),
    ),
    topics=(Topic(filter="alarms/#"),),
)
EDGES = {"west-1": "west", "west-2": "west", "east-1": "east"}
NEEDED = {"west-1": ("routing-1", "routing-2"), "west-2": (), "east-1": ("routing-2", "routing-auto-1")}
"""The routing brokers with which each edge is linked."""
BUNDLES = {"routing-1": 100, "routing-2": 90, "routing-auto-1": 66}


def told(name: str, role: str, leader: str = "routing-2", *, is_connected: bool = True) -> CoordinationView:
    routing = {one: ("routing", one) for one in BUNDLES}
    return CoordinationView(
        role=role,
        domain=EDGES.get(name, name),
        is_connected=is_connected,
        leader=leader,
        bundles=BUNDLES,
        members={**routing, **{one: ("edge", domain) for one, domain in EDGES.items() if role == "routing"}},
    )


def answers() -> dict[str, SnapshotView | str]:
    found: dict[str, SnapshotView | str] = {}
    for name, needed in NEEDED.items():
        beside = [one for one in EDGES if one != name and EDGES[one] == EDGES[name]]
        links = [link(peer) for peer in (*needed, *beside)]
        found[name] = glance(*links, name=name, coordination=told(name, "edge"))
    for name in ("routing-1", "routing-2"):
        links = [link(edge, "up" if name in NEEDED[edge] else "down") for edge in EDGES]
        found[name] = glance(*links, name=name, coordination=told(name, "routing"))
    return found


def test_brokers_have_their_role_domain_and_bundles_and_one_of_them_leads() -> None:
    observer = Observer(NETWORK)
    observer.update(1.0, answers())
    seen = {name: (one.role, one.domain, one.is_leader, one.bundles) for name, one in observer.picture.brokers.items()}
    assert seen == {
        "routing-1": ("routing", "routing-1", False, 100),
        "routing-2": ("routing", "routing-2", True, 90),
        "routing-auto-1": ("routing", "routing-auto-1", False, 66),
        "west-1": ("edge", "west", False, 0),
        "west-2": ("edge", "west", False, 0),
        "east-1": ("edge", "east", False, 0),
    }


def test_a_broker_that_does_not_reach_zookeeper_does_not_say_who_leads() -> None:
    found = answers()
    for name in ("routing-1", "west-1"):
        snapshot = found[name]
        assert isinstance(snapshot, SnapshotView)
        stale = told(name, "routing", "routing-1", is_connected=False)
        found[name] = msgspec.structs.replace(
            snapshot, broker=msgspec.structs.replace(snapshot.broker, coordination=stale)
        )
    observer = Observer(NETWORK)
    observer.update(1.0, found)
    assert [name for name, one in observer.picture.brokers.items() if one.is_leader] == ["routing-2"]


def test_a_routing_broker_that_an_edge_does_not_need_is_no_lost_link() -> None:
    observer = Observer(NETWORK)
    observer.update(1.0, answers())
    links = observer.picture.links
    assert {name: one.state for name, one in links.items()} == {
        "routing-1|west-1": "up",
        "routing-2|west-1": "up",
        "west-1|west-2": "up",
        "east-1|routing-2": "up",
        "east-1|routing-auto-1": "up",
    }
    # An edge that is lost says nothing: then the others count.
    for at_s in (2.0, 3.0):
        observer.update(at_s, {**answers(), "west-1": "connection refused"})
    assert observer.picture.links["routing-1|west-1"].state == "up"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    observer = Observer(NETWORK)
    head = Head(title="two tiers", is_live=False, target=TARGET, until_s=2.0, picture=observer.picture)
    path = tmp_path_factory.mktemp("tiers") / "tiers.rec"
    write_recording(path, head, [observer.update(at_s, answers()) for at_s in (0.1, 1.0)])
    return path


PLACES = """async () => {
  const { layout } = await import("./layout.js");
  const brokers = %s;
  return layout(brokers, {}).at;
}"""


@pytest.mark.slow
def test_the_page_draws_domains_on_both_sides_of_the_routing_brokers(recording: Path) -> None:
    with serving(recording) as url, chromium() as browser, page_of(browser, url) as page:
        seek(page, 2.0)
        _look(page)


def _look(page: Any) -> None:
    page.click("#tab-brokers")
    page.wait_for_selector("[data-broker='routing-2'] .more:has-text('leader · 90 bundles')")
    assert "edge in west" in text_of(page, "[data-broker='west-1'] .more")
    page.click("[data-broker='routing-2']")
    facts = text_of(page, "#inspector .facts").split("\n")
    assert facts[facts.index("role") + 1] == "routing, leader"
    assert facts[facts.index("carries") + 1] == "90 bundles of topics"
    keep_screenshot(page, "two-tiers")
    brokers = {one.name: {"role": one.role, "domain": one.domain} for one in NETWORK.brokers}
    at = page.evaluate(PLACES % msgspec.json.encode(brokers).decode())
    assert {at[name][0] for name in ("routing-1", "routing-2")} == {0}
    west, east = {at[name][0] for name in ("west-1", "west-2")}, at["east-1"][0]
    assert len(west) == 1
    assert west.pop() < 0 < east
