"""The pages of the documents: what is in them, by line.

A page is README.md, CONTRIBUTING.md, CHANGELOG.md, or Markdown in docs/ or examples/. Code is in fences or indented by
four spaces; `inline` code stands in the text. A comment in front of a fence can say more about it:

    <!-- file: NAME -->               this is the content of a file that commands of the page use
    <!-- test: types TEXT -->         what is typed when a command asks
    <!-- test: shows TEXT -->         what its last command shows, at the latest when it is tried again for a while
    <!-- test: after Ctrl-C -->       what runs in other terminals is ended before it
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PAGES = sorted(
    str(page.relative_to(PROJECT))
    for page in (
        PROJECT / "README.md",
        PROJECT / "CONTRIBUTING.md",
        *(PROJECT / "docs").rglob("*.md"),
        *(PROJECT / "examples").rglob("*.md"),
    )
)

_FENCE = re.compile(r"\s*```(\w*)\s*$")
_NOTE = re.compile(r"<!-- (file|test): (.*) -->$")
_INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")


@dataclass(frozen=True)
class Block:
    """Lines of code that stand together; `language` is empty where the page does not say, None where it is indented."""

    language: str | None
    line: int
    lines: list[str]
    notes: dict[str, str]


@dataclass
class Page:
    name: str
    blocks: list[Block] = field(default_factory=list)
    prose: list[tuple[int, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.prose)

    def inline(self) -> list[tuple[int, str]]:
        """Inline code with the line it begins in; it may go on in the next."""
        text = self.text
        return [
            (self.prose[text.count("\n", 0, match.start())][0], " ".join(match[1].split()))
            for match in _INLINE.finditer(text)
        ]

    def files(self) -> dict[str, str]:
        return {block.notes["file"]: "\n".join(block.lines) + "\n" for block in self.blocks if "file" in block.notes}


def read_page(name: str) -> Page:
    page = Page(name)
    fenced: Block | None = None
    notes: dict[str, str] = {}
    before = ""
    for number, line in enumerate((PROJECT / name).read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if fenced is not None:
            if fence:
                fenced = None
            else:
                fenced.lines.append(line)
        elif fence:
            fenced = Block(fence[1], number, [], notes)
            page.blocks.append(fenced)
            notes = {}
        elif note := _NOTE.match(line):
            notes = {**notes, note[1]: note[2]}
        elif line.startswith("    ") and line.strip() and _may_begin_code(page, number, before):
            _indented(page, number, notes).lines.append(line[4:])
        else:
            page.prose.append((number, line))
            if line.strip():
                notes = {}
        before = line
    return page


def _may_begin_code(page: Page, number: int, before: str) -> bool:
    """Indented lines are code behind an empty line or more code; elsewhere they go on with a list."""
    return not before.strip() or _ends_at(page, number)


def _ends_at(page: Page, number: int) -> bool:
    """Whether the line before was the last of an indented block."""
    last = page.blocks[-1] if page.blocks else None
    return last is not None and last.language is None and last.line + len(last.lines) == number


def _indented(page: Page, number: int, notes: dict[str, str]) -> Block:
    if not _ends_at(page, number):
        page.blocks.append(Block(None, number, [], notes))
    return page.blocks[-1]
