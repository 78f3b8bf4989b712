"""Whatever PyArrow holds in types that can be read is read as PyArrow itself says, and whole batches come back."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pyarrow as pa
import pytest
from arrow_producers import use_twins
from arrow_reading import rows_of
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data import ArrowBatch, RaggedArray
from aiostream_data.rows.arrow.importing import ArrowChunk, read_arrow
from aiostream_data.rows.columns import column_element
from aiostream_data.rows.structure import Structure

INTEGERS = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
TEXTS = (
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.binary(3),
)
LISTS = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
EXACT = Context(prec=80)
SIZES = st.integers(0, 12)


@pytest.fixture(autouse=True, scope="module", params=["native", "python"])
def kernels(request: pytest.FixtureRequest) -> Any:
    with pytest.MonkeyPatch.context() as monkeypatch:
        if request.param == "python":
            use_twins(monkeypatch)
        yield


# -- types and their rows --------------------------------------------------------------------------------------------


def integers_of(kind: pa.DataType) -> st.SearchStrategy[int]:
    limits = np.iinfo(kind.to_pandas_dtype())
    return st.integers(int(limits.min), int(limits.max))


def flat() -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    """A type without children, and a strategy of its rows that are not missing."""
    return st.one_of(
        st.sampled_from(INTEGERS).map(lambda kind: (kind, integers_of(kind))),
        st.just((pa.bool_(), st.booleans())),
        st.just((pa.float64(), st.floats(allow_nan=False))),
        st.just((pa.float32(), st.floats(width=32, allow_nan=False))),
    )


def texts() -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    def rows(kind: pa.DataType) -> Any:
        if kind == pa.binary(3):
            return st.binary(min_size=3, max_size=3)
        return st.binary(max_size=20) if "binary" in str(kind) else st.text(max_size=20)

    return st.sampled_from(TEXTS).map(lambda kind: (kind, rows(kind)))


def lists() -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    def of(item: tuple[pa.DataType, Any], make: Any, size: int) -> tuple[pa.DataType, Any]:
        if make is None:
            return pa.list_(item[0], size), st.lists(item[1], min_size=size, max_size=size)
        return make(item[0]), st.lists(item[1], max_size=4)

    fixed = st.builds(of, flat(), st.none(), st.integers(0, 3))
    return st.builds(of, st.one_of(flat(), fixed), st.sampled_from((None, *LISTS)), st.integers(0, 3))


def structs(inner: Any) -> Any:
    def of(children: list[tuple[pa.DataType, Any]]) -> tuple[pa.DataType, Any]:
        kind = pa.struct([(f"f{i}", child[0]) for i, child in enumerate(children)])
        return kind, st.fixed_dictionaries({f"f{i}": st.none() | child[1] for i, child in enumerate(children)})

    return st.lists(inner, max_size=3).map(of)


def decimals() -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    def of(digits: int, scale: int) -> tuple[pa.DataType, Any]:
        kind = pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)
        return kind, st.integers(1 - 10**digits, 10**digits - 1).map(lambda n: EXACT.scaleb(Decimal(n), -scale))

    return st.builds(of, st.sampled_from([1, 9, 18, 19, 38, 39, 76]), st.integers(-3, 9))


def lists_of_objects(inner: Any) -> Any:
    """Lists of structs, of lists and of maps, and maps, with missing values at each level."""

    def of(item: tuple[pa.DataType, Any], make: Any) -> tuple[pa.DataType, Any]:
        return make(item[0]), st.lists(st.none() | item[1], max_size=3)

    def map_of(item: tuple[pa.DataType, Any]) -> tuple[pa.DataType, Any]:
        return pa.map_(pa.string(), item[0]), st.lists(st.tuples(st.text(max_size=2), st.none() | item[1]), max_size=3)

    return st.one_of(structs(inner), inner.map(map_of), st.builds(of, inner, st.sampled_from(LISTS)))


def objects() -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    """Types whose rows are Python objects or arrays of them."""
    inside = st.recursive(st.one_of(flat(), texts(), decimals()), lists_of_objects, max_leaves=4)
    listed = st.builds(
        lambda item, make: (make(item[0]), st.lists(st.none() | item[1], max_size=3)),
        inside.filter(lambda item: not pa.types.is_primitive(item[0])),
        st.sampled_from(LISTS),
    )
    return st.one_of(decimals(), listed)


TYPES = st.recursive(st.one_of(flat(), texts(), lists(), objects()), structs, max_leaves=4)


@st.composite
def slices(draw: st.DrawFn) -> tuple[pa.Array, list[Any]]:
    """A part of an array, and its rows as PyArrow says."""
    kind, rows = draw(TYPES)
    missing = draw(st.sampled_from([0, 1, 2]))  # no row, some rows, all rows
    one = rows if missing == 0 else st.none() if missing == 2 else st.none() | rows
    whole = pa.array(draw(st.lists(one, max_size=20)), kind)
    start = draw(st.integers(0, len(whole)))
    part = whole.slice(start, draw(SIZES))
    return part, part.to_pylist()


def elements(chunk: ArrowChunk) -> list[Any]:
    """The rows of a chunk as nested dicts."""
    leaves = iter([rows_of(leaf) for leaf in chunk.leaves])

    def build(structure: Structure) -> list[Any]:
        if structure.is_leaf:
            return next(leaves)
        children = [build(child) for child in structure.children]
        return [
            {name: child[row] for name, child in zip(structure.names, children, strict=True)}
            for row in range(len(chunk))
        ]

    return build(chunk.structure)


def hollow(kind: pa.DataType, row: Any) -> Any:
    """The row as columns contain it: a missing struct has missing fields, and a map is a dict."""
    if not pa.types.is_struct(kind):
        return with_dicts(kind, row)
    fields = [kind.field(i) for i in range(kind.num_fields)]
    return {field.name: hollow(field.type, None if row is None else row[field.name]) for field in fields}


def with_dicts(kind: pa.DataType, row: Any) -> Any:
    if row is None or not pa.types.is_nested(kind):
        return row
    if pa.types.is_map(kind):
        return {key: with_dicts(kind.item_type, value) for key, value in row}
    if pa.types.is_struct(kind):
        return {field.name: with_dicts(field.type, row[field.name]) for field in kind}
    return [with_dicts(kind.value_type, item) for item in row]


@given(slices())
def test_an_array_is_read_as_pyarrow_says(drawn: tuple[pa.Array, list[Any]]) -> None:
    array, rows = drawn
    [chunk] = read_arrow(array)
    assert len(chunk) == len(rows)
    assert elements(chunk) == [hollow(array.type, row) for row in rows]


@given(st.lists(slices(), max_size=4), st.integers(0, 5))
def test_a_table_of_slices_is_read_in_its_chunks(columns: list[tuple[pa.Array, list[Any]]], start: int) -> None:
    length = min((len(array) for array, _ in columns), default=0)
    arrays = [array.slice(0, length) for array, _ in columns]
    names = [f"c{i}" for i in range(len(arrays))]
    batch = pa.record_batch(arrays, names=names)
    table = pa.Table.from_batches([batch, batch.slice(start)])
    found = [row for chunk in read_arrow(table) for row in elements(chunk)]
    kind = pa.struct(list(batch.schema))
    assert found == [hollow(kind, row) for row in table.to_pylist()]


@given(st.lists(st.none() | st.text(max_size=3), max_size=12), st.integers(0, 12), st.sampled_from(INTEGERS))
def test_encoded_text_is_decoded(rows: list[str | None], start: int, index: pa.DataType) -> None:
    array = pa.array(rows, pa.string()).dictionary_encode().cast(pa.dictionary(index, pa.string())).slice(start)
    [chunk] = read_arrow(array)
    assert elements(chunk) == rows[start:]


# -- batches ---------------------------------------------------------------------------------------------------------

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.datetime64_dtypes(min_period="ns", max_period="s"),
    hnp.timedelta64_dtypes(min_period="ns", max_period="s"),
)


@st.composite
def leaves(draw: st.DrawFn, rows: int) -> Any:
    shape = (rows, *draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)))
    array = draw(hnp.arrays(draw(DTYPES), shape))
    return array[:, ::-1] if array.ndim > 1 and draw(st.booleans()) else array


@st.composite
def ragged(draw: st.DrawFn, rows: int) -> RaggedArray:
    lengths = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    splits = np.cumsum([draw(st.integers(0, 2)), *lengths])
    return RaggedArray(draw(leaves(int(splits[-1]) + 1)), splits)


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    rows = draw(st.integers(0, 5))
    words = st.lists(st.none() | st.text(max_size=5), min_size=rows, max_size=rows)
    return {
        "dense": draw(leaves(rows)),
        "ragged": draw(ragged(rows)),
        "text": np.array([*draw(words), "end"], object)[:-1],
        "inner": (draw(leaves(rows)),),
    }


@given(batches())
def test_a_batch_comes_back_from_pyarrow(batch: dict[str, Any]) -> None:
    exported = pa.record_batch(ArrowBatch(batch))
    exported.validate(full=True)
    source = read_arrow(exported)
    chunk = next(source, source.empty())  # PyArrow sends no batch without rows
    dense, rows, _, inner = (leaf.column for leaf in chunk.leaves)
    for found, given_array in ((dense, batch["dense"]), (inner, batch["inner"][0])):
        assert found.dtype == given_array.dtype.newbyteorder("=")
        present = ~np.isnat(given_array) if given_array.dtype.kind in "mM" else np.ones(given_array.shape, bool)
        np.testing.assert_array_equal(np.asarray(found)[present], given_array[present])
    assert rows_of(chunk.leaves[2]) == batch["text"].tolist()
    for row in range(len(batch["ragged"])):
        np.testing.assert_array_equal(column_element(rows, row), batch["ragged"][row])
