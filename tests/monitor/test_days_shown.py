"""The page shows days of telemetry: with dates, and fast enough to watch."""

import pytest
from browser import chromium, keep_screenshot, page_of, seek, serving, text_of
from typer.testing import CliRunner

from overlane.cli.main import app

pytestmark = pytest.mark.slow


def test_two_days_of_telemetry_are_played_with_their_dates(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("days")
    lake, file = directory / "lake", directory / "net.toml"
    sample = ["pipeline", "sample", "--lake", str(lake), "--brokers", "3", "--topics", "4", "--days", "2"]
    assert CliRunner().invoke(app, sample).exit_code == 0
    file.write_text("".join(f"[brokers.broker-0{number}]\n" for number in range(3)))
    past = ("--telemetry", str(lake), "--last", "2d")
    with serving(file, *past) as url, chromium() as browser, page_of(browser, url) as page:
        page.wait_for_function("Number(document.getElementById('scrub').max) > 170_000")
        seek(page, 86_400)
        page.wait_for_selector("#glance dd >> nth=0")
        assert text_of(page, "#glance dd >> nth=0").endswith("/3")
        first = text_of(page, "#clock")
        assert first.startswith("Jan ")
        page.click("#play")  # at a thousand times the pace
        page.wait_for_function("first => document.getElementById('clock').textContent !== first", arg=first)
        keep_screenshot(page, "days")
