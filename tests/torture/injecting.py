"""Faults of disk and wall clock inside a running broker, by a library that is preloaded into it (shim.c)."""

import errno
import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
_CONTROL = struct.Struct("=qii")


def build(directory: Path) -> Path | None:
    """The library; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = directory / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-w", "-o", library, SOURCE, "-ldl"], check=True)
    return library


class Injector:
    """Of one broker; it outlives the broker's process."""

    def __init__(self, library: Path, control: Path, directory: Path) -> None:
        control.write_bytes(bytes(mmap.PAGESIZE))
        with control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.environment = {
            "LD_PRELOAD": str(library),
            "INJECT_CONTROL": str(control),
            "INJECT_DIRECTORY": f"{directory.resolve()}/",
        }
        self._offset_s = 0.0
        self._write_error = self._sync_error = 0

    def set_clock(self, offset_s: float) -> None:
        self._offset_s = offset_s
        self._apply()

    def fill_disk(self) -> None:
        self._write_error = errno.ENOSPC
        self._apply()

    def fail_writes(self) -> None:
        self._write_error = self._sync_error = errno.EIO
        self._apply()

    def fail_syncs(self) -> None:
        self._sync_error = errno.EIO
        self._apply()

    def heal_disk(self) -> None:
        self._write_error = self._sync_error = 0
        self._apply()

    def _apply(self) -> None:
        _CONTROL.pack_into(self._memory, 0, int(self._offset_s * 1e9), self._write_error, self._sync_error)
