"""The page with 200 brokers in domains and 10,000 topics: groups, search, the worst first, alerts, flapping.

How long an interaction takes by the clock depends on what else the machine does, so what is judged is how long the
page's thread computes from it until the second frame after it.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, keep_screenshot, page_of, serving, text_of

from overlane.monitor.history import TARGET, Head
from overlane.monitor.overlay_state import (
    BrokerStatus,
    Figures,
    Link,
    LinkDirection,
    OverlayState,
    Route,
    Topic,
    link_name,
    state_delta,
)
from overlane.monitor.recording_file import write_recording
from overlane.monitor.timeline import Timeline

DOMAINS, EDGES, ROUTING, TOPICS = 19, 10, 10, 10_000
WORST = "plant/7777/alarms"
INTERACTION_MS = 100.0
SETTLED_MS = 1_000
"""After it the page has nothing left to draw."""


def names() -> dict[str, tuple[str, str]]:
    """Brokers, with role and domain."""
    edges = {f"d{domain:02}-{edge}": ("edge", f"d{domain:02}") for domain in range(DOMAINS) for edge in range(EDGES)}
    return edges | {f"routing-{number}": ("routing", f"routing-{number}") for number in range(ROUTING)}


def pairs() -> list[tuple[str, str]]:
    """Each edge is linked with two routing brokers, and with the next of its domain."""
    found = []
    for number, (name, (role, domain)) in enumerate(names().items()):
        if role == "edge":
            found += [(name, f"routing-{(number + step) % ROUTING}") for step in (0, 3)]
            found.append((name, f"{domain}-{(int(name[-1]) + 1) % EDGES}"))
    return [(min(ends), max(ends)) for ends in found]


def topic(name: str, luck: random.Random) -> Topic:
    in_time = 50 if name == WORST else 99 if name.endswith("9/alarms") else 100
    figures = Figures(published=100, delivered=100, in_time=in_time, p50_ms=20.0, p99_ms=70.0)
    return Topic(deadline_ms=60.0, rate_hz=float(luck.randrange(1, 50)), lately=figures, total=figures)


def all_topics(step: int) -> dict[str, Topic]:
    """Each second another fiftieth of them has other figures than at first."""
    names = [f"plant/{number}/alarms" for number in range(TOPICS)]
    found = {name: topic(name, random.Random(name)) for name in names}
    return found | {name: topic(name, random.Random(f"{step} {name}")) for name in names[step % 50 :: 50]}


def picture(step: int, luck: random.Random) -> OverlayState:
    def way() -> LinkDirection:
        return LinkDirection(state="up", latency_ms=float(luck.randrange(5, 9)), rate_bps=float(luck.randrange(10**6)))

    def broker(name: str, role: str, domain: str) -> BrokerStatus:
        is_lost = step > 1 and name == "d03-4"
        return BrokerStatus(
            state="lost" if is_lost else "serving",
            why="connection refused" if is_lost else "",
            in_hz=float(luck.randrange(100)),
            role=role,
            domain=domain,
        )

    flapping = link_name("d05-1", "d05-2")
    links = {
        link_name(*ends): Link(
            ends=ends,
            state="suspect" if link_name(*ends) == flapping and step % 2 else "up",
            ways=(way(), way()),
        )
        for ends in pairs()
    }
    path = ("d00-0", "routing-0", "d07-0")
    return OverlayState(
        at_s=0.5 * step,
        brokers={name: broker(name, *place) for name, place in names().items()},
        links=links,
        routes={
            "d00-0/1": Route(source="d00-0", destinations=(path[-1],), filters=(WORST,), paths={path[-1]: (path,)})
        },
        topics=all_topics(step),
    )


def write_many(file: Path) -> None:
    luck, timeline = random.Random(2), Timeline()
    before = first = picture(0, luck)
    changes = []
    for step in range(1, 24):
        after = picture(step, luck)
        timeline.link(0.5 * step, "d05-1", "d05-2", "suspect" if step % 2 else "up")
        if step == 2:
            timeline.broker(1.0, "bad", "d03-4", "is lost", "connection refused")
        changes.append(state_delta(before, after, timeline.take()))
        before = after
    head = Head(title="many", is_live=False, target=TARGET, until_s=before.at_s, picture=first)
    write_recording(file, head, changes)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("many") / "many.recording"
    write_many(file)
    with serving(file) as found:
        yield found


TO_THE_END = """() => {
  const slider = document.getElementById("scrub");
  slider.value = 11.5;
  slider.dispatchEvent(new Event("input"));
  return document.getElementById("clock").textContent === "11.50 s";
}"""
"""As soon as all of the recording has come."""


class Costs:
    """How long the page's thread computes for an interaction."""

    TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"

    def __init__(self, page: Any) -> None:
        self._page = page
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.of_ms: dict[str, float] = {}

    def time(self, what: str, script: str, back: str = "() => {}") -> None:
        """Up to three tries: others that use the same core at the moment make it longer. `back` undoes it."""
        tries = []
        for _ in range(3):
            self._page.evaluate(back)
            self._page.wait_for_timeout(SETTLED_MS)
            before_s = self._computed_s()
            self._page.evaluate(script)
            self._page.evaluate(self.TWO_FRAMES)
            tries.append(round(1000 * (self._computed_s() - before_s), 1))
            if tries[-1] < INTERACTION_MS:
                break
        self.of_ms[what] = min(tries)

    def _computed_s(self) -> float:
        found = self._session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))


def find_topics(wanted: str) -> str:
    return (
        "() => { const field = document.getElementById('topic-find');"
        f" field.value = '{wanted}'; field.dispatchEvent(new Event('input')); }}"
    )


