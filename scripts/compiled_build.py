"""Build the compiled wheel, unless that of these sources is there, and print the folder that it is unpacked in.

    PYTHONPATH=$(python scripts/compiled_build.py) python -m pytest tests/turn

Nothing is installed: with that path, the compiled modules are found before those of the checkout.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILDS = ROOT / "build" / "compiled"
KEPT = 2
"""Builds of other sources, the latest."""


def fingerprint() -> str:
    """Of all that a build is made of."""
    found = sha256(sys.version.encode())
    for path in [ROOT / "hatch_build.py", ROOT / "pyproject.toml", *sorted((ROOT / "src").rglob("*.py"))]:
        found.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def built() -> Path:
    made_of = fingerprint()
    folder = BUILDS / made_of
    BUILDS.mkdir(parents=True, exist_ok=True)
    with (BUILDS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _forget_old()
            _build(folder)
            if fingerprint() != made_of:
                shutil.rmtree(folder)
                sys.exit("The sources have changed while they were compiled: run it again.")
    return folder


def _build(folder: Path) -> None:
    wheels = folder.with_suffix(".wheels")
    shutil.rmtree(wheels, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", wheels, ROOT], env={**os.environ, "OVERLANE_COMPILE": "1"}, check=True)
    (wheel,) = wheels.glob("*.whl")
    unpacked = wheels / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    unpacked.rename(folder)
    shutil.rmtree(wheels)


def _forget_old() -> None:
    builds = sorted((path for path in BUILDS.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in builds[:-KEPT]:
        shutil.rmtree(path)


if __name__ == "__main__":
    print(built())
