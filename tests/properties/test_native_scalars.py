"""The native kernels for numbers do what their clear twins do."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data import _native
from aiostream_data._native import elements_py, scalar_map_py, unbox_py
from aiostream_data.rows.object_nbytes import object_nbytes

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


@given(
    st.lists(st.one_of(ANYTHING, st.binary(max_size=9), st.lists(st.integers(), max_size=2)), max_size=20),
    st.integers(0, 25),
    st.integers(0, 200),
    st.booleans(),
    st.booleans(),
)
def test_pulling_elements_agrees_with_the_twin(
    values: list[Any], count: int, nbytes: int, fails: bool, is_late: bool
) -> None:
    def iterator() -> Iterator[Any]:
        yield from values
        if fails:
            raise LookupError("the source has failed")

    def pulled(pull: Any) -> tuple[list[Any], Any, list[Any]]:
        elements: list[Any] = ["before"]
        source, until_s = iterator(), -inf if is_late else inf
        try:
            ended = pull(source, elements, count, nbytes, until_s, object_nbytes)
        except LookupError as error:
            ended = str(error)
        return elements, ended, [] if fails else list(source)

    assert pulled(_native.pull_elements) == pulled(elements_py.pull_elements)


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

    native, done, odd, _ = _native.scalar_results(function, values, native_row)
    seen, calls = calls, []
    twin, twin_done, twin_odd, _ = scalar_map_py.scalar_results(function, values, twin_row)
    assert (seen, done, repr(odd), native_row[0]) == (calls, twin_done, repr(twin_odd), twin_row[0])
    assert same(native[:done], twin[:done])


@pytest.mark.parametrize("kind", [_native, scalar_map_py])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_results_before_a_call_that_raises_are_returned_with_the_error(kind: Any, dtype: Any) -> None:
    row = np.zeros(1, np.int64)
    results, done, odd, error = kind.scalar_results(lambda value: 6 // (3 - value), np.arange(9, dtype=dtype), row)
    assert (done, row[0], odd, type(error)) == (3, 3, None, ZeroDivisionError)
    assert results[:done].tolist() == [2, 3, 6]


def test_values_of_another_dtype_are_refused() -> None:
    with pytest.raises(TypeError, match="int32"):
        _native.scalar_results(abs, np.arange(3, dtype=np.int32), np.zeros(1, np.int64))


def test_values_with_gaps_between_them_are_read_where_they_are() -> None:
    values = np.arange(10)[::2]
    results, done, _, _ = _native.scalar_results(lambda value: value * 2, values, np.zeros(1, np.int64))
    assert (done, results.tolist()) == (5, [0, 4, 8, 12, 16])
