"""Builds the wheel: pure Python, or with some modules compiled by mypyc.

    pip wheel .                        a wheel for every Python and machine
    OVERLANE_COMPILE=1 pip wheel .     a wheel for this Python and machine; needs a C compiler and Python's headers

`compiled` in pyproject.toml lists the modules, and says how they were chosen. Both wheels have all modules as source:
where the compiled form does not fit, as with another Python, the source is what runs.

The sources are copied and compiled in a folder of their own. What a build left among the sources of a checkout would
run there instead of them from then on.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "OVERLANE_COMPILE"
OFF = ("", "0")
REQUIRES = ["mypy>=2.4", "setuptools>=65"]
"""mypy: earlier ones cannot compile dataclasses with slots."""
GROUP = "overlane"
"""Of the compiled modules: all in one shared library, so that they call each other directly."""
OPTIMISATION = "1"
"""At 3 the compiler takes several times as long."""

GUARD = """\
#include <Python.h>
#define PyBytes_FromStringAndSize(data, size) PyBytes_FromStringAndSize((data), Py_MAX(0, (size)))
#define PyByteArray_FromStringAndSize(data, size) PyByteArray_FromStringAndSize((data), Py_MAX(0, (size)))
"""
"""Read ahead of all that mypyc makes. Its bytes[start:end] raises SystemError where the end is before the start (mypy
2.4, CPyBytes_GetSlice); it is to be empty, as in Python: what neighbours and clients send leads to such slices."""


def is_wanted() -> bool:
    return os.environ.get(SWITCH, "") not in OFF


class CompileHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"
    _directory: Path | None = None

    def dependencies(self) -> list[str]:
        # Types of libraries are part of the code that is made.
        return [*REQUIRES, *self.metadata.core.dependencies] if is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not is_wanted():
            return
        if version == "editable":
            self.app.display_warning(f"{SWITCH}: an editable installation runs its sources; nothing is compiled")
            return
        self._directory = Path(mkdtemp(prefix="overlane-compile-"))
        for library in compile_modules(Path(self.root) / "src", self._directory, self.config["compiled"]):
            build_data["force_include"][str(library)] = str(library.relative_to(self._directory / "src"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if self._directory is not None:
            shutil.rmtree(self._directory)


def compile_modules(source: Path, directory: Path, modules: Sequence[str]) -> list[Path]:
    """Copy the sources into the directory, compile there, and tell what libraries were made."""
    copy = directory / "src"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd"))
    files = [f"overlane/{module}.py" for module in modules]
    # setuptools takes a project file beside it for its own, and mypy the configuration: there is none.
    done = subprocess.run(
        [sys.executable, __file__, str(directory / "made"), *files],
        cwd=copy,
        env={**os.environ, "MYPYPATH": str(copy)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"mypyc or the C compiler failed:\n{done.stdout}")
    return sorted(path for path in copy.rglob("*") if path.suffix in (".so", ".pyd"))


def _compile(made: str, files: Sequence[str]) -> None:
    from mypyc.build import mypycify
    from setuptools import setup

    guard = Path(made) / "guard.h"
    guard.parent.mkdir()
    guard.write_text(GUARD)
    mypy_options = ["--config-file=", "--ignore-missing-imports", f"--cache-dir={made}/mypy"]
    extensions = mypycify(
        [*mypy_options, *files], opt_level=OPTIMISATION, debug_level="0", target_dir=made, group_name=GROUP
    )
    for extension in extensions:
        extension.extra_compile_args += ["-include", str(guard)]
    setup(name="overlane", packages=[], ext_modules=extensions, script_args=["build_ext", "--inplace", "-b", made])


if __name__ == "__main__":
    _compile(sys.argv[1], sys.argv[2:])
