"""SQLite's file format, as far as rescuing records asks for it: https://www.sqlite.org/fileformat2.html

    database    pages of one size; the first starts with a header of 100 bytes, where the list of free pages begins
    inner page  type 05 | .. | cells u16 | .. | last child u32 | where each cell is u16 .. | cell: child u32, row id
    leaf page   type 0D | .. | cells u16 | .. | where each cell is u16 ..                  | cell: length, row id, row

All data is checked against the sizes of page and file; invalid data is skipped.
"""

import struct
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path

from overlane.errors import OverlaneError
from overlane.node.store.write_ahead_log import PAGE_BYTES, Log

HEADER_BYTES = 100
INNER, LEAF = 0x05, 0x0D
LOCAL_MAX = PAGE_BYTES - 35
LOCAL_MIN = (PAGE_BYTES - 12) * 32 // 255 - 23
OVERFLOW_BYTES = PAGE_BYTES - 4
INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}

Column = int | bytes | None


class Damaged(OverlaneError):
    """What was read cannot be what was written."""

    error_code = "OVL-401"


@dataclass(slots=True)
class Found:
    """The rows of a table that are still there: (row id, columns)."""

    rows: dict[int, list[Column]] = field(default_factory=dict)
    orphans: dict[int, list[Column]] = field(default_factory=dict)
    """From pages to which no way leads any more. Some may have been erased long ago."""
    damaged_pages: int = 0


class Pages:
    """A database and its log, page by page."""

    def __init__(self, path: Path, log: Log) -> None:
        self._content = _mapped(path)
        self._log = log.pages
        self._numbers = {*range(1, len(self._content) // PAGE_BYTES + 1), *log.pages}

    def page(self, number: int) -> bytes:
        if (page := self._log.get(number)) is not None:
            return page
        page = self._content[(number - 1) * PAGE_BYTES : number * PAGE_BYTES]
        if number < 1 or len(page) < PAGE_BYTES:
            raise Damaged(f"page {number} is not there")
        return page

    def table(self, root: int) -> Found:
        """All rows of the table whose tree starts at this page."""
        found = Found()
        reached: set[int] = set()
        open_pages, is_whole = [root], True
        while open_pages:
            number = open_pages.pop()
            if number in reached:
                continue
            reached.add(number)
            try:
                page = self.page(number)
                if page[0] == INNER:
                    open_pages += _children(page)
                elif page[0] == LEAF:
                    found.damaged_pages += self._take(page, found.rows)
                else:
                    raise Damaged("neither an inner page nor a leaf")
            except Damaged:
                found.damaged_pages += 1
                is_whole = False
        if not is_whole:
            for number in sorted(self._numbers - reached - self._free()):
                self._take_orphans(number, found)
        return found

    def _take(self, page: bytes, rows: dict[int, list[Column]]) -> bool:
        """The rows of a leaf; True if some of it could not be read."""
        is_damaged = False
        for start in _cells(page, 8):
            try:
                number, row = self._row(page, start)
                rows.setdefault(number, row)
            except Damaged:
                is_damaged = True
        return is_damaged

    def _take_orphans(self, number: int, found: Found) -> None:
        try:
            page = self.page(number)
            if page[0] == LEAF:
                self._take(page, found.orphans)
        except Damaged:
            pass

    def _row(self, page: bytes, start: int) -> tuple[int, list[Column]]:
        length, start = _varint(page, start)
        number, start = _varint(page, start)
        if length > len(self._numbers) * PAGE_BYTES:
            raise Damaged("a row is too long")
        if length <= LOCAL_MAX:
            if start + length > PAGE_BYTES:
                raise Damaged("a row ends outside its page")
            return number, _columns(page[start : start + length])
        local = LOCAL_MIN + (length - LOCAL_MIN) % OVERFLOW_BYTES
        local = local if local <= LOCAL_MAX else LOCAL_MIN
        if start + local + 4 > PAGE_BYTES:
            raise Damaged("a row ends outside its page")
        parts, left = [page[start : start + local]], length - local
        following = int.from_bytes(page[start + local : start + local + 4], "big")
        while left > 0:
            overflow = self.page(following)
            following = int.from_bytes(overflow[:4], "big")
            parts.append(overflow[4 : 4 + min(left, OVERFLOW_BYTES)])
            left -= OVERFLOW_BYTES
        return number, _columns(b"".join(parts))

    def _free(self) -> set[int]:
        """The pages that are in use for nothing, as far as the list of them can be read."""
        free: set[int] = set()
        try:
            trunk = int.from_bytes(self.page(1)[32:36], "big")
            while trunk and trunk not in free:
                free.add(trunk)
                trunk, count, *leaves = struct.unpack(f">{PAGE_BYTES // 4}I", self.page(trunk))
                free.update(leaves[: min(count, len(leaves))])
        except Damaged:
            pass
        return free


def _mapped(path: Path) -> mmap | bytes:
    if not path.exists() or not path.stat().st_size:
        return b""
    with path.open("rb") as file:
        return mmap(file.fileno(), 0, access=ACCESS_READ)


def _children(page: bytes) -> list[int]:
    starts = [*_cells(page, 12), 8]
    if max(starts) + 4 > PAGE_BYTES:
        raise Damaged("a child is outside the page")
    return [int.from_bytes(page[start : start + 4], "big") for start in starts]


def _cells(page: bytes, header_bytes: int) -> tuple[int, ...]:
    """Where the cells of a page should start."""
    count = int.from_bytes(page[3:5], "big")
    if header_bytes + 2 * count > PAGE_BYTES:
        raise Damaged("there are more cells than a page can hold")
    return struct.unpack_from(f">{count}H", page, header_bytes)


def _varint(content: bytes, start: int) -> tuple[int, int]:
    value = 0
    for position in range(start, min(start + 8, len(content))):
        value = value << 7 | content[position] & 0x7F
        if content[position] < 0x80:
            return value, position + 1
    if start + 8 >= len(content):
        raise Damaged("a number goes on after the end")
    return value << 8 | content[start + 8], start + 9


def _columns(row: bytes) -> list[Column]:
    head_bytes, at = _varint(row, 0)
    if head_bytes > len(row):
        raise Damaged("the head of a row is longer than the row")
    columns: list[Column] = []
    body = head_bytes
    while at < head_bytes:
        kind, at = _varint(row, at)
        if kind >= 12:
            width = (kind - 12) // 2
            columns.append(row[body : body + width])
        else:
            width = INTEGER_BYTES.get(kind, 0)
            columns.append(_integer(kind, row[body : body + width]))
        body += width
    if body != len(row):
        raise Damaged("the columns of a row are not as long as the row")
    return columns


def _integer(kind: int, content: bytes) -> int | None:
    match kind:
        case 0:
            return None
        case 8 | 9:
            return kind - 8
        case 7 | 10 | 11:
            raise Damaged("a column of a type that is not used")
        case _:
            return int.from_bytes(content, "big", signed=True)
