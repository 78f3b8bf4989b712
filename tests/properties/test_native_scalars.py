"""The native kernels for numbers do what their clear twins do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data import _native
from aiostream_data._native import scalar_map_py, unbox_py

INTS = st.integers(-(2**63), 2**63 - 1)
ANYTHING = st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.none(), st.text(max_size=2))


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())


@given(st.one_of(st.lists(INTS), st.lists(st.floats()), st.lists(ANYTHING)))
def test_unboxing_agrees_with_the_twin(values: list[Any]) -> None:
    assert same(_native.unbox_ints(values), unbox_py.unbox_ints(values))
    assert same(_native.unbox_floats(values), unbox_py.unbox_floats(values))


@given(st.data(), st.booleans())
def test_mapping_numbers_agrees_with_the_twin(data: st.DataObject, floats: bool) -> None:
    given_values = data.draw(st.lists(st.floats() if floats else INTS, max_size=20))
    values = np.array(given_values, np.float64 if floats else np.int64)
    kind = data.draw(st.sampled_from([INTS, st.floats(), ANYTHING]))
    results = data.draw(st.lists(kind, min_size=len(values), max_size=len(values)))
    native_row, twin_row = np.zeros(1, np.int64), np.zeros(1, np.int64)
    calls: list[tuple[type, Any]] = []

    def function(value: Any) -> Any:
        calls.append((type(value), repr(value)))
        return results[(len(calls) - 1) % max(1, len(results))]

    native, done, odd = _native.map_scalars(function, values, native_row)
    seen, calls = calls, []
    twin, twin_done, twin_odd = scalar_map_py.map_scalars(function, values, twin_row)
    assert (seen, done, repr(odd), native_row[0]) == (calls, twin_done, repr(twin_odd), twin_row[0])
    assert same(native[:done], twin[:done])


def test_the_row_of_a_call_that_raises_is_known() -> None:
    row = np.zeros(1, np.int64)
    with pytest.raises(ZeroDivisionError):
        _native.map_scalars(lambda value: 1 // (value - 3), np.arange(9), row)
    assert row[0] == 3


def test_values_of_another_dtype_are_refused() -> None:
    with pytest.raises(TypeError, match="int32"):
        _native.map_scalars(abs, np.arange(3, dtype=np.int32), np.zeros(1, np.int64))


def test_values_with_gaps_between_them_are_read_where_they_are() -> None:
    values = np.arange(10)[::2]
    results, done, _ = _native.map_scalars(lambda value: value * 2, values, np.zeros(1, np.int64))
    assert (done, results.tolist()) == (5, [0, 4, 8, 12, 16])
