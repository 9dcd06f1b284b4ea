"""Every link in the documents leads somewhere: to a file, a folder, a picture, a heading. Other hosts are not asked."""

import re
from pathlib import Path

import pytest
from docpages import PAGES, PROJECT, read_page

_LINK = re.compile(r"(?<!\\)\]\(\s*<?([^)\s>]+)>?\s*\)")
_REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")


def _links(name: str) -> list[str]:
    text = read_page(name).text
    without_code = re.sub(r"`[^`\n]*`", "", text)
    return [*_LINK.findall(without_code), *_REFERENCE.findall(without_code), *_LINK.findall(text)]


def _anchors(page: Path) -> set[str]:
    """The names of headings as GitHub makes them."""
    found: set[str] = set()
    for _, line in read_page(str(page.relative_to(PROJECT))).prose:
        if match := _HEADING.match(line):
            shown = re.sub(r"\\(.)", r"\1", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]))
            slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
            number = 0
            while (unique := slug if number == 0 else f"{slug}-{number}") in found:
                number += 1
            found.add(unique)
    return found


@pytest.mark.parametrize("name", [*PAGES, "CHANGELOG.md"])
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    lost = []
    for link in _links(name):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (PROJECT / name).parent / path if path else PROJECT / name
        target = target.resolve()
        if not target.exists():
            lost.append(f"{link}: there is no such file")
        elif anchor and anchor not in _anchors(target):
            lost.append(f"{link}: {target.name} has no such heading")
    assert lost == []


def test_every_page_can_be_reached_from_the_first() -> None:
    reached: set[Path] = set()
    ahead = [PROJECT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        name = str(page.relative_to(PROJECT))
        ahead += [
            (page.parent / link.partition("#")[0]).resolve()
            for link in _links(name)
            if not re.match(r"[a-z]+:|#", link)
        ]
    assert {name for name in PAGES if PROJECT / name not in reached} == set()
