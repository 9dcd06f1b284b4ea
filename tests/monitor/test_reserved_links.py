"""Reservations on the monitor: how much of each link they have."""

from pathlib import Path
from typing import Any

import pytest
from browser import chromium, keep_screenshot, page_of, seek, serving, text_of
from glances import glance, link

from overlane.adminapi.views import SnapshotView
from overlane.monitor.history import TARGET, Head
from overlane.monitor.observer import Observer
from overlane.monitor.recording_file import write_recording
from overlane.network import Broker
from overlane.network.schema import Link, Network

NETWORK = Network(
    brokers=tuple(Broker(name=name) for name in ("a", "b", "c")),
    links=(Link(ends=("a", "b"), latency_ns=1), Link(ends=("b", "c"), latency_ns=1)),
)
PIXELS = """([red, green, blue]) => {
  const map = document.querySelector("#map");
  const copy = new OffscreenCanvas(map.width, map.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(map, 0, 0);
  const { data } = copy.getImageData(0, 0, map.width, map.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4)
    if (Math.hypot(data[at] - red, data[at + 1] - green, data[at + 2] - blue) < 45 && data[at + 3] > 200) found += 1;
  return found;
}"""
RESERVED = (0x5B, 0x2F, 0xB0)


def answers(reserved: float) -> dict[str, SnapshotView | str]:
    return {
        "a": glance(link("b", reserved=reserved), name="a"),
        "b": glance(link("a"), link("c"), name="b"),
        "c": glance(link("b"), name="c"),
    }


def test_each_direction_of_a_link_has_its_reserved_share() -> None:
    observer = Observer(NETWORK)
    observer.update(1.0, answers(0.6049))
    assert [way.reserved for way in observer.picture.links["a|b"].ways] == [0.6, 0.0]
    assert [way.reserved for way in observer.picture.links["b|c"].ways] == [0.0, 0.0]


@pytest.mark.slow
def test_a_link_has_the_colour_of_reservations_and_says_how_much_is_reserved(tmp_path: Path) -> None:
    observer = Observer(NETWORK)
    head = Head(title="reserved", is_live=False, target=TARGET, until_s=3.0, picture=observer.picture)
    path = tmp_path / "reserved.rec"
    write_recording(path, head, [observer.update(0.1, answers(0.0)), observer.update(2.0, answers(0.6))])
    with serving(path) as url, chromium() as browser, page_of(browser, url) as page:
        seek(page, 1.0)
        _choose(page)
        assert "reserved" not in text_of(page, "#inspector .facts").split("\n")
        assert page.evaluate(PIXELS, RESERVED) == 0
        seek(page, 3.0)
        page.wait_for_selector("#inspector .facts dt:has-text('reserved')")
        facts = text_of(page, "#inspector .facts").split("\n")
        assert facts[facts.index("reserved") + 1 :][:2] == ["60 %", "0.0 %"]
        page.wait_for_function(f"({PIXELS})([{', '.join(map(str, RESERVED))}]) > 50")
        assert "more reserved" in page.content()
        keep_screenshot(page, "reserved")


def _choose(page: Any) -> None:
    page.click("#tab-links")
    page.click("[data-link='a|b']")
    page.wait_for_selector("#inspector .facts")
