"""Numbers in bytes, and back, also of a part of a column."""

import numpy as np
import pytest

from overlane.pipeline.packed_columns import packed, unpacked, unpacked_row

ROWS = np.array([[1.5, -2.0, np.inf], [0.0, 1e-300, 4.0], [7.0, 8.0, 9.0], [10.0, 11.0, 12.0]])


@pytest.mark.parametrize(("start", "end"), [(0, 4), (1, 4), (1, 3), (2, 2)])
def test_what_was_packed_is_unpacked(start: int, end: int) -> None:
    column = packed(ROWS).slice(start, end - start)
    for row, value in zip(ROWS[start:end], column, strict=True):
        assert unpacked_row(value).tolist() == np.frombuffer(value.as_py()).tolist() == row.tolist()
    if start < end:
        assert unpacked(column).tolist() == ROWS[start:end].tolist()


def test_rows_that_lie_apart_in_memory_are_packed_side_by_side() -> None:
    assert unpacked(packed(ROWS[:, ::2])).tolist() == ROWS[:, ::2].tolist()
