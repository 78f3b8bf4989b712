"""Bytes and text of a batch in one buffer: rows, slices, missing values, and conversions."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data import AiostreamError, BytesArray, Dataset, PlanError, RaggedArray, TextArray

texts = st.lists(st.none() | st.text(max_size=8), max_size=12)
binaries = st.lists(st.none() | st.binary(max_size=8), max_size=12)


@given(texts)
def test_text_comes_back_as_it_was(rows: list[str | None]) -> None:
    array = TextArray.from_list(rows)
    assert array.to_list() == list(array) == np.asarray(array).tolist() == rows
    assert [array[row] for row in range(len(array))] == rows
    assert (array.valid is None) == (None not in rows)
    assert TextArray(array.values, array.row_splits, array.valid).to_list() == rows


@given(binaries, st.integers(0, 12), st.integers(0, 12))
def test_a_slice_shares_the_values_and_has_the_rows_of_the_slice(
    rows: list[bytes | None], start: int, stop: int
) -> None:
    array = BytesArray.from_list(rows)
    part = array[start:stop]
    assert part.to_list() == rows[start:stop]
    assert part.row_splits[0] == 0
    assert not len(part.values) or np.shares_memory(part.values, array.values)
    assert pickle.loads(pickle.dumps(part)).to_list() == rows[start:stop]
    assert part.copy().to_list() == rows[start:stop]


def test_a_row_that_does_not_exist_is_an_index_error() -> None:
    array = BytesArray.from_list([b"a", b"b"])
    assert array[-1] == b"b"
    for row in (2, -3):
        with pytest.raises(IndexError, match=f"row {row} is out of range: the BytesArray has 2 rows"):
            array[row]


def test_bytes_become_a_ragged_or_a_padded_array() -> None:
    array = BytesArray.from_list([b"abc", b"", b"d"])
    ragged = array.as_ragged()
    assert isinstance(ragged, RaggedArray)
    assert ragged.to_list() == [[97, 98, 99], [], [100]]
    assert array.to_padded().tolist() == [[97, 98, 99], [0, 0, 0], [100, 0, 0]]
    assert array.row_lengths.tolist() == [3, 0, 1]


def test_nul_inside_text_is_kept() -> None:
    assert TextArray.from_list(["a\0b", "\0"]).to_list() == ["a\0b", "\0"]


def test_text_becomes_numpys_strings() -> None:
    strings = np.asarray(TextArray.from_list(["a", "ñandú"]), np.dtypes.StringDType())
    assert strings.tolist() == ["a", "ñandú"]
    assert strings.dtype == np.dtypes.StringDType()


@pytest.mark.parametrize("dtype", [np.int64, "U3", "S3"])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match="cannot convert a TextArray to dtype"):
        np.asarray(TextArray.from_list(["a"]), dtype)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(TextArray.from_list(["a"]), copy=False)


VALUES = np.frombuffer("añb".encode(), np.uint8)


@pytest.mark.parametrize(
    ("values", "splits", "valid", "message"),
    [
        (VALUES, [0, 2, 1], None, "row_splits must ascend"),
        (VALUES, [-1, 2], None, "row_splits must ascend"),
        (VALUES, [0, 5], None, "at most 4"),
        (VALUES, [], None, "one entry or more"),
        (VALUES.astype(np.int32), [0, 1], None, "values must be uint8"),
        (VALUES.reshape(2, 2), [0, 1], None, "values must be uint8 with one axis"),
        (VALUES, [0, 1], [1], "valid must be a NumPy array of bool"),
        (VALUES, [0, 1], [True, False], r"valid has shape \(2,\), but there are 1 rows"),
        (VALUES, [0, 2, 4], None, "row 0 is not valid UTF-8"),
        (VALUES, [0, 0, 2, 4], None, "row 1 is not valid UTF-8"),
        (np.array([97, 255], np.uint8), [0, 1, 2], None, "row 1 is not valid UTF-8"),
    ],
)
def test_invalid_arrays_are_refused(values: Any, splits: list[int], valid: Any, message: str) -> None:
    with pytest.raises(AiostreamError, match=message):
        TextArray(values, np.array(splits, np.int64), valid if valid is None else np.array(valid))


def test_values_outside_of_the_rows_need_not_be_utf8() -> None:
    values = np.array([255, 97, 98, 255], np.uint8)
    assert TextArray(values, np.array([1, 2, 3])).to_list() == ["a", "b"]


@pytest.mark.parametrize(
    ("kind", "row", "message"), [(BytesArray, "a", "bytes or None, got str"), (TextArray, 1, "str")]
)
def test_rows_of_another_type_are_refused(kind: Any, row: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"row 1 of a {kind.__name__} must be {message}"):
        kind.from_list([None, row])


def test_rows_without_a_value_are_empty_in_a_column_whatever_lies_under_them() -> None:
    array = BytesArray(np.frombuffer(b"abcd", np.uint8), np.array([0, 2, 4]), np.array([False, True]))
    assert array.to_list() == [None, b"cd"]
    assert array.column().lengths.tolist() == [0, 2]


UNDER_MISSING = (np.frombuffer(b"a\xff\xffb", np.uint8), np.array([0, 1, 3, 4]), np.array([True, False, True]))
"""Arguments of an array with bytes under a missing row. These bytes are not UTF-8."""


def test_bytes_under_a_missing_text_need_not_be_utf8() -> None:
    text = TextArray(*UNDER_MISSING)
    assert text.to_list() == ["a", None, "b"]
    assert text[1:].to_list() == [None, "b"]
    with pytest.raises(PlanError, match="row 1 is not valid UTF-8"):
        TextArray(*UNDER_MISSING[:2])


@pytest.mark.parametrize("kind", [TextArray, BytesArray])
def test_bytes_under_a_missing_row_are_in_no_other_form(kind: Any) -> None:
    rows = kind(*UNDER_MISSING)
    assert rows.as_ragged().to_list() == [[97], [], [98]]
    assert rows.to_padded().tolist() == [[97], [0], [98]]
    assert rows[1:].as_ragged().to_list() == [[], [98]]
    assert rows.to_padded(7).tolist() == [[97], [7], [98]]


def test_a_batch_of_batches_refers_to_their_columns() -> None:
    words = TextArray.from_list(["a", None, "ccc", "d", "e"])
    twice = Dataset.from_tensor_slices(words).batch(2, strings="columns").batch(2)
    assert [[column.to_list() for column in batch] for batch in twice] == [[["a", None], ["ccc", "d"]], [["e"]]]
    windows = Dataset.from_tensor_slices(words).batch(2, strings="columns").window(2, shift=1)
    assert [len(window) for window in windows] == [2, 2, 1]
