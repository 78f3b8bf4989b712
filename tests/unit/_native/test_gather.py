"""Rows are gathered exactly, and a bad index raises before anything is touched."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from aiostream_data._native import gather_py

try:
    from aiostream_data._native import gather
except ImportError:  # no C compiler: the twin alone is there
    KERNELS: list[ModuleType] = [gather_py]
else:
    KERNELS = [gather_py, gather]

WRONG = [-1, 4, 2**62, -(2**63)]


@pytest.fixture(params=KERNELS, ids=lambda module: module.__name__.rpartition(".")[2])
def kernel(request: pytest.FixtureRequest) -> Any:
    return request.param


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def zeros(count: int) -> Any:
    return np.zeros(count, np.int32)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("dtype", ["u1", "i8", "O"])
def test_an_index_outside_the_array_raises(kernel: Any, wrong: int, dtype: str) -> None:
    source = np.zeros(4, dtype)
    with pytest.raises(IndexError):
        kernel.take_rows(source, ints(0, wrong))
    with pytest.raises(IndexError):
        kernel.take_rows_many([source, source], zeros(2), ints(0, wrong))
    with pytest.raises(IndexError):
        kernel.exchange_rows(source, ints(0, wrong), source[:2].copy())


@pytest.mark.parametrize("which", [-1, 2, -(2**31)])
def test_an_array_that_does_not_exist_raises(kernel: Any, which: int) -> None:
    source = np.zeros(4)
    with pytest.raises(IndexError):
        kernel.take_rows_many([source, source], np.array([which], np.int32), ints(0))
    with pytest.raises(IndexError):
        kernel.compact_many([source, source], np.array([which], np.int32), ints(0), ints(1))


@pytest.mark.parametrize(
    ("start", "length"), [(-1, 1), (0, -1), (0, 5), (4, 1), (5, 0), (2**63 - 1, 1), (1, 2**63 - 1), (-(2**63), 2**62)]
)
def test_a_span_outside_the_values_raises(kernel: Any, start: int, length: int) -> None:
    with pytest.raises(IndexError):
        kernel.compact(np.zeros(4, np.uint8), ints(0, start), ints(1, length))


def test_a_failed_exchange_leaves_the_buffer_as_it_was(kernel: Any) -> None:
    buffer = np.arange(4)
    with pytest.raises(IndexError):
        kernel.exchange_rows(buffer, ints(0, 1, 9), ints(7, 7, 7))
    assert buffer.tolist() == [0, 1, 2, 3]


def test_a_slot_drawn_twice_gives_out_the_row_that_just_came_in(kernel: Any) -> None:
    buffer = ints(10, 20)
    assert kernel.exchange_rows(buffer, ints(1, 1, 0), ints(1, 2, 3)).tolist() == [20, 1, 10]
    assert buffer.tolist() == [3, 2]


def test_rows_that_come_from_the_buffer_itself_are_read_before_it_changes(kernel: Any) -> None:
    buffer = ints(1, 2, 3)
    assert kernel.exchange_rows(buffer, ints(2, 1, 0), buffer).tolist() == [3, 2, 1]
    assert buffer.tolist() == [3, 2, 1]


def test_a_read_only_buffer_is_refused(kernel: Any) -> None:
    buffer = np.zeros(3)
    buffer.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernel.exchange_rows(buffer, ints(0), np.ones(1))


@pytest.mark.parametrize("other", [np.zeros(3, np.int32), np.zeros((3, 2)), np.array(1.0)])
def test_arrays_of_other_rows_are_refused(kernel: Any, other: Any) -> None:
    source = np.zeros(3)
    with pytest.raises(ValueError):
        kernel.take_rows_many([source, other], zeros(1), ints(0))
    with pytest.raises(ValueError):
        kernel.compact_many([source, other], zeros(1), ints(0), ints(1))
    with pytest.raises(ValueError):
        kernel.exchange_rows(source, ints(0), other)


def test_index_vectors_of_different_lengths_are_refused(kernel: Any) -> None:
    source = np.zeros(3)
    with pytest.raises(ValueError):
        kernel.take_rows_many([source], zeros(2), ints(0))
    with pytest.raises(ValueError):
        kernel.compact([source][0], ints(0, 0), ints(1))
    with pytest.raises(ValueError):
        kernel.exchange_rows(source, ints(0, 0), np.ones(1))


def test_no_arrays_at_all_are_refused(kernel: Any) -> None:
    with pytest.raises(ValueError):
        kernel.take_rows_many([], zeros(0), ints())


def test_references_are_counted() -> None:
    for module in KERNELS:
        marker = object()
        source = np.array([marker, None], object)
        before = sys.getrefcount(marker)
        taken = module.take_rows(source, ints(0, 0, 1))
        assert sys.getrefcount(marker) == before + 2
        buffer = np.array([None, None], object)
        module.exchange_rows(buffer, ints(0, 0), taken[:2])
        assert sys.getrefcount(marker) == before + 3
        del taken, buffer
        assert sys.getrefcount(marker) == before


def test_variable_strings_are_copied_as_objects_not_as_bytes(kernel: Any) -> None:
    source = np.array(["short", "a string that is much longer than sixteen bytes"], np.dtypes.StringDType())
    assert kernel.take_rows(source, ints(1, 0)).tolist() == [source[1], source[0]]


def test_the_native_kernels_refuse_index_dtypes_that_a_cast_would_hide() -> None:
    if len(KERNELS) == 1:
        pytest.skip("the native core is not built")
    with pytest.raises(TypeError, match="int64"):
        gather.take_rows(np.zeros(3), np.array([2**32 + 1], np.uint64))
    with pytest.raises(TypeError, match="int32"):
        gather.take_rows_many([np.zeros(3)], np.array([2**32]), ints(0))


def test_lengths_are_added_and_compared(kernel: Any) -> None:
    assert kernel.total_length(ints(3, 0, 4)) == 7
    assert kernel.total_length(ints()) == 0
    assert kernel.length_range(ints(3, 0, 4)) == (0, 4)
    assert kernel.length_range(ints(3, 9, 4)[::2]) == (3, 4)
    with pytest.raises(ValueError):
        kernel.length_range(ints())


def test_rows_are_packed_if_each_begins_where_the_one_before_ends(kernel: Any) -> None:
    assert kernel.are_packed(ints(5, 8, 8), ints(3, 0, 4))
    assert kernel.are_packed(ints(5), ints(3))
    assert kernel.are_packed(ints(), ints())
    assert not kernel.are_packed(ints(5, 9), ints(3, 1))
    assert not kernel.are_packed(ints(5, 0), ints(3, 5))
    with pytest.raises(ValueError, match="2 starts and 1 lengths"):
        kernel.are_packed(ints(5, 8), ints(3))


def test_rows_are_copied_to_the_memory_of_the_caller(kernel: Any) -> None:
    memory = np.zeros(20, np.uint8)
    sources = [np.arange(9, dtype=np.uint8), np.arange(100, 105, dtype=np.uint8)]
    which, starts, lengths = np.array([1, 0], np.int32), ints(1, 2), ints(3, 4)
    values, _ = kernel.compact_many(sources, which, starts, lengths, lambda shape, dtype: memory[: shape[0]])
    assert np.shares_memory(values, memory)
    assert memory[:8].tolist() == [101, 102, 103, 2, 3, 4, 5, 0]


def test_the_native_kernel_refuses_memory_of_another_size() -> None:
    for wrong in (np.empty(6, np.uint8), np.empty(14, np.uint8)[::2]):
        with pytest.raises(ValueError, match="new array"):
            gather.compact(np.arange(9, dtype=np.uint8), ints(0), ints(7), lambda *_, wrong=wrong: wrong)


def test_arrays_are_copied_together(kernel: Any) -> None:
    sources: list[Any] = [np.arange(5), np.zeros((0, 3)), np.ones((7, 2), "f4"), np.arange(200_000, dtype="u1")]
    targets = [np.zeros_like(source) for source in sources]
    kernel.copy_arrays(targets, sources)
    for target, source in zip(targets, sources, strict=True):
        np.testing.assert_array_equal(target, source)


def test_objects_are_copied_as_references(kernel: Any) -> None:
    value = object()
    source, target = np.array([value, None], object), np.zeros(2, object)
    before = sys.getrefcount(value)
    kernel.copy_arrays([target], [source])
    assert target[0] is value
    assert sys.getrefcount(value) == before + 1


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (np.zeros(3), np.zeros(4)),
        (np.zeros(3), np.zeros(3, "f4")),
        (np.zeros(6)[::2], np.zeros(3)),
        (np.zeros(3), np.zeros(6)[::2]),
        (np.frombuffer(bytes(24)), np.zeros(3)),
    ],
)
def test_arrays_that_do_not_fit_are_not_copied(kernel: Any, target: Any, source: Any) -> None:
    with pytest.raises(ValueError):
        kernel.copy_arrays([np.zeros(2), target], [np.ones(2), source])
    with pytest.raises(ValueError, match="go together"):
        kernel.copy_arrays([np.zeros(2)], [])
