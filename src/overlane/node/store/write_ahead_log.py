"""SQLite's write-ahead log, as far as needed to distinguish damage from its end:
https://www.sqlite.org/fileformat2.html

    header 32 | frames: page number u32 | pages in the database after a commit, else 0 u32 | salt 8 | checksum 8 | page

A frame is valid if its salt is that of the header and its checksum, which continues that of the previous frame, is
correct; a transaction is valid if its commit frame is. After the last one there may be frames of an earlier use of the
file, with another salt.

SQLite stops at the first invalid frame, as it must after a crash: the last transaction may be incomplete. Two commits
after such a frame show that the log does not end there but is damaged: each transaction is synced before the next one
starts. Then only the damaged frames are skipped. Whether a damaged transaction was the last one cannot be known; it is
skipped completely.
"""

import struct
import sys
from array import array
from dataclasses import dataclass, field
from pathlib import Path

PAGE_BYTES = 4096
HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_BYTES
MAGIC = 0x377F0682
"""The lowest bit is the byte order of the checksums: big-endian if it is set."""

Sums = tuple[int, int]


@dataclass(slots=True)
class Log:
    """The newest committed version of each page in the log."""

    pages: dict[int, bytes] = field(default_factory=dict)
    damaged_frames: int = 0
    is_damaged: bool = False


def read_log(path: Path) -> Log:
    if not path.exists():
        return Log()
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
        frames = list(iter(lambda: file.read(FRAME_BYTES), b""))
    if frames and len(frames[-1]) < FRAME_BYTES:
        frames.pop()
    return _read(header, frames)


def _read(header: bytes, frames: list[bytes]) -> Log:
    log = Log()
    big_endian = header[:4] == (MAGIC | 1).to_bytes(4, "big")
    sums = _header_sums(header, big_endian)
    has_gap = sums is None
    salt = _common_salt(frames[:3]) if sums is None else header[16:24]
    is_ours = True
    """Whether the frame is of this log; and before that, whether the frame before was."""
    commits_behind = 0
    """A gap, and the commit of the transaction with the gap included."""
    transaction: dict[int, bytes] = {}
    doubtful: dict[int, bytes] = {}
    """The latest transaction with a gap: if no other follows, a crash may have cut it short."""
    for frame in frames:
        number, commits = struct.unpack_from(">II", frame)
        stored = struct.unpack_from(">II", frame, 16)
        has_salt, is_good = frame[8:16] == salt, False
        if has_salt or is_ours:
            # Without a header there is nothing to check the first frame against. Its records have their own checksums.
            is_good = (
                sums is None
                or _sums(frame[FRAME_HEADER_BYTES:], _sums(frame[:8], sums, big_endian), big_endian) == stored
            )
        is_ours = has_salt or is_good
        sums = stored
        if is_good:
            transaction[number] = frame[FRAME_HEADER_BYTES:]
        else:
            has_gap = True
            log.damaged_frames += has_salt
        if is_ours and commits:
            commits_behind += has_gap or commits_behind > 0
            log.pages |= doubtful
            doubtful = transaction if has_gap else {}
            log.pages |= {} if has_gap else transaction
            transaction, has_gap = {}, False
    log.is_damaged = commits_behind > 1
    return log


def _header_sums(header: bytes, big_endian: bool) -> Sums | None:
    """The checksum of the header; None if it is not right."""
    if len(header) < HEADER_BYTES or int.from_bytes(header[:4], "big") | 1 != MAGIC | 1:
        return None
    sums = _sums(header[:24], (0, 0), big_endian)
    return sums if sums == struct.unpack_from(">II", header, 24) else None


def _common_salt(frames: list[bytes]) -> bytes:
    """Without a header: what at least two of these frames have, or the first."""
    salts = [frame[8:16] for frame in frames]
    return max(salts, key=salts.count, default=b"")


def _sums(content: bytes, sums: Sums, big_endian: bool) -> Sums:
    words = array("I", content)
    if big_endian != (sys.byteorder == "big"):
        words.byteswap()
    one, two = sums
    pairs = iter(words)
    for word in pairs:
        one = (one + word + two) & 0xFFFFFFFF
        two = (two + next(pairs) + one) & 0xFFFFFFFF
    return one, two
