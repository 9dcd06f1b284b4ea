"""Packing: many numbers in one value of a row, as eight bytes each.

To Spark a list of numbers is so many numbers, which it takes up and puts down one by one; bytes it passes on as they
are. Where only functions in Python read a column, numbers are packed into bytes: little-endian doubles, one after the
other. `numpy.frombuffer(value)` has them again.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DOUBLE_BYTES = 8


def packed(values: Floats) -> Any:
    """A column of bytes with a row of numbers in each."""
    rows, length = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * (length * DOUBLE_BYTES)
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), content])


def unpacked(column: Any) -> Floats:
    """The rows of numbers of a column of bytes, all of one length, where they lie."""
    rows = len(column)
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + rows + 1]
    content = np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return content.view(np.float64).reshape(rows, -1)


def unpacked_row(value: Any) -> Floats:
    """The numbers of one row."""
    return np.frombuffer(value.as_buffer(), np.float64)
