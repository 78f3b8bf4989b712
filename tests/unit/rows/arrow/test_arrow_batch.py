"""A batch becomes a record batch of PyArrow: which type each leaf has, what is shared, and what is refused."""

from __future__ import annotations

import gc
import pickle
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from aiostream_data import ArrowBatch, ArrowDataError, ArrowTypeError, RaggedArray
from aiostream_data.rows.ragged import trusted_ragged

pytestmark = pytest.mark.usefixtures("kernels")

NULL_TEXT = np.dtypes.StringDType(na_object=None)
NAN_TEXT = np.dtypes.StringDType(na_object=float("nan"))


def record_batch(element: Any) -> pa.RecordBatch:
    found = pa.record_batch(ArrowBatch(element))
    found.validate(full=True)
    return found


def column(leaf: Any) -> pa.Array:
    return record_batch({"x": leaf}).column(0)


def address(array: pa.Array, buffer: int) -> int:
    found: int = array.buffers()[buffer].address
    return found


class Box(NamedTuple):
    low: Any
    high: Any


@dataclass
class Sample:
    image: Any
    label: Any


# -- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        *((np.dtype(f"i{size}"), f"int{8 * size}") for size in (1, 2, 4, 8)),
        *((np.dtype(f"u{size}"), f"uint{8 * size}") for size in (1, 2, 4, 8)),
        (np.dtype("f2"), "halffloat"), (np.dtype("f4"), "float"), (np.dtype("f8"), "double"),
        *((np.dtype(f"M8[{unit}]"), f"timestamp[{unit}]") for unit in ("s", "ms", "us", "ns")),
        *((np.dtype(f"m8[{unit}]"), f"duration[{unit}]") for unit in ("s", "ms", "us", "ns")),
    ],
)  # fmt: skip
def test_numbers_share_their_memory(dtype: np.dtype[Any], expected: str) -> None:
    leaf = np.arange(5).astype(dtype)
    found = column(leaf)
    assert str(found.type) == expected
    assert address(found, 1) == leaf.ctypes.data
    assert found.to_numpy().tolist() == leaf.tolist()


def test_a_slice_of_rows_shares_its_memory() -> None:
    leaf = np.arange(10)[3:7]
    assert address(column(leaf), 1) == leaf.ctypes.data


@pytest.mark.parametrize(
    "leaf",
    [
        np.arange(10)[::2],
        np.arange(4)[::-1],
        np.arange(3, dtype=">i4"),
        np.frombuffer(bytes(25), np.uint8)[1:].view("i8"),
    ],
)
def test_rows_that_are_strided_swapped_or_unaligned_are_copied(leaf: Any) -> None:
    assert column(leaf).to_pylist() == leaf.tolist()


def test_booleans_become_bits() -> None:
    leaf = np.arange(19) % 3 == 0
    found = column(leaf)
    assert (str(found.type), found.to_pylist()) == ("bool", leaf.tolist())


def test_days_become_32_bits_wide() -> None:
    leaf = np.array(["1960-02-03", "2026-01-01", "9999-12-31"], "M8[D]")
    found = column(leaf)
    assert (str(found.type), found.to_pylist()) == ("date32[day]", leaf.tolist())


def test_a_day_beyond_32_bits_is_refused_with_its_row() -> None:
    leaf = np.array([0, 2**31], "M8[D]")
    with pytest.raises(ArrowDataError, match="'x': the date 5881580-07-12 of row 1 does not fit") as caught:
        ArrowBatch({"x": leaf})
    assert caught.value.row == 1


@pytest.mark.parametrize("dtype", ["M8[D]", "M8[us]", "m8[ns]"])
def test_nat_becomes_a_missing_value(dtype: str) -> None:
    leaf = np.array([1, "NaT", 3], dtype)
    assert column(leaf).is_null().to_pylist() == [False, True, False]


def test_a_masked_array_has_missing_values() -> None:
    data = np.arange(20)
    leaf = np.ma.masked_array(data, data % 7 == 3)
    found = column(leaf)
    assert found.to_pylist() == leaf.tolist()
    assert found.null_count == 3
    assert address(found, 1) == data.ctypes.data
    assert column(np.ma.masked_array(data)).buffers()[0] is None


def test_masked_dates_and_masked_text_have_missing_values() -> None:
    days = np.ma.masked_array(np.array(["2020-01-01", "NaT", "2020-01-03"], "M8[D]"), [True, False, False])
    assert column(days).is_null().to_pylist() == [True, True, False]
    words = np.ma.masked_array(np.array(["a", None, b"odd"], object), [False, False, True])
    assert column(words).to_pylist() == ["a", None, None]
    assert column(np.ma.masked_array(np.array([b"a", b"b"]), [True, False])).to_pylist() == [None, b"b"]


# -- axes ------------------------------------------------------------------------------------------------------------


