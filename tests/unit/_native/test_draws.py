"""Bounded draws: the native kernel against its twin, and what both refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native import draws_py

WordsBelow = Callable[[int, int, int], NDArray[np.int64]]


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**32), st.integers(0, 700))
def test_native_and_twin_draw_the_same(start: int, bound: int, count: int) -> None:
    drawn = _native.words_below(start, bound, count)
    assert drawn.dtype == np.int64
    assert drawn.tolist() == draws_py.words_below(start, bound, count).tolist()


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**32))
def test_draws_are_the_high_part_of_the_product_with_the_bound(start: int, bound: int) -> None:
    words = draws_py.words(start, 50).tolist()
    assert _native.words_below(start, bound, 50).tolist() == [word * bound >> 64 for word in words]


@pytest.mark.parametrize("words_below", [_native.words_below, draws_py.words_below])
@pytest.mark.parametrize(("bound", "count"), [(0, 1), (-1, 1), (2**32 + 1, 1), (5, -1)])
def test_a_bound_or_count_out_of_range_is_refused(words_below: WordsBelow, bound: int, count: int) -> None:
    with pytest.raises(ValueError, match="draws below"):
        words_below(0, bound, count)
