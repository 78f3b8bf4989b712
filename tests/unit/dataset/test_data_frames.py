"""Data frames of pandas and Polars, and tables of Arrow, as sources of rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from aiostream_data import ArrowTypeError, ColumnError, Dataset, PlanError
from aiostream_data.errors import ArgumentTypeError, UnknownNameError
from aiostream_data.rows.columns import VarColumn
from aiostream_data.testing.resume import resumes_everywhere

COLUMNS: dict[str, Any] = {"n": [1, 2, 3], "x": [0.5, 1.5, 2.5], "s": ["a", None, "ccc"]}
ROWS: list[dict[str, Any]] = [
    {"n": 1, "x": 0.5, "s": "a"},
    {"n": 2, "x": 1.5, "s": None},
    {"n": 3, "x": 2.5, "s": "ccc"},
]

FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "pyarrow": lambda: pa.table(COLUMNS),
    "record batch": lambda: pa.record_batch(COLUMNS),
    "chunks": lambda: pa.concat_tables([pa.table(COLUMNS).slice(0, 1), pa.table(COLUMNS).slice(1)]),
    "capsules": lambda: Capsules(pa.table(COLUMNS)),
}


class Capsules:
    """A table of an unknown library."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("library", FRAMES)
def test_the_rows_of_a_data_frame_are_dicts(library: str) -> None:
    dataset = Dataset.from_dataframe(FRAMES[library]())
    assert list(dataset) == ROWS
    assert dataset.cardinality() == 3
    spec: Any = dataset.element_spec
    assert spec["n"].dtype == np.int64
    assert "from_dataframe({n: int64[3], x: float64[3], s: str or None})" in dataset.explain()


@pytest.mark.parametrize("library", FRAMES)
def test_selected_columns_come_in_the_given_order(library: str) -> None:
    assert list(Dataset.from_dataframe(FRAMES[library](), ["s", "n"])) == [{"s": r["s"], "n": r["n"]} for r in ROWS]
    with pytest.raises(ColumnError, match=r"from_dataframe\(\) on column 'absent'.* The columns are 'n', 'x', 's'"):
        Dataset.from_dataframe(FRAMES[library](), ["n", "absent"])


def test_a_relation_of_duckdb_is_a_table() -> None:
    relation = duckdb.sql("select range as n, 'row ' || range as s from range(3)")
    assert list(Dataset.from_dataframe(relation, ["s"])) == [{"s": "row 0"}, {"s": "row 1"}, {"s": "row 2"}]


def test_numbers_and_text_of_arrow_are_not_copied() -> None:
    frame = pd.DataFrame({"n": np.arange(5), "x": np.arange(5.0)})
    numbers = Dataset.from_dataframe(frame).plan.leaves  # type: ignore[attr-defined]
    assert np.shares_memory(numbers[0], frame["n"].to_numpy())
    assert not numbers[0].flags.writeable
    table = pa.table({"n": np.arange(5), "s": ["a", "b", "c", "d", "e"]})
    n, s = Dataset.from_dataframe(table).plan.leaves  # type: ignore[attr-defined]
    assert n.ctypes.data == table["n"].chunk(0).buffers()[1].address
    assert isinstance(s, VarColumn)
    assert s.values.ctypes.data == table["s"].chunk(0).buffers()[2].address


def test_columns_that_are_not_selected_may_have_any_type() -> None:
    table = pa.table({"n": [1], "runs": pa.RunEndEncodedArray.from_arrays([1], [1])})
    assert list(Dataset.from_dataframe(table, ["n"])) == [{"n": 1}]
    with pytest.raises(ArrowTypeError, match="runs"):
        Dataset.from_dataframe(table)