def test_axes_become_lists_of_fixed_size_that_share_their_memory() -> None:
    leaf = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    found = column(leaf)
    assert str(found.type) == "fixed_size_list<item: fixed_size_list<item: int16>[4]>[3]"
    assert address(found.flatten().flatten(), 1) == leaf.ctypes.data
    assert found.to_pylist() == leaf.tolist()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 2, 0), (2, 0, 3)])
def test_empty_axes_keep_their_sizes(shape: tuple[int, ...]) -> None:
    leaf = np.zeros(shape, np.float32)
    assert column(leaf).to_pylist() == leaf.tolist()


def test_a_transposed_array_is_copied() -> None:
    leaf = np.arange(6).reshape(2, 3).T
    assert column(leaf).to_pylist() == leaf.tolist()


def test_masks_and_booleans_with_axes() -> None:
    leaf = np.ma.masked_array([[1, 2], [3, 4]], [[False, True], [False, False]])
    assert column(leaf).to_pylist() == [[1, None], [3, 4]]
    flags = np.arange(30).reshape(5, 3, 2) % 4 == 0
    assert column(flags).to_pylist() == flags.tolist()
    words = np.array([["a", None], ["b", "c"]], object)
    assert column(words).to_pylist() == words.tolist()


# -- rows that differ in length --------------------------------------------------------------------------------------


def test_a_ragged_array_shares_its_values_and_splits() -> None:
    leaf = RaggedArray(np.arange(12, dtype=np.float32).reshape(6, 2), np.array([1, 3, 3, 6]))
    found = column(leaf)
    assert str(found.type) == "large_list<item: fixed_size_list<item: float>[2]>"
    assert address(found, 1) == leaf.row_splits.ctypes.data
    assert address(found.values.values, 1) == leaf.values.ctypes.data
    assert found.to_pylist() == leaf.to_list()


def test_a_ragged_array_can_contain_text_and_32_bit_splits() -> None:
    leaf = RaggedArray(np.array(["a", "b", None], object), np.array([0, 2, 2, 3], np.int32))
    assert column(leaf).to_pylist() == [["a", "b"], [], [None]]


class Described(RaggedArray):
    """A ragged array with the attributes of arrays of text."""

    kind: str
    valid: Any


def described(kind: str, valid: Any = None, values: Any = None) -> RaggedArray:
    splits = np.array([0, 2, 2, 5])
    rows = trusted_ragged(np.frombuffer("aöbc".encode(), np.uint8) if values is None else values, splits)
    made = object.__new__(Described)
    for name, value in (("values", rows.values), ("row_splits", splits), ("kind", kind), ("valid", valid)):
        object.__setattr__(made, name, value)
    return made


@pytest.mark.parametrize(
    ("kind", "expected", "rows"),
    [("bytes", "large_binary", [b"ab", b"", b"cde"]), ("str", "large_string", ["ab", "", "cde"])],
)
def test_arrays_of_text_share_their_values_and_splits(kind: str, expected: str, rows: list[Any]) -> None:
    leaf = described(kind, None, np.frombuffer(b"abcde", np.uint8))
    found = column(leaf)
    assert (str(found.type), found.to_pylist()) == (expected, rows)
    assert address(found, 1) == leaf.row_splits.ctypes.data
    assert address(found, 2) == leaf.values.ctypes.data


@pytest.mark.parametrize(("kind", "row"), [("bytes", b"cde"), ("array", [99, 100, 101])])
def test_rows_that_are_not_valid_are_missing(kind: str, row: Any) -> None:
    found = column(described(kind, np.array([False, False, True]), np.frombuffer(b"abcde", np.uint8)))
    assert found.to_pylist() == [None, None, row]
    assert found.null_count == 2


# -- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (np.array(["a", None, "größe"], object), "large_string"),
        (np.array([b"a", None, b"\xff"], object), "large_binary"),
        (np.array(["a", "", "größe"]), "large_string"),
        (np.array([b"a", b"", b"\xff\xfe"]), "large_binary"),
        (np.array(["a", None, "größe"], NULL_TEXT), "large_string"),
        (np.array([None, None], object), "null"),
        (np.array([], object), "null"),
        (np.array([], NULL_TEXT), "large_string"),
    ],
)
def test_text_and_bytes_are_copied(leaf: Any, expected: str) -> None:
    found = column(leaf)
    assert (str(found.type), found.to_pylist()) == (expected, leaf.tolist())


def test_text_that_is_not_a_number_is_missing() -> None:
    assert column(np.array(["a", float("nan")], NAN_TEXT)).to_pylist() == ["a", None]
    placeholder = np.array(["a", "?"], np.dtypes.StringDType(na_object="?"))
    assert column(placeholder).to_pylist() == ["a", "?"]


def test_text_with_a_surrogate_is_refused_with_its_row() -> None:
    with pytest.raises(ArrowDataError, match="'x': the text of row 1 contains a surrogate") as caught:
        ArrowBatch({"x": np.array(["a", "\ud800"], object)})
    assert caught.value.row == 1


# -- structures ------------------------------------------------------------------------------------------------------


