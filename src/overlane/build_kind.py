"""Which of the two builds of Overlane runs: pure Python, or with compiled modules (hatch_build.py).

The import system is asked, since it decides: modules compiled for another Python are not loaded.
"""

from importlib.machinery import SOURCE_SUFFIXES, PathFinder
from pathlib import Path

from overlane import __version__

PACKAGE, MODULE = "mqtt", "fast_path"
"""A module that every compiled build has compiled."""


def is_compiled() -> bool:
    spec = PathFinder.find_spec(MODULE, [str(Path(__file__).parent / PACKAGE)])
    return spec is not None and spec.origin is not None and not spec.origin.endswith(tuple(SOURCE_SUFFIXES))


def version_text() -> str:
    return f"{__version__} ({'compiled' if is_compiled() else 'pure Python'})"
