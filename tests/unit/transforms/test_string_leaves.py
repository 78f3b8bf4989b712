"""Bytes and text in a batch, in each form, from columns and from Python objects."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data import BatchShapeError, BytesArray, Dataset, PlanError, RaggedArray, TextArray
from aiostream_data.rows.text_arrays import FORMS
from aiostream_data.testing.comparing import same

ROWS = ["a", "", "ñandú", "x\0y", "a" * 300]


def unchanged(element: Any) -> Any:
    return element


def batches(rows: list[Any], form: Any, size: int = 2, **options: Any) -> list[Any]:
    kind: Any = TextArray if any(isinstance(row, str) for row in rows) else BytesArray
    return list(Dataset.from_tensor_slices(kind.from_list(rows)).batch(size, strings=form, **options))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [ROWS, [row.encode() for row in ROWS]], ids=["text", "bytes"])
def test_columns_and_objects_make_the_same_batches(rows: list[Any], form: Any) -> None:
    kind: Any = TextArray if isinstance(rows[0], str) else BytesArray
    columns = Dataset.from_tensor_slices({"s": kind.from_list(rows), "n": np.arange(len(rows))})
    objects = Dataset.from_generator(lambda: [{"s": row, "n": n} for n, row in enumerate(rows)])
    expected = list(columns.batch(2, strings=form))
    for other in (objects, columns.map(unchanged), columns.filter(lambda _: True)):
        assert same(expected, list(other.batch(2, strings=form)))


def test_each_form_has_the_type_that_its_name_says() -> None:
    assert {form: type(batches(["a", "bc"], form)[0]) for form in FORMS} == {
        "objects": np.ndarray,
        "columns": TextArray,
        "string_dtype": np.ndarray,
        "ragged": RaggedArray,
        "padded": np.ndarray,
    }
    assert batches(["a", "bc"], "objects")[0].tolist() == ["a", "bc"]
    assert batches(["a", "bc"], "columns")[0].to_list() == ["a", "bc"]
    assert batches(["a", "bc"], "string_dtype")[0].dtype == np.dtypes.StringDType()
    assert batches(["a", "bc"], "ragged")[0].to_list() == [[97], [98, 99]]
    assert batches(["a", "bc"], "padded")[0].tolist() == [[97, 0], [98, 99]]
    assert batches([b"a"], "string_dtype")[0].tolist() == [b"a"]


@given(st.lists(st.none() | st.text(max_size=5), min_size=1, max_size=20), st.integers(1, 7))
def test_missing_text_survives_batches_of_columns(rows: list[str | None], size: int) -> None:
    source = Dataset.from_tensor_slices({"s": TextArray.from_list(rows)})
    expected = [{"s": row} for row in rows]
    assert list(source) == expected
    assert list(source.batch(size, strings="columns").unbatch()) == expected
    assert list(source.batch(size).unbatch()) == expected
    found = [batch["s"] for batch in source.map(unchanged).batch(size, strings="columns")]
    for column, other in zip(source.batch(size, strings="columns"), found, strict=True):
        has_type = isinstance(other, TextArray)  # the type of results of a function that are all None is unknown
        assert same(column["s"], other) if has_type else other.tolist() == column["s"].to_list() == [None] * len(other)


@pytest.mark.parametrize("form", ["string_dtype", "ragged", "padded"])
@pytest.mark.parametrize("between", [False, True], ids=["columns", "objects"])
def test_a_form_without_missing_values_names_the_record_that_has_none(form: Any, between: bool) -> None:
    source = Dataset.from_tensor_slices({"s": TextArray.from_list(["a", "b", None])})
    with pytest.raises(BatchShapeError, match=r"leaf 's': from_tensor_slices record 2 has no value\. Replace None"):
        list((source.map(unchanged) if between else source).batch(4, strings=form))


def test_a_missing_number_is_an_error_that_names_the_record() -> None:
    source = Dataset.from_generator(lambda: [{"n": 1}, {"n": None}])
    with pytest.raises(BatchShapeError, match="record 1"):
        list(source.batch(2))


def test_columns_of_one_chunk_share_one_buffer_and_no_python_object_per_row() -> None:
    first, second = batches([f"row {n}" for n in range(8)], "columns", size=4)
    assert first.values.base is not None
    assert np.shares_memory(first.values.base, second.values.base)


def test_batches_own_their_memory() -> None:
    array = TextArray.from_list(["a", "b"])
    (batch,) = Dataset.from_tensor_slices(array).batch(2, strings="columns")
    assert not np.shares_memory(batch.values, array.values)


def test_the_spec_says_what_a_batch_holds() -> None:
    source = Dataset.from_tensor_slices(TextArray.from_list(["a"]))
    found = {form: source.batch(2, strings=form).element_spec for form in FORMS}
    assert found["padded"].dtype == np.uint8
    assert found["padded"].shape == (None, None)
    assert found["ragged"].ragged
    assert found["objects"].dtype == found["columns"].dtype == np.dtype(object)
    assert found["string_dtype"].dtype is None


@pytest.mark.parametrize("form", ["object", "", None, 3, ["columns"]])
def test_a_form_that_does_not_exist_is_refused(form: Any) -> None:
    with pytest.raises(PlanError, match="strings must be one of objects, columns"):
        Dataset.range(3).batch(2, strings=form)


def test_batches_by_cost_have_objects_only() -> None:
    with pytest.raises(PlanError, match="strings needs batch_size without max_cost"):
        Dataset.range(3).batch(max_cost=2, strings="columns")  # type: ignore[call-overload]


def test_a_batch_of_columns_resumes_exactly() -> None:
    plan = Dataset.from_tensor_slices(TextArray.from_list([f"row {n}" for n in range(20)])).shuffle(7, seed=1)
    plan = plan.batch(3, strings="columns")
    expected = [batch.to_list() for batch in plan]
    with plan.open() as loader:
        list(islice(loader, 2))
        state = loader.state_dict()
    with plan.open(state) as loader:
        assert [batch.to_list() for batch in loader] == expected[2:]


def test_ragged_arrays_are_a_source_of_their_rows() -> None:
    ragged = RaggedArray(np.arange(6), np.array([0, 2, 2, 6]))
    source = Dataset.from_tensor_slices({"x": ragged})
    assert [element["x"].tolist() for element in source] == [[0, 1], [], [2, 3, 4, 5]]
    (batch,) = source.batch(3)
    assert batch["x"].to_list() == ragged.to_list()
    assert source.element_spec["x"].ragged