def test_dicts_tuples_and_dataclasses_become_structs() -> None:
    x = np.arange(2)
    element = {"pair": (x, x + 1), "box": Box(x, {"deep": x}), "sample": Sample(x.reshape(2, 1), x), 7: x}
    found = record_batch(element)
    assert found.schema.names == ["pair", "box", "sample", "7"]
    assert found.to_pylist()[1] == {
        "pair": {"0": 1, "1": 2},
        "box": {"low": 1, "high": {"deep": 1}},
        "sample": {"image": [1], "label": 1},
        "7": 1,
    }


def test_a_batch_that_is_one_array_has_one_column() -> None:
    assert record_batch(np.arange(2)).to_pylist() == [{"element": 0}, {"element": 1}]


def test_all_fields_can_be_missing_so_that_batches_have_one_schema() -> None:
    first = record_batch({"x": np.ma.masked_array([1, 2], [True, False])})
    second = record_batch({"x": np.array([3, 4])})
    assert pa.Table.from_batches([first, second]).column("x").to_pylist() == [None, 2, 3, 4]


def test_a_batch_has_a_length_an_element_and_a_text() -> None:
    element = {"x": np.arange(3), "y": np.zeros((3, 2))}
    batch = ArrowBatch(element)
    assert (len(batch), batch.element is element, repr(batch)) == (3, True, "ArrowBatch(3 rows: x, y)")
    again = pickle.loads(pickle.dumps(batch))
    assert pa.record_batch(again).equals(pa.record_batch(batch))


def test_a_batch_can_be_exported_many_times_and_as_a_stream() -> None:
    batch = ArrowBatch({"x": np.arange(3)})
    assert pa.schema(batch).names == ["x"]
    assert pa.record_batch(batch).equals(pa.record_batch(batch))
    assert pa.table(batch).to_pydict() == {"x": [0, 1, 2]}
    assert pa.RecordBatchReader.from_stream(batch).read_all().num_rows == 3
    assert pa.array(batch).to_pylist()[2] == {"x": 2}


# -- lifetime --------------------------------------------------------------------------------------------------------


def test_an_exported_array_outlives_its_batch() -> None:
    leaf = np.arange(1_000)
    alive = weakref.ref(leaf)
    found = pa.record_batch(ArrowBatch({"x": leaf})).column(0)
    del leaf
    gc.collect()
    assert found.to_pylist() == list(range(1_000))
    del found
    gc.collect()
    assert alive() is None


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "said"),
    [
        (np.zeros(2, complex), r"dtype complex128. Split complex numbers into two arrays, .real and .imag"),
        (np.zeros(2, np.longdouble), "dtype float128. Convert the leaf to float64"),
        (np.zeros(2, "M8[h]"), r"Convert the leaf to datetime64\[s\], \[ms\], \[us\] or \[ns\]"),
        (np.zeros(2, "m8[D]"), r"Convert the leaf to timedelta64\[s\]"),
        (np.zeros(2, [("a", "i4")]), "Pass a dict with one array per field"),
        (np.zeros(2, "V4"), "Convert the leaf to numbers, bytes or str"),
        (np.array([1, "a"], object), "Python objects of type int and str. Convert them"),
        (np.array([b"a", "a"], object), "Python objects of type bytes and str"),
        (np.array(7), "is not an array. Pass a batch whose leaves are arrays"),
        (np.ma.masked_array(7), "the leaf has no Arrow form: "),
        (7, "the leaf 7 of type int is not an array"),
        ("text", "of type str is not an array"),
        (None, "of type NoneType is not an array"),
        (["a", "b"], "of type list is not an array"),
        (trusted_ragged([1, 2], np.array([0, 2])), "the values of the RaggedArray are on a device"),
    ],
)
def test_a_leaf_without_an_arrow_form_is_refused_with_its_path(leaf: Any, said: str) -> None:
    with pytest.raises(ArrowTypeError, match=rf"Arrow column 'a\.b\[1\]': .*{said}") as caught:
        ArrowBatch({"a": {"b": (np.arange(2), leaf)}})
    assert caught.value.column == "a.b[1]"
    assert isinstance(caught.value, TypeError)


def test_leaves_that_differ_in_length_are_refused() -> None:
    with pytest.raises(ArrowDataError, match="'b': the leaf has 3 rows, but 'a' has 2"):
        ArrowBatch({"a": np.arange(2), "b": np.arange(3)})


@pytest.mark.parametrize("element", [{}, (), {"a": {}}])
def test_a_batch_without_leaves_is_refused(element: Any) -> None:
    with pytest.raises(ArrowTypeError, match="has no leaves"):
        ArrowBatch(element)


@pytest.mark.parametrize("name", ["a\0", "\ud800"])
def test_a_name_that_arrow_cannot_store_is_refused(name: str) -> None:
    with pytest.raises(ArrowTypeError, match=r"an Arrow field cannot have this name: .*Rename the leaf"):
        ArrowBatch({name: np.arange(2)})
