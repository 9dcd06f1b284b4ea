"""Commands as somebody runs them who is not root and may do nothing that others may not.

Where the interpreter or the project lies in a directory that only root may enter, they may read what root may, and that
alone: no other capability is left, and none can be got back.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65_534
MAY_READ = "dac_read_search"


def without_root(*command: str) -> list[str]:
    """The command with the rights of nobody in particular, where there are more to lose."""
    if os.geteuid() != 0:
        return list(command)
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is needed to be somebody else than root; it is in Debian's package util-linux")
    plain = _nobody("-all")
    # Through env: setpriv itself could still start what nobody may not.
    trial = [*plain, "env", sys.executable, "-c", "import overlane"]
    reached = subprocess.run(trial, capture_output=True, check=False)
    return [*(plain if reached.returncode == 0 else _nobody(f"-all,+{MAY_READ}")), *command]


def _nobody(rights: str) -> list[str]:
    who = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs")
    return ["setpriv", *who, f"--inh-caps={rights}", f"--ambient-caps={rights}", f"--bounding-set={rights}"]


@contextmanager
def place_of_nobody() -> Iterator[Path]:
    """A directory that such commands may write to."""
    with tempfile.TemporaryDirectory(prefix="overlane-nobody-") as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
        yield Path(name)
