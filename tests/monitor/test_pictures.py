"""scripts/write_images.py makes the pictures of the documents from what users see."""

import runpy
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM

SCRIPT = Path(__file__).parents[2] / "scripts" / "write_images.py"
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """Its names."""
    return runpy.run_path(str(SCRIPT))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="pictures are made in Chromium: install the package chromium")
def test_the_page_is_shown_wide_and_on_a_phone(script: dict[str, Any], tmp_path: Path) -> None:
    script["write_monitor"](tmp_path)
    sizes = {}
    for picture in tmp_path.iterdir():
        data = picture.read_bytes()
        assert data.startswith(PNG)
        sizes[picture.name] = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    assert sizes == {"monitor.png": (1440, 900), "monitor-phone.png": (390, 1180)}


def test_output_of_a_terminal_becomes_a_picture_that_fetches_nothing(script: dict[str, Any]) -> None:
    picture = script["as_picture"]("\x1b[1mbold\x1b[0m and \x1b[32mgreen\x1b[0m\n" + "x" * 200 + "\n")
    assert "bold" in picture
    assert "#98a84b" in picture
    assert "https://cdnjs" not in picture
    assert "@font-face" not in picture


def test_an_unknown_picture_is_refused(script: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match="got moniter; expected demo or monitor"):
        script["main"](["moniter"])
