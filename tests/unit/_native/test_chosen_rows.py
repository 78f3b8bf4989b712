"""Chosen rows are described alike by the kernels and their twins, and a row that does not exist raises."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data import _native
from aiostream_data._native import ordering_py

try:
    from aiostream_data._native import ordering
except ImportError:  # no C compiler: the twin alone is there
    KERNELS: list[ModuleType] = [ordering_py]
else:
    KERNELS = [ordering_py, ordering]

CHOICES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=40)


@pytest.fixture(params=KERNELS, ids=lambda module: module.__name__.rpartition(".")[2])
def kernel(request: pytest.FixtureRequest) -> Any:
    return request.param


def numbers_of(*values: int) -> Any:
    return np.array(values, np.int32)


def rows_of(*values: int) -> Any:
    return np.array(values, np.int64)


def test_a_run_breaks_where_the_chunk_changes_or_a_row_is_left_out(kernel: Any) -> None:
    which, rows = numbers_of(0, 0, 1, 1, 1, 1), rows_of(4, 5, 6, 7, 9, 8)
    assert kernel.first_breaks(which, rows, 9) == [2, 4, 5]
    assert kernel.first_breaks(which, rows, 2) == [2, 4]
    assert kernel.first_breaks(which, rows, 0) == []
    assert kernel.first_breaks(which[:2], rows[:2], 9) == []
    assert kernel.first_breaks(which[:0], rows[:0], 9) == []


def test_every_second_row_of_an_array_is_read_in_place(kernel: Any) -> None:
    assert kernel.first_breaks(numbers_of(0, 5, 0, 5)[::2], rows_of(1, 5, 2, 5)[::2], 9) == []
    assert kernel.distinct(numbers_of(2, 0, 2, 0)[::2], 3) == [2]


def test_distinct_numbers_are_ascending(kernel: Any) -> None:
    assert kernel.distinct(numbers_of(3, 0, 3, 1, 0), 4) == [0, 1, 3]
    assert kernel.distinct(numbers_of(), 4) == []


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_number_outside_the_table_raises(kernel: Any, wrong: int) -> None:
    with pytest.raises(IndexError, match="outside 0 to 2"):
        kernel.distinct(numbers_of(0, wrong), 3)
    with pytest.raises(IndexError, match="outside 0 to 2"):
        kernel.renumbered(numbers_of(0, wrong), numbers_of(7, 8, 9))


def test_numbers_are_looked_up(kernel: Any) -> None:
    found = kernel.renumbered(numbers_of(2, 0, 2), numbers_of(7, 8, 9))
    assert (found.tolist(), found.dtype) == ([9, 7, 9], np.int32)


def test_ids_of_runs_count_where_the_run_counts(kernel: Any) -> None:
    firsts, steps = np.array([[5, 100], [6, 7]]), np.array([[0, 1], [0, 0]])
    ids = kernel.ids_of_runs(firsts, steps, rows_of(10, 2), numbers_of(0, 1, 0), rows_of(3, 1, 9))
    assert (ids.tolist(), ids.dtype) == ([[5, 103], [6, 7], [5, 109]], np.int64)


@pytest.mark.parametrize(("run", "row"), [(0, 10), (1, 2), (0, -1), (2, 0), (-1, 0), (0, 2**62)])
def test_a_row_outside_its_run_raises(kernel: Any, run: int, row: int) -> None:
    firsts, steps = np.array([[5, 100], [6, 7]]), np.array([[0, 1], [0, 0]])
    with pytest.raises(IndexError):
        kernel.ids_of_runs(firsts, steps, rows_of(10, 2), numbers_of(0, run), rows_of(0, row))


def test_arrays_of_unequal_length_raise(kernel: Any) -> None:
    firsts = np.array([[5, 100]])
    with pytest.raises(ValueError, match="2 numbers of chunks and 1 of rows"):
        kernel.first_breaks(numbers_of(0, 0), rows_of(0), 1)
    with pytest.raises(ValueError, match="1 numbers of chunks and 2 of rows"):
        kernel.ids_of_runs(firsts, firsts, rows_of(1), numbers_of(0), rows_of(0, 0))
    for steps, counts in ((firsts[:, :1], rows_of(1)), (firsts, rows_of(1, 1)), (firsts[:0], rows_of(1))):
        with pytest.raises(ValueError, match="differ in length"):
            kernel.ids_of_runs(firsts, steps, counts, numbers_of(), rows_of())


@given(CHOICES, st.integers(0, 5))
def test_the_kernels_agree_with_their_twins(choices: list[tuple[int, int]], most: int) -> None:
    which, rows = numbers_of(*(number for number, _ in choices)), rows_of(*(row for _, row in choices))
    firsts, steps, counts = np.arange(16).reshape(4, 4), np.tile([0, 1, 0, 1], (4, 1)), np.full(4, 7)
    table = numbers_of(4, 3, 3, 9)
    assert _native.first_breaks(which, rows, most) == ordering_py.first_breaks(which, rows, most)
    assert _native.distinct(which, 4) == ordering_py.distinct(which, 4)
    assert np.array_equal(_native.renumbered(which, table), ordering_py.renumbered(which, table))
    ids = [module.ids_of_runs(firsts, steps, counts, which, rows) for module in (_native, ordering_py)]
    assert np.array_equal(*ids)
