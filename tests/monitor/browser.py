"""A real browser for tests: Debian's Chromium, driven by Playwright, which must bring none of its own.

Whatever a page writes to its console as a warning or an error fails the test, and so does a request to another place.
Screenshots are kept in build/monitor, for people to look at.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brokers import free_port

SCREENSHOTS = Path(__file__).parents[2] / "build" / "monitor"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 60_000


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test is left out where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the page is tested with Playwright, a package of PyPI"
    )
    if CHROMIUM is None:
        pytest.skip("the page is tested in Chromium: install the package chromium")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        try:
            yield found
        finally:
            found.close()


@contextmanager
def page_of(
    browser: Any, url: str, *, width: int = 1440, height: int = 900, theme: str = "light", may_complain: bool = False
) -> Iterator[Any]:
    """A page that has been told everything so far. `may_complain`: its server is meant to vanish."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, has_touch=width < 760, is_mobile=width < 760
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda line: said.append(f"{line.type}: {line.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(url)
        page.wait_for_selector("#topics > *")
        yield page
        if not may_complain:
            assert [line for line in said if line.startswith(("error", "warning"))] == []
        assert [one for one in asked if not one.startswith(url.partition("#")[0])] == []
    finally:
        context.close()


@contextmanager
def serving(file: Path, *options: str) -> Iterator[str]:
    at = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "overlane", "monitor", str(file), "--at", at, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["monitor", f"http://{at}/"]
        yield f"http://{at}/"
    finally:
        process.terminate()
        process.wait(20)


def keep_screenshot(page: Any, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.wait_for_timeout(400)  # until what glides has come to rest
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def text_of(page: Any, selector: str) -> str:
    return str(page.locator(selector).inner_text())


def seek(page: Any, at_s: float) -> None:
    """Move the slider of time, as a hand would, once the recording has come so far: it ends where that ends."""
    page.wait_for_function("at => Number(document.getElementById('scrub').max) >= at", arg=at_s)
    move = "(slider, at) => { slider.value = at; slider.dispatchEvent(new Event('input')); }"
    page.locator("#scrub").evaluate(move, at_s)
