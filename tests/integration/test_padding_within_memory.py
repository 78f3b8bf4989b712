"""Tests that padding is compared with the memory limit, and that it needs no more memory than its result."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data import BytesArray, Dataset, MemoryBudgetError, RaggedArray
from aiostream_data.transforms.filling import pad_arrays

LIMIT = "16MB"
LONG = 8 << 20


def _bytes(number: int) -> bytes:
    return b"x" * (LONG if number == 5 else 1)


def _array(number: int) -> Any:
    return np.ones(LONG if number == 5 else 1, np.uint8)


def _rows(make: Callable[[int], Any]) -> Dataset[Any]:
    return Dataset.range(10).map(make)


TOO_LARGE: dict[str, Callable[[], Dataset[Any]]] = {
    "bytes": lambda: _rows(_bytes).batch(10, strings="padded"),
    "text": lambda: _rows(lambda n: _bytes(n).decode()).batch(10, strings="padded"),
    "a dict": lambda: _rows(lambda n: {"a": _bytes(n), "n": n}).batch(7, strings="padded"),
    "rebatch": lambda: _rows(_bytes).batch(2).rebatch(10, strings="padded"),
    "objects": lambda: _rows(lambda n: {"a": _bytes(n), "z": object}).batch(10, strings="padded"),
    "padded_batch": lambda: _rows(_array).padded_batch(10),
    "two axes": lambda: _rows(lambda n: _array(n)[None]).padded_batch(10),
    "several leaves": lambda: _rows(lambda n: {"a": _array(n)[: LONG // 8], "b": _array(n)[: LONG // 8]}).padded_batch(
        10
    ),
    "padded_shapes": lambda: _rows(lambda n: np.ones(n)).padded_batch(2, padded_shapes=[10**12]),
    "a bucket": lambda: _rows(_array).bucket_by_sequence_length(len, [], [10]),
    "a bucket's boundary": lambda: _rows(lambda n: np.ones(n)).bucket_by_sequence_length(
        len, [10**12], [10, 10], pad_to_bucket_boundary=True, padded_shapes=[None]
    ),
    "max_cost": lambda: _rows(_array).batch(max_cost=10**12, cost=len),
    "pack": lambda: _rows(lambda n: np.ones(n)).pack(10**12),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_padding_beyond_the_memory_limit_is_refused_before_the_allocation(name: str) -> None:
    with (
        pytest.raises(MemoryBudgetError, match="would take") as raised,
        TOO_LARGE[name]().open(memory_limit=LIMIT) as rows,
    ):
        list(rows)
    assert "memory limit of 16777216 bytes" in str(raised.value)


def test_the_error_names_the_longest_row_and_the_remedies() -> None:
    with pytest.raises(MemoryBudgetError) as raised, TOO_LARGE["bytes"]().open(memory_limit=LIMIT) as rows:
        list(rows)
    assert str(raised.value).split("\n")[0] == (
        "cannot pad leaf 'element' to the shape (10, 8388608), the length of range record 5: the padded element would "
        "take 83886080 bytes, more than the memory limit of 16777216 bytes. Use smaller batches, "
        "bucket_by_sequence_length() or strings='ragged', or shorten the row in map(). Or open the dataset with a "
        "larger memory_limit."
    )


def test_batches_before_the_refused_batch_are_delivered() -> None:
    with _rows(_bytes).batch(3, strings="padded").open(memory_limit=LIMIT) as rows:
        assert next(rows).shape == (3, 1)
        with pytest.raises(MemoryBudgetError):
            next(rows)


def test_padding_within_the_memory_limit_is_unchanged() -> None:
    with _rows(_bytes).batch(2, strings="padded").open(memory_limit="64MB") as rows:
        assert [batch.shape for batch in rows] == [(2, 1), (2, 1), (2, LONG), (2, 1), (2, 1)]


@pytest.mark.parametrize("width", [3, 2000, 1 << 20])
def test_to_padded_needs_little_more_memory_than_its_result(width: int) -> None:
    lengths = np.full(max(10, (4 << 20) // width), 1)
    lengths[3] = width
    rows = RaggedArray(np.arange(lengths.sum()), np.concatenate([[0], np.cumsum(lengths)]))
    tracemalloc.start()
    padded = rows.to_padded(7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.4 * padded.nbytes + rows.nbytes
    assert padded[3].tolist() == rows[3].tolist()
    assert padded[4].tolist() == [rows[4][0], *[7] * (width - 1)]


def test_long_arrays_are_padded_without_an_array_of_padding() -> None:
    arrays = [np.ones(1 << 20), np.ones(2)]
    tracemalloc.start()
    padded = pad_arrays(arrays, 1 << 20, 7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.1 * padded.nbytes
    assert padded[1, :3].tolist() == [1, 1, 7]


def test_to_padded_keeps_rows_of_bytes() -> None:
    assert BytesArray.from_list([b"ab", b"", b"c"]).to_padded().tolist() == [[97, 98], [0, 0], [99, 0]]