@pytest.mark.parametrize(
    ("series", "values"),
    [
        (pd.array([1, None], dtype="Int64"), [1, None]),
        (pd.array([1, 2], dtype="UInt8"), [1, 2]),
        (pd.array([1.5, None], dtype="Float32"), [1.5, None]),
        (pd.array([True, None], dtype="boolean"), [True, None]),
        (pd.array([1, None], dtype="int64[pyarrow]"), [1, None]),
        (pd.array(["a", None], dtype="string[python]"), ["a", None]),
        (pd.Categorical(["a", None]), ["a", None]),
        (pd.Categorical([3, 4]), [3, 4]),
        (pd.Series([b"a", None], dtype=object), [b"a", None]),
        (pd.Series([{"k": 1}, None], dtype=object), [{"k": 1}, None]),
        (
            pd.to_datetime(["2020-01-01", "2020-07-01"]),
            [np.datetime64("2020-01-01"), np.datetime64("2020-07-01")],
        ),
        (
            pd.to_datetime(["2020-01-01T12:00"] * 2).tz_localize("Europe/Berlin"),
            [np.datetime64("2020-01-01T11")] * 2,
        ),
        (pd.Series([float("nan"), 1.0]).isna(), [True, False]),
    ],
    ids=str,
)
def test_every_kind_of_column_of_pandas_is_read(series: Any, values: list[Any]) -> None:
    rows = [row["c"] for row in Dataset.from_dataframe(pd.DataFrame({"c": series}))]
    assert rows == values


def test_nan_and_nat_of_numpy_columns_stay_values() -> None:
    frame = pd.DataFrame({"x": [np.nan], "t": pd.to_datetime([None])})
    (row,) = Dataset.from_dataframe(frame)
    assert np.isnan(row["x"])
    assert np.isnat(row["t"])


def test_the_index_is_kept_by_reset_index_alone() -> None:
    frame = pd.DataFrame({"n": [1, 2]}, index=pd.Index(["a", "b"], name="key"))
    assert list(Dataset.from_dataframe(frame)) == [{"n": 1}, {"n": 2}]
    assert list(Dataset.from_dataframe(frame.reset_index())) == [{"key": "a", "n": 1}, {"key": "b", "n": 2}]


@pytest.mark.parametrize(
    ("frame", "columns", "message"),
    [
        (pl.LazyFrame({"n": [1]}), None, r"Call collect\(\) first"),
        ({"n": [1]}, None, "needs a data frame of pandas or Polars"),
        (pl.Series([1]), None, "got a single column"),
        (pd.Series([1]), None, "got a single column|needs a data frame"),
        (pd.DataFrame({1: [2]}), None, "str names, got 1"),
        (pd.DataFrame([[1, 2]], columns=["n", "n"]), None, "'n' occurs twice"),
        (pd.DataFrame(), None, "at least one column"),
        (pl.DataFrame(), None, "at least one column"),
        (pd.DataFrame({"n": [1]}), [], "at least one column"),
        (pd.DataFrame({"n": [1]}), ["n", "n"], "each column once"),
        (pd.DataFrame({"n": [1]}), "n", "columns must be names"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(frame: Any, columns: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Dataset.from_dataframe(frame, columns)


def test_names_of_other_libraries_lead_to_the_method() -> None:
    with pytest.raises(UnknownNameError, match="from_dataframe"):
        Dataset.from_pandas  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ArgumentTypeError):
        Dataset.from_dataframe(3)


def test_an_empty_frame_has_no_rows() -> None:
    assert list(Dataset.from_dataframe(pd.DataFrame({"n": np.arange(0)}))) == []
    assert list(Dataset.from_dataframe(pl.DataFrame({"s": []}, schema={"s": pl.String}))) == []


@pytest.mark.parametrize("library", FRAMES)
def test_data_frames_resume_after_every_row(library: str) -> None:
    dataset = Dataset.from_dataframe(FRAMES[library]()).shuffle(2, seed=1).repeat(2)
    resumes_everywhere(dataset)
    assert list(pickle.loads(pickle.dumps(dataset)).open(seed=1)) == list(dataset.open(seed=1))
