"""The page follows 200 brokers and 1,000 links, all of which change all the time, without stutter.

How long a frame takes by the clock depends on what else the machine does, so what is judged is how long the page's
thread computes for a frame. Where others share the machine, and frames are left out so that fewer of them bear the rest
of the work, that grows too: so it may take twice a sixtieth of a second. Both figures are kept beside the screenshots.
"""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from browser import SCREENSHOTS, chromium, keep_screenshot, page_of

from brokers import free_port
from overlane.monitor.history import TARGET, Head
from overlane.monitor.overlay_state import (
    BrokerStatus,
    Figures,
    Link,
    LinkDirection,
    LinkState,
    OverlayState,
    Route,
    Topic,
    link_name,
    state_delta,
)
from overlane.monitor.recording_file import write_recording

BROKERS, LINKS = 200, 1_000
STEPS, STEP_S = 80, 0.25
MEASURE_MS = 4_000
FRAME_MS = 1000 / 30

COUNT = """() => {
  window.gaps = [];
  let last = null;
  const step = (now) => {
    if (window.gaps === null) return;
    if (last !== null) window.gaps.push(now - last);
    last = now;
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}"""
COUNTED = "() => { const found = window.gaps; window.gaps = null; return found; }"


def farthest_path(links: list[tuple[str, str]], start: str) -> tuple[str, ...]:
    """The shortest way to a broker that is as far away as any."""
    reached: dict[str, tuple[str, ...]] = {start: (start,)}
    newest = [start]
    while newest:
        found: dict[str, tuple[str, ...]] = {}
        for here in newest:
            for ends in links:
                if here in ends:
                    there = ends[1] if ends[0] == here else ends[0]
                    if there not in reached:
                        found[there] = (*reached[here], there)
        reached |= found
        newest = list(found)
    return max(reached.values(), key=len)


def write_large(file: Path, luck: random.Random) -> None:
    names = [f"broker-{number:03}" for number in range(BROKERS)]
    places = {name: (luck.random(), luck.random()) for name in names}

    def far(one: str, other: str) -> float:
        return abs(places[one][0] - places[other][0]) + abs(places[one][1] - places[other][1])

    pairs = sorted((far(one, other), one, other) for one in names for other in names if one < other)[:LINKS]
    links = [(one, other) for _, one, other in pairs]
    first_path = farthest_path(links, names[0])
    cut = set(first_path[1:-1])
    second_path = farthest_path([ends for ends in links if not cut & set(ends)], names[0])
    paths: dict[str, tuple[tuple[str, ...], ...]] = {}
    for path in (first_path, second_path):
        paths[path[-1]] = (*paths.get(path[-1], ()), path)

    def way(state: LinkState) -> LinkDirection:
        return LinkDirection(
            state=state, latency_ms=float(luck.randrange(5, 40)), rate_bps=float(luck.randrange(10**6)), loss=0.0
        )

    def link(one: str, other: str) -> Link:
        state: LinkState = luck.choices(["up", "suspect", "failed"], [96, 3, 1])[0]  # type: ignore[assignment]
        return Link(ends=(one, other), state=state, ways=(way(state), way(state)))

    def picture(step: int) -> OverlayState:
        figures = Figures(published=100, delivered=100, in_time=100 - step % 2, p50_ms=20.0, p99_ms=30.0)
        return OverlayState(
            at_s=step * STEP_S,
            brokers={name: BrokerStatus(state="serving", in_hz=float(luck.randrange(100))) for name in names},
            links={link_name(one, other): link(one, other) for _, one, other in pairs},
            routes={
                "broker-000/1": Route(
                    source=names[0],
                    destinations=tuple(paths),
                    filters=("alarms/#",),
                    paths=paths,
                )
            },
            topics={"alarms/#": Topic(deadline_ms=60.0, rate_hz=100.0, lately=figures, total=figures)},
        )

    before = first = picture(0)
    changes = []
    for step in range(1, STEPS):
        after = picture(step)
        changes.append(state_delta(before, after))
        before = after
    head = Head(title="large", is_live=False, target=TARGET, until_s=before.at_s, picture=first)
    write_recording(file, head, changes)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("large") / "large.recording"
    write_large(file, random.Random(1))
    at = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "overlane", "monitor", str(file), "--at", at], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("monitor")
        yield f"http://{at}/"
    finally:
        process.terminate()
        process.wait(20)


class Stopwatch:
    """What the frames of a page cost, while something is done with it."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._inspector = page.context.new_cdp_session(page)
        self._inspector.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.lines: list[str] = []

    def time(self, what: str, do: Callable[[], None] = lambda: None) -> float:
        """Milliseconds of computing for each frame."""
        before_s = self._computed_s()
        self._page.evaluate(COUNT)
        do()
        self._page.wait_for_timeout(MEASURE_MS)
        gaps = self._page.evaluate(COUNTED)
        cost_ms = 1000 * (self._computed_s() - before_s) / len(gaps)
        shown = f"{cost_ms:.1f} ms of computing each, {median(gaps):.1f} ms apart in the median"
        self.lines.append(f"{what}: {len(gaps)} frames, {shown}")
        return cost_ms

    def _computed_s(self) -> float:
        found = self._inspector.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))


def drag(page: Any) -> None:
    page.mouse.move(500, 400)
    page.mouse.down()
    for step in range(60):
        page.mouse.move(500 + 2 * step, 400 + step)
    page.mouse.up()


@pytest.mark.slow
def test_a_large_overlay_is_followed_without_stutter(url: str) -> None:
    with chromium() as browser, page_of(browser, url) as page:
        watch = Stopwatch(page)
        page.click("[data-topic='alarms/#'] button")
        costs_ms = [watch.time("a topic chosen")]
        page.click("#play")
        costs_ms.append(watch.time("playing"))
        page.click("#tab-links")
        costs_ms.append(watch.time("playing, the list of links open"))
        costs_ms.append(watch.time("playing, the map dragged", lambda: drag(page)))
        page.click("#fit")
        keep_screenshot(page, "large")
    (SCREENSHOTS / "frames.txt").write_text("\n".join(watch.lines) + "\n")
    print("\n".join(watch.lines))
    assert max(costs_ms) < FRAME_MS, watch.lines
