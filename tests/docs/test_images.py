"""The pictures in the documents show the present: steps of the demo, and files that a page uses."""

import re
from html import unescape

from docpages import PAGES, PROJECT, read_page

from overlane.cli.simulation.demo import LOST_HOST, STEP_COUNT
from overlane.demo.steps import STEPS

IMAGES = PROJECT / "docs" / "images"
AGAIN = "renew it: .venv/bin/python scripts/write_images.py"


def shown(name: str) -> str:
    """The text of a terminal in a picture, line by line."""
    lines: dict[float, str] = {}
    for y, text in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]*)</text>', (IMAGES / name).read_text()):
        lines[float(y)] = lines.get(float(y), "") + unescape(text).replace("\xa0", " ")
    return "\n".join(lines[y] for y in sorted(lines))


def test_the_picture_of_the_demo_has_all_its_steps_in_their_present_words() -> None:
    text = shown("demo.svg")
    for number, step in enumerate((*STEPS, LOST_HOST), 1):
        assert f"{number}/{STEP_COUNT}  {step.name}  {step.description[:60]}" in text, AGAIN
    assert "No acknowledged message was lost, none was duplicated." in text
    assert "overlane plan apply" in text


def test_pictures_fetch_nothing_and_each_is_in_a_document() -> None:
    used = "".join(block for name in PAGES for block in [read_page(name).text])
    for image in IMAGES.iterdir():
        assert image.name in used, f"no document shows {image.name}"
        if image.suffix == ".svg":
            assert re.findall(r"(?:src|href|url)\s*[=(]\s*['\"]?https?:", image.read_text()) == []
