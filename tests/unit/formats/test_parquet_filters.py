"""Filters of Parquet: values of each type, fields of structs, and statistics that exclude row groups."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from table_bytes import directory_of, rows_of

from aiostream_data import PlanError
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.formats.parquet_filters import checked_filters

NAN, INF = float("nan"), float("inf")


def written(column: pa.Array, row_group_size: int) -> bytes:
    made = io.BytesIO()
    parquet.write_table(pa.table({"c": column, "row": range(len(column))}), made, row_group_size=row_group_size)
    return made.getvalue()


def kept(column: pa.Array, operator: str, value: Any, name: str = "c") -> list[int]:
    """Return the rows that satisfy a condition, which are the same with and without statistics of single rows."""
    format = ParquetFormat(columns=("row",), filters=checked_filters([(name, operator, value)]))
    alone, together = ([row["row"] for row in rows_of(format, written(column, size))] for size in (1, 1000))
    assert alone == together
    return together


I64 = pa.array([-(2**63), -1, 2**53, 2**53 + 1, 2**63 - 1, None], pa.int64())
U8 = pa.array([0, 3, 255, None], pa.uint8())


@pytest.mark.parametrize(
    ("column", "operator", "value", "rows"),
    [
        (I64, "!=", 2**70, [0, 1, 2, 3, 4]),
        (I64, "<", 2**70, [0, 1, 2, 3, 4]),
        (I64, ">=", -(2**70), [0, 1, 2, 3, 4]),
        (I64, ">", 2**70, []),
        (I64, "in", [2**70, -1], [1]),
        (I64, "not in", [2**70, -1], [0, 2, 3, 4]),
        (I64, "=", 2.0**53, [2]),
        (I64, "<", -0.5, [0, 1]),
        (I64, "<=", -0.5, [0, 1]),
        (I64, ">", -0.5, [2, 3, 4]),
        (I64, "=", Fraction(1, 2), []),
        (I64, "!=", 0.5, [0, 1, 2, 3, 4]),
        (I64, "<", INF, [0, 1, 2, 3, 4]),
        (I64, "<", NAN, []),
        (I64, "!=", NAN, [0, 1, 2, 3, 4]),
        (I64, "=", None, []),
        (I64, "!=", None, []),
        (U8, "in", [3, -1], [1]),
        (U8, "not in", [3, -1], [0, 2]),
        (U8, "in", [3.0, 0.5, None], [1]),
        (U8, "in", [], []),
        (U8, ">", np.int64(-1), [0, 1, 2]),
        (U8, "<=", 300, [0, 1, 2]),
    ],
)
def test_integers_are_compared_exactly(column: pa.Array, operator: str, value: Any, rows: list[int]) -> None:
    assert kept(column, operator, value) == rows


F64 = pa.array([0.0, -0.0, 1.5, INF, NAN, None])


@pytest.mark.parametrize(
    ("column", "operator", "value", "rows"),
    [
        (F64, "in", [0.0], [0, 1]),
        (F64, "in", [-0.0], [0, 1]),
        (F64, "in", [0], [0, 1]),
        (F64, "==", 0.0, [0, 1]),
        (F64, "not in", [0.0], [2, 3, 4]),
        (F64, "in", [NAN], [4]),
        (F64, "<", 10**400, [0, 1, 2]),
        (F64, ">", 10**400, [3]),
        (F64, "in", [10**400, Decimal("1.5")], [2]),
        (F64.cast(pa.float32()), "==", 0.1, []),
        (pa.array([0.1, 0.2], pa.float32()), "==", 0.1, [0]),
        (pa.array([0.1, 0.2], pa.float32()), "in", [0.1], [0]),
        (pa.array([0.1, 1e38], pa.float32()), "<", 1e300, [0, 1]),
        (pa.array([0.5, 65504], pa.float16()), "in", [0.5, 1e6], [0]),
    ],
)
def test_numbers_are_rounded_to_the_type_of_a_float_column(
    column: pa.Array, operator: str, value: Any, rows: list[int]
) -> None:
    assert kept(column, operator, value) == rows


PRICES = pa.array([Decimal("1.50"), Decimal("-3.25"), None], pa.decimal128(5, 2))
TIMES = pa.array([datetime(2024, 1, 1), datetime(1700, 1, 1), None], pa.timestamp("ns"))
ZONED = pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin"))
DAYS = pa.array([date(2024, 1, 1), date(9999, 12, 31)])
SPANS = pa.array([timedelta(1), timedelta(0)])


@pytest.mark.parametrize(
    ("column", "operator", "value", "rows"),
    [
        (PRICES, "in", [Decimal("1.5"), Decimal("1.555"), 10**40], [0]),
        (PRICES, "==", 1.5, [0]),
        (PRICES, "<", 10**80, [0, 1]),
        (TIMES, "<", datetime(9999, 1, 1), [0, 1]),
        (TIMES, ">", datetime(1, 1, 1), [0, 1]),
        (TIMES, "in", [np.datetime64("2024-01-01"), datetime(9999, 1, 1)], [0]),
        (TIMES, "=", date(2024, 1, 1), [0]),
        (TIMES, "!=", np.datetime64("NaT", "us"), []),
        (ZONED, "=", datetime(2024, 1, 1, tzinfo=UTC), [0]),
        (DAYS, "in", [datetime(2024, 1, 1, 5)], []),
        (DAYS, "<", datetime(2024, 1, 1, 5), [0]),
        (SPANS, "=", np.timedelta64(1, "D"), [0]),
    ],
)
def test_decimals_dates_and_times_are_compared_exactly(
    column: pa.Array, operator: str, value: Any, rows: list[int]
) -> None:
    assert kept(column, operator, value) == rows


@pytest.mark.parametrize(
    ("operator", "value", "rows"),
    [("in", ["a"], [0, 2]), ("not in", ["a"], [1]), ("==", "b", [1]), ("!=", "b", [0, 2]), ("in", ["z", None], [])],
)
def test_conditions_hold_for_the_values_of_dictionaries(operator: str, value: Any, rows: list[int]) -> None:
    assert kept(pa.array(["a", "b", "a", None]).dictionary_encode(), operator, value) == rows


BOXES = pa.array([{"x": 1, "in": {"y": "a"}}, {"x": 2, "in": None}, None, {"x": None, "in": {"y": "b"}}])


@pytest.mark.parametrize(
    ("name", "operator", "value", "rows"),
    [
        ("c.x", "=", 1, [0]),
        ("c.x", "!=", 1, [1]),
        ("c.x", "in", [1, 2], [0, 1]),
        ("c.in.y", "==", "b", [3]),
        ("c.in.y", "not in", ["b"], [0]),
    ],
)
def test_a_filter_may_name_a_field_of_a_struct(name: str, operator: str, value: Any, rows: list[int]) -> None:
    assert kept(BOXES, operator, value, name) == rows


def test_a_field_that_only_a_filter_names_is_no_part_of_the_rows() -> None:
    format = ParquetFormat(columns=("row", "c.in"), filters=((("c.x", "=", 1),),))
    assert list(rows_of(format, written(BOXES, 1000))) == [{"row": 0, "c": {"in": {"y": "a"}}}]


def test_a_column_whose_name_has_a_dot_goes_before_the_field_of_a_struct() -> None:
    made = io.BytesIO()
    parquet.write_table(pa.table({"s": [{"x": 1}, {"x": 2}], "s.x": [5, 6], "row": [0, 1]}), made, row_group_size=1)
    format = ParquetFormat(columns=("row",), filters=((("s.x", "=", 6),),))
    assert list(rows_of(format, made.getvalue())) == [{"row": 1}]


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (
            I64,
            "a",
            "does not fit its type, int64 in file: 'a' cannot be compared with int64. Compare with a value of this",
        ),
        (I64, True, "True cannot be compared with int64"),
        (TIMES, "2024-01-01", r"cannot be compared with timestamp\[ns\]"),
        (TIMES, datetime(2024, 1, 1, tzinfo=UTC), "cannot be compared"),
        (pa.array(["a"]), 2**70, "does not fit its type, string"),
        (BOXES, 1, r"does not fit its type, struct.* Name a field of a struct, or call Dataset\.filter\(\)"),
        (pa.array([[1]]), 1, "does not fit its type, list"),
    ],
)
def test_a_value_of_another_kind_is_refused(column: pa.Array, value: Any, said: str) -> None:
    for operator, wanted in (("=", value), ("in", [value])):
        with pytest.raises(PlanError, match=f"the filter on column 'c' .*{said}"):
            kept(column, operator, wanted)


def test_a_path_into_a_list_is_refused() -> None:
    with pytest.raises(PlanError, match=r"the filter on column 'c\.list\.element' names no field of a struct in file"):
        kept(pa.array([[1]]), "=", 1, "c.list.element")


def test_columns_are_listed_in_the_order_of_the_file() -> None:
    made = io.BytesIO()
    parquet.write_table(pa.table({name: [1] for name in "zyxwvutsr"}), made)
    with pytest.raises(PlanError, match="Its columns are 'z', 'y', 'x', 'w', 'v', 'u', 't', 's', 'r'"):
        directory_of(ParquetFormat(filters=((("q", "=", 1),),)), made.getvalue())


@pytest.mark.parametrize(
    ("column", "operator", "value", "first_rows"),
    [
        (pa.array(range(10)), "in", [2, 7.0, 2**70], [2, 7]),
        (pa.array(range(10)), ">", 7.5, [8]),
        (pa.array(["a", "b", "c"]), "in", ["b"], [1]),
        (pa.array([True, False]), "==", True, [0]),
        (pa.array([datetime(2024, 1, day) for day in (1, 2, 3)]), "<", np.datetime64("2024-01-02"), [0]),
        (BOXES, "=", 2, [1]),
    ],
)
def test_row_groups_are_excluded_by_their_statistics(
    column: pa.Array, operator: str, value: Any, first_rows: list[int]
) -> None:
    name = "c.x" if column is BOXES else "c"
    format = ParquetFormat(filters=checked_filters([(name, operator, value)]))
    groups = directory_of(format, written(column, 1)).groups_from(0)
    rows = [row for group in groups for row in range(group.first_row, group.first_row + group.rows)]
    assert set(first_rows) <= set(rows)
    assert len(rows) < len(column)


def test_statistics_that_python_cannot_represent_exclude_nothing() -> None:
    column = pa.array([2**62, 0], pa.timestamp("us"))
    assert kept(column, ">", datetime(2024, 1, 1)) == [0]
