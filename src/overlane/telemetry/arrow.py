"""Arrow by itself.

Before Arrow makes columns of lists it asks pandas whether they are its own, and loads it for that, once and where it is
installed. That takes a broker a quarter of a second, soon after it has started to serve, and 50 MB for good: to be told
no. So it is told beforehand that there is no pandas.
"""

import sys
from collections.abc import Sequence
from types import ModuleType

import pyarrow as pa


class _NoPandas:
    """Finds no pandas, and leaves all else to those who come after it."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def stay_without_pandas() -> None:
    """For the life of the process, unless pandas has been loaded already. Not where somebody wants frames of Arrow."""
    if "pandas" not in sys.modules:
        finder = _NoPandas()
        sys.meta_path.insert(0, finder)
        try:
            pa.array([])
        finally:
            sys.meta_path.remove(finder)
