from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.device.backend import ALIGNMENT
from aiostream_data.device.layout import fill, place, take_apart, views
from aiostream_data.errors import DeviceLeafError
from aiostream_data.rows.ragged import RaggedArray

DTYPES = ["bool", "int8", "uint16", "int32", "float16", "float64", "complex64", "complex128"]

specs = st.lists(
    st.tuples(st.lists(st.integers(0, 5), max_size=3).map(tuple), st.sampled_from(DTYPES).map(np.dtype)), max_size=8
)


class Pair(NamedTuple):
    left: Any
    right: Any


def through_a_slot(batch: Any) -> Any:
    parts = take_apart(batch, "cuda:0", keeps_objects=False)
    block = np.full(parts.layout.nbytes, 0xA5, np.uint8)
    arrays = views(block, parts.layout)
    fill(arrays, parts.sources)
    return parts.layout.rebuild([array.copy() for array in arrays], parts.kept)


@given(specs)
def test_arrays_are_aligned_do_not_overlap_and_end_within_the_slot(
    specs: list[tuple[tuple[int, ...], np.dtype[Any]]],
) -> None:
    placed, nbytes = place([(f"leaf{i}", shape, dtype) for i, (shape, dtype) in enumerate(specs)])
    end = 0
    for array, (shape, dtype) in zip(placed, specs, strict=True):
        assert array.offset % ALIGNMENT == 0
        assert array.offset >= end
        assert array.nbytes == np.empty(shape, dtype).nbytes
        end = array.offset + array.nbytes
    assert nbytes == max(end, 1)


def test_a_nested_batch_comes_out_of_a_slot_as_it_went_in() -> None:
    batch = {
        "image": np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[:, ::-1],
        "pair": Pair(np.array([1.5, np.nan], np.float32), (np.zeros((0, 3)), np.array([True, False]))),
        "words": RaggedArray(np.arange(5), np.array([0, 2, 5])),
    }
    found = through_a_slot(batch)
    assert isinstance(found["pair"], Pair)
    np.testing.assert_array_equal(found["image"], batch["image"])
    np.testing.assert_array_equal(found["pair"].left, np.array([1.5, np.nan], np.float32))
    assert found["pair"].right[0].shape == (0, 3)
    assert found["pair"].right[1].dtype == bool
    assert [row.tolist() for row in found["words"]] == [[0, 1], [2, 3, 4]]


def test_numbers_become_arrays_without_dimensions() -> None:
    found = through_a_slot((3, 2.5, True, np.float32(1)))
    assert [leaf.shape for leaf in found] == [(), (), (), ()]
    assert [leaf.dtype for leaf in found] == [np.int64, np.float64, np.bool_, np.float32]
    assert [leaf.item() for leaf in found] == [3, 2.5, True, 1.0]


NO_NUMBERS: list[Callable[[], Any]] = [
    lambda: b"bytes",
    lambda: "text",
    lambda: None,
    lambda: 1 << 70,
    lambda: np.array(["a", 1], object),
    lambda: np.array([b"ab"]),
    lambda: np.array(["2024-01-01"], "datetime64[D]"),
    lambda: np.zeros(2, ">i4"),
    lambda: np.zeros(2, np.longdouble),
    lambda: np.zeros(2, [("x", "i4")]),
    lambda: RaggedArray(np.array([b"ab"], object), np.array([0, 1])),
]


@pytest.mark.parametrize("make", NO_NUMBERS)
def test_a_leaf_that_is_no_number_is_refused_by_name_where_it_cannot_stay(make: Callable[[], Any]) -> None:
    with pytest.raises(DeviceLeafError, match=r"leaf 'box\.name' is .*which cuda:0 does not support") as caught:
        take_apart({"x": np.zeros(1), "box": {"name": make()}}, "cuda:0", keeps_objects=False)
    assert caught.value.leaf == "box.name"


@pytest.mark.parametrize("make", NO_NUMBERS)
def test_a_leaf_that_is_no_number_stays_itself_on_the_host(make: Callable[[], Any]) -> None:
    value = make()
    parts = take_apart({"first": value, "x": np.ones(2)}, "cpu", keeps_objects=True)
    assert len(parts.layout.arrays) == 1
    rebuilt = parts.layout.rebuild(parts.sources, parts.kept)
    assert rebuilt["first"] is value
    assert rebuilt["x"] is parts.sources[0]


def test_filling_never_converts() -> None:
    with pytest.raises(TypeError):
        fill([np.zeros(2, np.int32)], [np.zeros(2, np.int64)])