def to_time(at_s: float) -> str:
    return (
        "() => { const slider = document.getElementById('scrub');"
        f" slider.value = {at_s}; slider.dispatchEvent(new Event('input')); }}"
    )


CLEAR = "() => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }))"
"""Choose no topic."""


def press(selector: str) -> str:
    return f"() => document.querySelector(`{selector}`).click()"


@pytest.mark.slow
def test_two_hundred_brokers_and_ten_thousand_topics_are_grouped_found_and_sorted_at_once(url: str) -> None:
    with chromium() as browser, page_of(browser, url) as page:
        page.wait_for_function(TO_THE_END)
        costs = Costs(page)
        first = page.locator("#topics .topic").first
        assert first.get_attribute("data-topic") == WORST
        assert f"and {TOPICS - 8} more" in text_of(page, "#topics > .empty")
        _groups(page)
        costs.time("find a topic", find_topics("plant/1234/"), find_topics(""))
        page.wait_for_selector("[data-topic='plant/1234/alarms']")
        assert page.locator("#topics .topic").count() == 1
        costs.time("show all again", find_topics(""), find_topics("plant/1"))
        _orders(page)
        costs.time("choose a topic", press(f"[data-topic='{WORST}']:not(.chosen) button"), CLEAR)
        page.wait_for_selector("[data-path='d00-0|routing-0|d07-0']")
        _timeline(page)
        costs.time("open the alerts", press("#tab-alerts"), press("#tab-happened"))
        _alerts(page)
        costs.time("open the links", press("#tab-links"), press("#tab-happened"))
        costs.time("zoom", press("#zoom-in"))
        costs.time("move in time", to_time(3.0), to_time(11.0))
        print(costs.of_ms)
        assert {what: took for what, took in costs.of_ms.items() if took >= INTERACTION_MS} == {}


def _orders(page: Any) -> None:
    """The first of each order, among all and among those that are looked for."""
    last = all_topics(23)
    for order, wanted, ranked in (
        ("name", "", sorted(last)),
        ("name", "/99", [name for name in sorted(last) if "/99" in name]),
        ("rate", "", sorted(last, key=lambda name: -(last[name].rate_hz or 0.0))),
        ("file", "", list(last)),
        ("worst", "", [WORST]),
    ):
        page.evaluate(find_topics(wanted))
        page.select_option("#topic-order", order)
        first = ranked[0]
        page.wait_for_selector(f"#topics .topic:first-child[data-topic='{first}']")
        shown = [one.get_attribute("data-topic") for one in page.locator("#topics .topic").all()]
        assert shown == ranked[:8] or order == "worst"


def _groups(page: Any) -> None:
    """Domains and the routing brokers are one mark each; a broker that is chosen opens its own; zoom those in sight."""
    groups = DOMAINS + 1
    page.wait_for_selector(f"#map[data-groups='{groups}']")
    keep_screenshot(page, "many-grouped")
    page.click("#tab-brokers")
    page.wait_for_selector("#list [data-broker]")
    assert page.locator("#list [data-broker]").first.get_attribute("data-broker") == "d03-4"
    page.click("#list [data-broker='d03-4']")
    page.wait_for_selector(f"#map[data-groups='{groups - 1}']")
    page.click("#inspector header button")
    page.wait_for_selector(f"#map[data-groups='{groups}']")
    for _ in range(6):
        page.click("#zoom-in")
    page.wait_for_selector(f"#map:not([data-groups='{groups}'])")
    keep_screenshot(page, "many-zoomed")
    page.click("#fit")
    page.wait_for_selector(f"#map[data-groups='{groups}']")


def _timeline(page: Any) -> None:
    """A link that is suspected and up again all the time is one entry; a click shows its changes."""
    page.click("#tab-happened")
    page.wait_for_selector("#list [data-happening]")
    assert page.locator("#list [data-happening]").count() == 1
    assert "d03-4 is lost" in text_of(page, "#list [data-happening]")
    row = page.locator("#list [data-flapping]")
    changes = int(row.get_attribute("data-flapping"))
    assert changes >= 6
    row.click()
    page.wait_for_selector(f"#list [data-happening] >> nth={changes}")
    page.click("#list [data-flapping]")
    page.wait_for_selector("#list [data-happening] >> nth=1", state="detached")


def _alerts(page: Any) -> None:
    page.wait_for_selector("#list [data-alert='broker d03-4']")
    texts = page.locator("#list [data-alert] .what").all_inner_texts()
    assert texts[0] == "d03-4 is lost"
    assert texts[1] == f"{WORST}: 50.00 % within 60 ms"
    assert "d05-1 – d05-2 is suspected" in texts
    assert not any("d03-4 –" in text for text in texts)
    assert f"{TOPICS // 10 - 10} more topics" in texts
    assert text_of(page, "#tab-alerts") == f"Alerts {TOPICS // 10 + 3}"
    keep_screenshot(page, "many-alerts")


@pytest.mark.slow
def test_a_phone_finds_a_topic_of_many_without_scrolling_sideways(url: str) -> None:
    with chromium() as browser, page_of(browser, url, width=390, height=844) as page:
        page.fill("#topic-find", "plant/42/temperature")
        page.wait_for_selector("#topics > .empty:has-text('No topic')")
        page.fill("#topic-find", "plant/42/")
        page.wait_for_selector("[data-topic='plant/42/alarms']")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.click("#tab-alerts")
        page.wait_for_selector("#list [data-alert]")
        keep_screenshot(page, "many-phone")
