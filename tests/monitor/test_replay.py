"""The page replays a simulation: in Chromium, as a person would use it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, keep_screenshot, page_of, seek, serving, text_of
from typer.testing import CliRunner

from overlane.cli.main import app

pytestmark = pytest.mark.slow

FIVE_CITIES = Path(__file__).parents[2] / "examples" / "five-cities.toml"
ALARMS = "[data-topic='alarms/#']"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("replay") / "five-cities.recording"
    assert CliRunner().invoke(app, ["simulate", str(FIVE_CITIES), "--record", str(file)]).exit_code == 0
    with serving(file) as found:
        yield found


def paths_shown(page: Any) -> list[tuple[str, str]]:
    """The paths of the chosen topic: their rank and the brokers on them."""
    return [
        (str(one.get_attribute("data-rank")), str(one.get_attribute("data-path"))) for one in page.locator(".way").all()
    ]


def test_a_moment_of_the_past_is_shown_with_every_path_and_redundant_ones_told_apart(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        assert text_of(page, "#mode") == "▷ recording"
        seek(page, 8)
        page.click(f"{ALARMS} button")
        page.wait_for_selector(".way >> nth=1")
        assert paths_shown(page) == [
            ("0", "seattle|denver|washington"),
            ("1", "seattle|los-angeles|washington"),
        ]
        assert "within 60 ms" in text_of(page, f"{ALARMS} .asked")
        assert text_of(page, ".route h3") == "seattle → washington"
        assert text_of(page, ".way >> nth=0 >> .takes") == "34 ms"
        assert "redundant" in text_of(page, ".way >> nth=1 >> .kind")
        seek(page, 30)
        page.wait_for_selector("[data-path='seattle|los-angeles|denver|washington']")
        page.click("#tab-links")
        assert page.locator("[data-link='denver|seattle']").get_attribute("data-state") in ("failed", "down")
        assert page.locator("#list [data-link]").first.get_attribute("data-link") == "denver|seattle"
        keep_screenshot(page, "replay-cut-light")


def test_an_entry_of_the_timeline_leads_to_its_moment(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        page.click("text=denver crashes")
        page.wait_for_selector("#clock:has-text('45.')")
        page.click("#tab-brokers")
        assert page.locator("[data-broker=denver]").get_attribute("data-state") == "lost"
        assert "4/5" in text_of(page, "#glance")
        page.keyboard.press(",")
        page.keyboard.press(".")
        page.wait_for_selector("#clock:has-text('45.')")


def test_play_speed_and_the_end(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        seek(page, 55)
        page.select_option("#speed", "10")
        page.keyboard.press("Space")
        page.wait_for_selector("#play[aria-label=Pause]")
        page.wait_for_selector("#clock:has-text('61.00 s')")
        page.wait_for_selector("#play[aria-label=Play]")
        assert text_of(page, f"{ALARMS} .share") == "100 %"
        assert text_of(page, f"{ALARMS} .figures").split()[-6:] == ["delivered", "6000", "late", "0", "lost", "0"]


def test_a_link_has_a_panel_with_its_history_and_no_buttons_to_break_it(browser: Any, url: str) -> None:
    with page_of(browser, url, theme="dark") as page:
        assert page.locator("html").get_attribute("data-theme") == "dark"
        seek(page, 15)
        page.click(f"{ALARMS} button")
        page.click("#tab-links")
        page.click("[data-link='denver|seattle']")
        page.wait_for_selector("#inspector canvas")
        charts = page.locator("#inspector .chart h3").all_inner_texts()
        assert [text.split()[0] for text in charts] == ["latency", "load", "loss", "queue"]
        assert charts[0].split("\n")[1] == "80 ms / 80 ms"
        assert page.locator("#inspector [data-deed]").count() == 0
        keep_screenshot(page, "replay-slow-dark")
        page.keyboard.press("Escape")
        page.wait_for_selector("#inspector", state="hidden")
        page.keyboard.press("t")
        assert page.locator("html").get_attribute("data-theme") == "light"


def test_a_broker_has_a_panel_with_its_history(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        seek(page, 40)
        page.click("#tab-brokers")
        page.click("[data-broker=washington]")
        page.wait_for_selector("#inspector .state:has-text('serving')")
        charts = [text.split("\n") for text in page.locator("#inspector .chart h3").all_inner_texts()]
        assert [chart[0] for chart in charts] == ["messages", "queued for clients", "delivered in time"]
        assert charts[0][1].endswith("/ 100/s")
        assert charts[2][1] == "100 %"
        seek(page, 47)
        page.click("[data-broker=denver]")
        page.wait_for_selector("#inspector .state:has-text('lost')")
        assert "it does not run" in text_of(page, "#inspector .facts")


LOOKS = """async () => {
  const { LINK_LOOKS, BROKER_LOOKS, HAPPENING_WORDS } = await import("/signs.js");
  const { DASHES } = await import("/paths.js");
  const lines = ["up", "suspect", "failed", "unknown"].map((state) => LINK_LOOKS[state]);
  const words = (looks) => Object.values(looks).map((look) => look.word);
  return {
    lines: lines.map(({ dash, mark }) => JSON.stringify([dash, mark])),
    links: words(LINK_LOOKS),
    shapes: Object.values(BROKER_LOOKS).map((look) => look.shape),
    brokers: words(BROKER_LOOKS),
    paths: DASHES.map((dash) => JSON.stringify(dash)),
    happenings: Object.values(HAPPENING_WORDS),
  };
}"""


def test_nothing_is_told_by_colour_alone(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        for what, looks in page.evaluate(LOOKS).items():
            assert len(looks) > 3, what
            assert len(set(looks)) == len(looks), what


def test_everything_can_be_done_by_keyboard(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        page.keyboard.press("2")
        page.wait_for_selector("[data-topic='reports/#'].chosen")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#clock:has-text('1.00 s')")
        page.focus("#tab-happened")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#tab-alerts[aria-selected=true]")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#tab-brokers[aria-selected=true]")
        page.focus("[data-broker=orlando]")
        page.keyboard.press("Enter")
        page.wait_for_selector("#inspector h2:has-text('orlando')")
        page.keyboard.press("?")
        page.wait_for_selector("#keys[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("#keys:not([open])", state="hidden")


def test_a_phone_shows_the_same_without_scrolling_sideways(browser: Any, url: str) -> None:
    with page_of(browser, url, width=390, height=844) as page:
        seek(page, 47)
        page.tap("[data-topic='reports/#'] button")
        page.wait_for_selector("[data-topic='reports/#'] .way")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("#scrub").is_visible()
        keep_screenshot(page, "replay-phone")
        page.tap("#tab-brokers")
        page.tap("[data-broker=denver]")
        page.wait_for_selector("#inspector .state:has-text('lost')")
        keep_screenshot(page, "replay-phone-broker")


KEEPS_BOUNDS = """async () => {
  const { Past } = await import("/past.js");
  const picture = { at_s: 0, brokers: { a: { state: "serving", clients: 0 } }, links: {}, routes: {}, topics: {} };
  const past = new Past({ is_live: true, picture, happenings: [] });
  for (let at = 1; at <= 9000; at++) {
    past.add({ at_s: at, brokers: { a: { state: "serving", clients: at } }, happenings: [{ number: at, at_s: at }] });
  }
  const clients = (at) => past.pictureAt(at).brokers.a.clients;
  const series = past.series("brokers", "a", (one) => one.clients, 8990.5, 8993);
  const isBounded = past.changes.length <= 7200 && past.firstS > 4000;
  return [isBounded, clients(9000), clients(8000.5), clients(past.firstS), past.firstS, series];
}"""


def test_what_a_page_remembers_is_bounded_and_right(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        is_bounded, now, then, first, first_s, series = page.evaluate(KEEPS_BOUNDS)
        assert (is_bounded, now, then, first) == (True, 9000, 8000, first_s)
        assert series == [[8990.5, 8990], [8991, 8991], [8992, 8992], [8993, 8993], [8993, 8993]]


def test_a_page_that_asks_for_a_token_is_let_in_with_it(browser: Any, tmp_path: Path) -> None:
    token = "correct-horse-battery-staple"
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    file = tmp_path / "short.recording"
    assert (
        CliRunner().invoke(app, ["simulate", str(FIVE_CITIES), "--duration", "1s", "--record", str(file)]).exit_code
        == 0
    )
    with serving(file, "--token-file", str(tmp_path / "token")) as url:
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        for given in ("wrong", token):
            page.wait_for_selector("#gate[open]")
            page.fill("#token", given)
            page.click("#gate button")
        page.wait_for_selector("#topics .topic")
        context.close()
        with page_of(browser, f"{url}#token={token}") as page:
            assert token not in page.url


LAYS_OUT = """async () => {
  const { layout } = await import("/layout.js");
  const seattle = { latitude: 47.6, longitude: -122.3 };
  const orlando = { latitude: 28.5, longitude: -81.4 };
  const links = { "a|b": { ends: ["a", "b"] }, "b|c": { ends: ["b", "c"] }, "c|d": { ends: ["c", "d"] } };
  const free = () => layout({ a: {}, b: {}, c: {}, d: {} }, links);
  const mixed = layout({ a: seattle, b: orlando, c: {}, d: {} }, links);
  const far = ([x1, y1], [x2, y2]) => Math.hypot(x1 - x2, y1 - y2);
  const { a, b, c, d } = free().at;
  return {
    same: JSON.stringify(free()) === JSON.stringify(free()),
    neighbours: [far(a, b), far(b, c), far(c, d)].every((near) => near > 0.01 && near < far(a, d)),
    isPlane: free().projection === null,
    west: mixed.at.a[0] < mixed.at.b[0] && mixed.at.a[1] < mixed.at.b[1],
    near: far(mixed.at.c, mixed.at.b) < far(mixed.at.a, mixed.at.b),
  };
}"""


def test_brokers_without_coordinates_are_laid_out_by_their_links_and_always_alike(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        assert page.evaluate(LAYS_OUT) == {
            "same": True,
            "neighbours": True,
            "isPlane": True,
            "west": True,
            "near": True,
        }


def test_a_button_that_is_pressed_while_the_page_changes_is_clicked_all_the_same(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        page.evaluate("""async () => {
            const { element, onSkipped, put } = await import("/dom.js");
            window.clicks = [];
            window.button = (word) => element("button", { on: { click: () => clicks.push(word) } }, word);
            window.place = element("div", { id: "trial", style: "position: fixed; inset: 0; z-index: 9" });
            document.body.append(place);
            window.show = (word) => put(place, button(window.last = word));
            onSkipped(() => show(window.last));
            show("first");
        }""")
        page.hover("#trial button")
        page.mouse.down()
        page.evaluate("show('second')")
        page.mouse.up()
        page.wait_for_function("clicks.length > 0")
        page.evaluate("show('third')")
        page.click("#trial button:text('third')")  # drawn on release, if the release comes after it
        assert page.evaluate("clicks") == ["first", "third"]


DELIVERED = f"{ALARMS} .figures div:nth-child(4) dd"


def test_what_changes_while_a_button_is_pressed_is_shown_when_it_is_released(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        page.wait_for_selector(f"{DELIVERED}:text-is('0')")
        page.hover(f"{ALARMS} button")
        page.mouse.down()
        seek(page, 61)
        wait_for_frames(page)
        assert text_of(page, DELIVERED) == "0"
        page.mouse.move(1, 1)  # no click
        page.mouse.up()
        page.wait_for_selector(f"{DELIVERED}:text-is('6000')")


def test_a_frame_that_comes_right_after_a_click_is_not_the_last_one(browser: Any, url: str) -> None:
    with page_of(browser, url) as page:
        seek(page, 8)
        page.hover(f"{ALARMS} button")
        page.evaluate("() => { window.late = []; window.setTimeout = (timer) => late.push(timer); }")
        page.mouse.down()
        page.mouse.up()
        wait_for_frames(page)  # on a busy machine they come before timers that are due
        page.evaluate("late.forEach((timer) => timer())")
        page.wait_for_selector(f"{ALARMS} .way")


@pytest.mark.parametrize("button", ["right", "middle"])
def test_only_the_main_button_presses(browser: Any, url: str, button: str) -> None:
    """A menu that opens takes the release, of which the page would never hear."""
    with page_of(browser, url) as page:
        page.hover(f"{ALARMS} button")
        page.mouse.down(button=button)
        seek(page, 61)
        page.wait_for_selector(f"{DELIVERED}:text-is('6000')")


def wait_for_frames(page: Any) -> None:
    """Until what was to be drawn by now would have been."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")
