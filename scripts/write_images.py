"""write_images.py [demo] [monitor]: makes the pictures in docs/images anew from what users see.

    demo      demo.svg: the output of `overlane demo`; two minutes, with what `make demo` installs
    monitor   monitor.png, monitor-phone.png: the page in Chromium, with a recording of the simulator

The recording is the same on every machine. Look at the pictures before they are committed, and at what README.md says
of the demo: `tests/docs/test_images.py` compares the steps.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

PROJECT = Path(__file__).resolve().parents[1]
IMAGES = PROJECT / "docs" / "images"
CITIES = PROJECT / "examples" / "five-cities.toml"
COLUMNS = 108
FONT_OF_ELSEWHERE = re.compile(r"\s*@font-face \{.*?\n    \}\n", re.DOTALL)
"""The picture fetches nothing."""
CUT_AT_S = 28.0
"""In the recording of the five cities: a link is cut, and the alarms have left it."""


def main(wanted: list[str]) -> None:
    unknown = set(wanted) - {"demo", "monitor"}
    if unknown:
        sys.exit(f"write_images: got {', '.join(sorted(unknown))}; expected demo or monitor")
    if not wanted or "demo" in wanted:
        write_demo()
    if not wanted or "monitor" in wanted:
        write_monitor()


# The demo


def write_demo() -> None:
    command = [sys.executable, "-m", "overlane", "demo"]
    told = {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "0", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    began_s = time.monotonic()
    done = subprocess.run(command, env=os.environ | told, stdout=subprocess.PIPE, text=True, check=True, cwd=PROJECT)
    print(f"the demo took {time.monotonic() - began_s:.0f} s: README.md names it")
    (IMAGES / "demo.svg").write_text(as_picture(done.stdout))


def as_picture(output: str) -> str:
    """Output of a terminal as SVG, below the command that was typed."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for line in output.splitlines():
        console.print(Text.from_ansi(line), soft_wrap=True)
    picture = FONT_OF_ELSEWHERE.sub("\n", console.export_svg(title="make demo", unique_id="demo"))
    return "".join(f"{line.rstrip()}\n" for line in picture.splitlines())


# The monitor


def write_monitor(directory: Path = IMAGES) -> None:
    sys.path[:0] = [str(PROJECT / "tests"), str(PROJECT / "tests/monitor")]
    from browser import chromium, page_of, serving

    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        recording = Path(name) / "cities.recording"
        simulate = [sys.executable, "-m", "overlane", "simulate", str(CITIES), "--record", str(recording)]
        subprocess.run(simulate, check=True, stdout=subprocess.DEVNULL)
        with serving(recording) as url:
            for picture, width, height in (("monitor", 1440, 900), ("monitor-phone", 390, 1180)):
                with page_of(browser, url, width=width, height=height) as page:
                    show_cut(page)
                    page.screenshot(path=directory / f"{picture}.png")


def show_cut(page: Any) -> None:
    """Five cities while a link is cut, with the paths of the alarms around it."""
    from browser import seek

    seek(page, CUT_AT_S)
    page.click("[data-topic='alarms/#'] button")
    page.wait_for_selector("[data-path='seattle|los-angeles|denver|washington']")
    page.mouse.move(0, 0)
    page.wait_for_timeout(1_000)  # until what glides has come to rest


if __name__ == "__main__":
    main(sys.argv[1:])
