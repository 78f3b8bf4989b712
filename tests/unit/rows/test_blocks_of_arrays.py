"""Small arrays, and the arrays of several columns, are copied to one block of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data.rows import lent_memory
from aiostream_data.rows.lent_memory import LINE_NBYTES, copied_to_one_block, joined_in_one_block


@pytest.mark.parametrize("least", [0, 1 << 20])
def test_copies_are_equal_aligned_and_independent(monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    monkeypatch.setattr(lent_memory, "LARGE_BLOCK_NBYTES", least)
    pool = BlockPool(1 << 20)
    arrays: list[Any] = [
        np.arange(3, dtype="u1"),
        np.arange(10.0).reshape(5, 2),
        np.zeros((0, 4)),
        np.arange(9, dtype="i2"),
    ]
    copies = copied_to_one_block(arrays, pool)
    for copy, array in zip(copies, arrays, strict=True):
        np.testing.assert_array_equal(copy, array)
        assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
        assert copy.ctypes.data % LINE_NBYTES == copies[0].ctypes.data % LINE_NBYTES
        copy[...] = 0
    assert arrays[0].tolist() == [0, 1, 2]


def test_a_block_returns_to_the_pool_after_its_last_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent_memory, "LARGE_BLOCK_NBYTES", 0)
    pool = BlockPool(1 << 20)
    first, second = copied_to_one_block([np.arange(5), np.arange(7)], pool)
    del first
    assert not pool.idle_nbytes
    del second
    assert pool.idle_nbytes


@pytest.mark.parametrize("least", [0, 1 << 20])
def test_arrays_of_a_column_are_concatenated(monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    monkeypatch.setattr(lent_memory, "LARGE_BLOCK_NBYTES", least)
    columns: list[list[Any]] = [
        [np.arange(3, dtype="i2"), np.arange(0, dtype="i2"), np.arange(4, dtype="i2")],
        [np.arange(6.0).reshape(3, 2), np.zeros((0, 2)), np.ones((4, 2))],
        [np.zeros((3, 0)), np.zeros((0, 0)), np.zeros((4, 0))],
        [np.array([], "M8[s]")],
    ]
    for found, arrays in zip(joined_in_one_block(columns, BlockPool(1 << 20)), columns, strict=True):
        np.testing.assert_array_equal(found, np.concatenate(arrays))
        assert (found.dtype, found.shape) == (arrays[0].dtype, np.concatenate(arrays).shape)
    assert joined_in_one_block([], None) == []


def test_without_a_pool_the_block_is_new() -> None:
    assert copied_to_one_block([np.arange(5)], None)[0].tolist() == [0, 1, 2, 3, 4]
