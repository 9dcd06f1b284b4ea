"""Arrow without pandas.

Before Arrow converts lists it checks whether they are pandas objects, and imports pandas for that if it is installed.
This would take a broker a quarter of a second shortly after its start, and 50 MB of memory. So the import is blocked.
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
