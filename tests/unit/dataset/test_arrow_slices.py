"""Tables and arrays of Arrow libraries as a source of rows, and batches of columns for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from aiostream_data import ArrowBatch, ArrowTypeError, Dataset, PlanError, TextArray
from aiostream_data.testing.resume import resumes_everywhere

TABLE = pa.table(
    {
        "n": [1, None, 3, 4],
        "text": ["one", None, "", "four"],
        "values": [[1, 2], [], None, [3]],
        "inner": [{"x": 1.5}, None, {"x": None}, {"x": 4.0}],
        "raw": [b"\0", b"b", None, b"dd"],
    }
)
ROWS = [
    {"n": 1, "text": "one", "values": [1, 2], "inner": {"x": 1.5}, "raw": b"\0"},
    {"n": None, "text": None, "values": [], "inner": {"x": None}, "raw": b"b"},
    {"n": 3, "text": "", "values": None, "inner": {"x": None}, "raw": None},
    {"n": 4, "text": "four", "values": [3], "inner": {"x": 4.0}, "raw": b"dd"},
]


def listed(rows: Any) -> list[Any]:
    return [{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in row.items()} for row in rows]


def test_a_table_is_a_source_of_its_rows_with_none_for_missing_values() -> None:
    assert listed(Dataset.from_tensor_slices(TABLE)) == ROWS


def test_chunks_of_a_table_are_joined() -> None:
    pieces = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 2), TABLE.slice(3)])
    assert pieces.column("n").num_chunks > 1
    assert listed(Dataset.from_tensor_slices(pieces)) == ROWS


@pytest.mark.parametrize(
    "source",
    [
        pl.DataFrame({"n": [1, 2], "s": ["a", "b"]}),
        pd.DataFrame({"n": [1, 2], "s": ["a", "b"]}),
        pa.record_batch({"n": [1, 2], "s": ["a", "b"]}),
        {"n": pa.array([1, 2]), "s": pl.Series(["a", "b"])},
        {"n": np.array([1, 2]), "s": pa.array(["a", "b"])},
    ],
    ids=["polars", "pandas", "record batch", "dict of arrays", "with numpy"],
)
def test_other_libraries_are_sources_as_well(source: Any) -> None:
    assert list(Dataset.from_tensor_slices(source)) == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]


def test_numbers_and_text_are_not_copied() -> None:
    table = pa.table({"n": np.arange(100), "text": [f"row {n}" for n in range(100)]})
    leaves = Dataset.from_tensor_slices(table).plan.leaves  # type: ignore[attr-defined]
    buffers = table.column("n").chunk(0).buffers() + table.column("text").chunk(0).buffers()
    addresses = {buffer.address for buffer in buffers if buffer is not None}
    assert {leaves[0].__array_interface__["data"][0], leaves[1].values.__array_interface__["data"][0]} <= addresses


def test_a_table_without_rows_has_its_columns() -> None:
    empty = Dataset.from_tensor_slices(TABLE.schema.empty_table())
    assert list(empty) == []
    assert set(empty.element_spec) == set(TABLE.column_names)


def test_missing_values_resume_shuffle_and_batch_exactly() -> None:
    resumes_everywhere(Dataset.from_tensor_slices(TABLE.select(["n", "text"])).repeat(3).shuffle(5, seed=1))
    batched = Dataset.from_tensor_slices(TABLE.select(["text", "raw"])).batch(3, strings="columns")
    resumes_everywhere(batched)
    assert [batch["text"].to_list() for batch in batched] == [["one", None, ""], ["four"]]


def test_a_batch_of_columns_goes_to_other_libraries_and_back() -> None:
    (batch,) = Dataset.from_tensor_slices(TABLE.select(["text", "raw"])).batch(4, strings="columns")
    assert pa.record_batch(ArrowBatch(batch)).to_pylist() == TABLE.select(["text", "raw"]).to_pylist()
    assert pl.DataFrame(ArrowBatch(batch))["text"].to_list() == ["one", None, "", "four"]
    assert pa.array(batch["text"]).to_pylist() == batch["text"].to_list()
    assert list(Dataset.from_tensor_slices(ArrowBatch(batch)))[1] == {"text": None, "raw": b"b"}


def test_the_buffers_of_a_text_array_are_handed_over_without_a_copy() -> None:
    text = TextArray.from_list(["a", "bc"])
    _, splits, values = pa.array(text).buffers()
    assert values.address == text.values.__array_interface__["data"][0]
    assert splits.address == text.row_splits.__array_interface__["data"][0]


def test_types_without_a_form_are_named_with_their_column() -> None:
    with pytest.raises(ArrowTypeError, match="'price'"):
        Dataset.from_tensor_slices(pa.table({"price": pa.RunEndEncodedArray.from_arrays([2], [1])}))


def test_tables_of_different_length_do_not_go_together() -> None:
    with pytest.raises(PlanError, match="equal length"):
        Dataset.from_tensor_slices((TABLE, np.arange(3)))


LARGE = 2**62 + 1
"""A float cannot represent this integer."""


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (pd.Series([LARGE, None], dtype="Int64"), [LARGE, None]),
        (pd.array([LARGE, None], dtype="Int64"), [LARGE, None]),
        (pd.Series([LARGE, None], dtype=pd.ArrowDtype(pa.int64())), [LARGE, None]),
        (pd.Series([True, None], dtype="boolean"), [True, None]),
        (pd.Series(["a\0", None], dtype="str"), ["a\0", None]),
        (pd.Index(["a\0", None], dtype="str"), ["a\0", None]),
        (pd.Series(["a", None], dtype="category"), ["a", None]),
        (pd.Series([b"a\0", None]), [b"a\0", None]),
        (pd.Series(["\ud800", None], dtype=object), ["\ud800", None]),
        (pd.arrays.SparseArray([1, 0]), [1, 0]),
    ],
)
def test_a_series_of_pandas_keeps_its_values_and_what_is_missing(series: Any, expected: list[Any]) -> None:
    assert list(Dataset.from_tensor_slices(series)) == expected
    assert [row["x"] for row in Dataset.from_tensor_slices({"x": series})] == expected


WORDS = ["a", "b\0", None, "é", "\0", None, "ccc"]


@pytest.mark.parametrize(
    "made",
    [
        lambda words: pl.Series(words, dtype=pl.String),
        lambda words: pl.Series(words, dtype=pl.Categorical),
        lambda words: pa.array(words, pa.string_view()),
        lambda words: pa.chunked_array([words[:1], words[1:]], pa.string()),
        lambda words: pd.Series(words, dtype="str"),
        lambda words: pd.Series(words, dtype="string"),
        lambda words: pd.Series(words, dtype="category"),
    ],
)
@pytest.mark.parametrize("debug", [True, False])
def test_text_that_a_function_of_many_rows_returns_does_not_depend_on_their_number(made: Any, debug: bool) -> None:
    dataset = Dataset.range(len(WORDS)).map(lambda rows: made([WORDS[row] for row in rows]), batched=True)
    with dataset.open(debug=debug) as loader:
        found = list(loader)
    assert found == WORDS
    assert {type(word) for word in found} == {str, type(None)}
    [batch] = dataset.batch(len(WORDS), strings="columns")
    assert batch.to_list() == WORDS


@pytest.mark.parametrize(
    "made",
    [
        lambda: pl.Series([LARGE, None]),
        lambda: pa.array([LARGE, None]),
        lambda: pa.chunked_array([[LARGE], [None]], pa.int64()),
        lambda: pd.Series([LARGE, None], dtype="Int64"),
    ],
)
def test_missing_numbers_of_a_function_of_many_rows_are_refused(made: Any) -> None:
    dataset = Dataset.range(2).map(lambda rows: made()[: len(rows)] if len(rows) == 2 else made()[1:], batched=True)
    with pytest.raises(PlanError, match="some of its numbers are missing"):
        list(dataset)


def test_times_and_whole_numbers_of_a_function_of_many_rows_keep_their_dtype() -> None:
    times = pa.array([0, None], pa.timestamp("us"))
    numbers = pl.Series([LARGE, 1])
    both = Dataset.range(2).map(lambda rows: {"t": times[: len(rows)], "n": numbers[: len(rows)]}, batched=True)
    [batch] = both.batch(2)
    assert batch["t"].dtype == np.dtype("datetime64[us]")
    assert batch["n"].dtype == np.int64
    assert batch["n"][0] == LARGE
