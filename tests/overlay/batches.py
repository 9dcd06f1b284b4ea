"""A broker that notes how large its largest batch of records was: `python batches.py FILE broker ...`."""

import sys
from collections.abc import Mapping
from pathlib import Path

from overlane.cli.main import run
from overlane.node.store.record_file import Name, RecordFile

NOTE = Path(sys.argv.pop(1))

write = RecordFile.write
sizes = [0]


def note(self: RecordFile, changes: Mapping[Name, bytes | None]) -> None:
    size_bytes = sum(len(key) + len(value or b"") for (_, key), value in changes.items())
    if size_bytes > sizes[-1]:
        sizes.append(size_bytes)
        NOTE.write_text(str(size_bytes))
    write(self, changes)


RecordFile.write = note  # type: ignore[method-assign]
run()
