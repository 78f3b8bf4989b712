"""Arrow sources become chunks: their structures, what is refused, and until when their memory lives."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_producers import Made, MadeStream, numbers, text_of
from arrow_reading import only_chunk, only_leaf, rows_of

from aiostream_data import ArrowBatch, ArrowDataError, ArrowTypeError
from aiostream_data.errors import ArgumentTypeError
from aiostream_data.rows.arrow.importing import read_arrow
from aiostream_data.rows.columns import column_elements
from aiostream_data.rows.structure import LEAF

pytestmark = pytest.mark.usefixtures("kernels")

WEIGHTS = pa.map_(pa.string(), pa.int8())


# -- structures --------------------------------------------------------------------------------------------------------


def test_a_table_becomes_chunks_of_dicts() -> None:
    table = pa.table({"x": [1, 2, 3], "box": [{"a": 1, "b": {"c": "u"}}, None, {"a": None, "b": {"c": "w"}}]})
    source = read_arrow(pa.concat_tables([table, table.slice(1)]))
    assert str(source.structure) == "{x: *, box: {a: *, b: {c: *}}}"
    chunks = list(source)
    assert [len(chunk) for chunk in chunks] == [3, 2]
    assert [rows_of(leaf) for leaf in chunks[0].leaves] == [[1, 2, 3], [1, None, None], ["u", None, "w"]]
    assert [rows_of(leaf) for leaf in chunks[1].leaves] == [[2, 3], [None, None], [None, "w"]]
    assert source.structure == chunks[0].structure


def test_rows_of_a_missing_struct_are_missing_and_empty() -> None:
    source = pa.StructArray.from_arrays(
        [pa.array(["a", "b"]), pa.array([1, 2])], ["t", "n"], mask=pa.array([True, False])
    )
    text, number = only_chunk(source).leaves
    assert (rows_of(text), rows_of(number)) == ([None, "b"], [None, 2])
    assert text.column.lengths.tolist() == [0, 1]  # type: ignore[union-attr]


def test_a_source_without_structs_is_one_leaf() -> None:
    source = read_arrow(pa.chunked_array([[1, 2], [3]]))
    assert source.structure == LEAF
    assert [rows_of(chunk.leaves[0]) for chunk in source] == [[1, 2], [3]]


def test_structs_without_fields_have_a_length() -> None:
    chunk = only_chunk(pa.array([{}, {}], pa.struct([])))
    assert (len(chunk), chunk.leaves, str(chunk.structure)) == (2, (), "{}")


def test_a_source_without_chunks_has_types() -> None:
    kinds = {
        "i": pa.int16(),
        "t": pa.string_view(),
        "l": pa.list_(pa.float32()),
        "f": pa.list_(pa.int8(), 3),
        "d": pa.dictionary(pa.int8(), pa.string()),
        "b": pa.bool_(),
        "n": pa.null(),
        "s": pa.struct({"x": pa.date32()}),
    }
    source = read_arrow(pa.schema(kinds.items()).empty_table())
    assert sum(map(len, source)) == 0
    empty = source.empty()
    assert len(empty) == 0
    found = [str(leaf.column.dtype) for leaf in empty.leaves]
    assert found == ["int16", "uint8", "float32", "int8", "uint8", "bool", "object", "datetime64[D]"]
    assert empty.leaves[3].column.shape == (0, 3)  # type: ignore[union-attr]


def test_what_this_package_exports_it_can_read() -> None:
    batch = ArrowBatch({"x": np.arange(3), "t": np.array(["a", None, "b"], object)})
    assert [rows_of(leaf) for leaf in only_chunk(batch).leaves] == [[0, 1, 2], ["a", None, "b"]]


# -- extension types ---------------------------------------------------------------------------------------------------


def extension(name: str, metadata: bytes, storage: pa.Array) -> pa.Array:
    """An array whose schema says that it has an extension type."""
    field = pa.field("x", storage.type, metadata={"ARROW:extension:name": name, "ARROW:extension:metadata": metadata})
    return pa.record_batch([storage], schema=pa.schema([field]))


def test_extension_types_are_their_storage() -> None:
    uuid = pa.array([b"x" * 16], pa.binary(16))
    assert rows_of(only_leaf(extension("arrow.uuid", b"", uuid))) == [b"x" * 16]
    storage = pa.array([[1, 2, 3, 4]], pa.list_(pa.int32(), 4))
    tensor = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [2, 2]), storage)
    assert rows_of(only_leaf(tensor)) == [[1, 2, 3, 4]]


class Trap:
    """An object whose unpickling runs code."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("unpickled",)


