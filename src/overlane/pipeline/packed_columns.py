"""Packed columns: many numbers in one binary value, eight bytes each.

Spark converts a list of numbers element by element, but passes bytes on unchanged. Where only Python functions read a
column, numbers are packed into bytes: little-endian doubles. `numpy.frombuffer(value)` unpacks them.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DOUBLE_BYTES = 8


def packed(values: Floats) -> Any:
    """A binary column, one row of numbers per value."""
    rows, length = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * (length * DOUBLE_BYTES)
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), content])


def unpacked(column: Any) -> Floats:
    """The numbers of a binary column without copying; all rows have the same length."""
    rows = len(column)
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + rows + 1]
    content = np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return content.view(np.float64).reshape(rows, -1)


def unpacked_row(value: Any) -> Floats:
    """The numbers of one row."""
    return np.frombuffer(value.as_buffer(), np.float64)