def test_pickles_in_the_metadata_of_extension_types_are_never_loaded() -> None:
    import pickle

    source = extension("arrow.py_extension_type", pickle.dumps(Trap()), pa.array([1, 2]))
    assert rows_of(only_leaf(source)) == [1, 2]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), "is a union"),
        (pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]), "is a union"),
        (pa.RunEndEncodedArray.from_arrays([2], [1]), "is run-end encoded (format '+r')"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "is an interval (format 'tin'), which"),
        (pa.ListArray.from_arrays(pa.array([0, 1]), pa.RunEndEncodedArray.from_arrays([1], [1])), "is run-end encoded"),
        (pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([{"a": 1}])), "the dictionary contains structs"),
        (pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[["a"]]])), "the dictionary contains nested lists"),
        (pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[("a", 1)]], WEIGHTS)), "dictionary contains maps"),
        (pa.array([[([1], 1)]], pa.map_(pa.list_(pa.int8()), pa.int8())), "the keys of the map are lists or structs"),
    ],
)  # fmt: skip
def test_a_type_that_cannot_be_read_is_refused_before_any_data(source: pa.Array, said: str) -> None:
    table = pa.record_batch([pa.StructArray.from_arrays([source], ["x"])], ["box"])
    with pytest.raises(ArrowTypeError, match=re.escape("Arrow column 'box.x': ") + ".*" + re.escape(said)) as caught:
        read_arrow(table)
    assert caught.value.column == "box.x"


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ArrowTypeError, match=r"'x': two columns have this name. Rename one"):
        read_arrow(pa.record_batch([pa.array([1]), pa.array([2])], ["x", "x"]))


@pytest.mark.parametrize("source", [None, [1, 2], {"x": 1}, np.arange(3)])
def test_other_objects_are_refused(source: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="expected an Arrow source, got"):
        read_arrow(source)


def test_an_error_of_the_method_of_a_source_passes_unchanged() -> None:
    class Failing:
        def __arrow_c_stream__(self) -> object:
            raise ValueError("not now")

    with pytest.raises(ValueError, match=r"^not now$"):
        read_arrow(Failing())


@pytest.mark.parametrize("given", [None, (1,), (1, 2), "capsule"])
def test_a_method_that_returns_no_capsules_is_an_error_of_the_source(given: Any) -> None:
    class Odd:
        def __arrow_c_array__(self) -> object:
            return given

    with pytest.raises(ArrowDataError, match="Arrow source: "):
        read_arrow(Odd())


# -- lifetime ----------------------------------------------------------------------------------------------------------


def test_the_last_view_of_a_chunk_releases_it_once() -> None:
    made = Made("+s", 2, [None], [Made("i", 2, [None, numbers(1, 2)], name="x"), text_of(b"a", b"b")])
    chunk = only_chunk(made)
    view = chunk.leaves[0].column[:1]  # type: ignore[index]
    text = chunk.leaves[1].column.take(np.array([1]))
    del chunk
    gc.collect()
    assert (made.schema_releases, made.array_releases) == (1, 0)
    assert view.tolist() == [1]
    del view
    assert made.array_releases == 0
    assert column_elements(text) == ["b"]
    del text
    gc.collect()
    assert made.array_releases == 1
    assert [child.array_releases for child in made.children] == [0, 0]  # the producer's own affair


def test_a_stream_is_released_at_its_end_and_chunks_stay() -> None:
    made = [Made("i", 1, [None, numbers(i)]) for i in range(3)]
    stream = MadeStream(made)
    chunks = list(read_arrow(stream))
    assert (stream.releases, [one.array_releases for one in made]) == (1, [0, 0, 0])
    assert [rows_of(chunk.leaves[0]) for chunk in chunks] == [[0], [1], [2]]
    del chunks
    gc.collect()
    assert [one.array_releases for one in made] == [1, 1, 1]


def test_a_closed_source_is_released_and_has_ended() -> None:
    stream = MadeStream([Made("i", 1, [None, numbers(1)])])
    source = read_arrow(stream)
    source.close()
    assert stream.releases == 1
    assert list(source) == []


def test_an_array_that_is_never_read_is_released() -> None:
    made = Made("i", 1, [None, numbers(1)])
    source = read_arrow(made)
    del source
    gc.collect()
    assert (made.schema_releases, made.array_releases) == (1, 1)


def test_a_failing_stream_raises_its_message_and_is_released() -> None:
    stream = MadeStream([Made("i", 1, [None, numbers(1)])], "disk full")
    source = read_arrow(stream)
    next(source)
    with pytest.raises(ArrowDataError, match="Arrow source: the producer failed: disk full"):
        next(source)
    assert stream.releases == 1


def test_an_iterator_of_record_batches_is_read_as_it_goes() -> None:
    asked: list[int] = []

    def batches() -> Any:
        for i in range(3):
            asked.append(i)
            yield pa.record_batch({"x": [i]})

    source = read_arrow(pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), batches()))
    assert (asked, rows_of(next(source).leaves[0]), asked) == ([0], [0], [0])
    assert rows_of(next(source).leaves[0]) == [1]


def test_empty_buffers_may_be_absent() -> None:
    assert rows_of(only_leaf(Made("u", 0, [None, None, None]))) == []
    assert rows_of(only_leaf(Made("i", 0, [None, None]))) == []
    assert rows_of(only_leaf(Made("u", 2, [None, numbers(0, 0, 0), None]))) == ["", ""]


def test_buffers_at_odd_addresses_are_copied() -> None:
    memory = np.zeros(30, np.uint8)
    memory[1:25] = np.arange(3, dtype=np.int64).view(np.uint8)
    made = Made("l", 3, [None, memory])
    made.address(1, memory.ctypes.data + 1)
    column, _ = only_leaf(made)
    assert isinstance(column, np.ndarray)
    assert (column.tolist(), column.flags.aligned) == ([0, 1, 2], True)
