"""Columns of Parquet and Arrow files whose types differ: converted to a declared type, or refused."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_bytes import directory_of, plain_rows, rows_of

from aiostream_data import Dataset, PlanError, StateMismatchError, TableSchemaError
from aiostream_data.formats.arrow_files import ArrowFormat
from aiostream_data.formats.declared_types import checked_types
from aiostream_data.formats.parquet import ParquetFormat
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.testing.table_reading import is_view, parts_of

KINDS = ["parquet", "arrow"]
NUMBERS = {
    kind: pa.type_for_alias(kind)
    for kind in [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)] + ["float", "double", "bool"]
} | {"halffloat": pa.float16()}

WIDER = {
    np.int16: {"int8", "uint8", "int16"},
    np.int32: {"int8", "uint8", "int16", "uint16", "int32"},
    np.int64: {"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"},
    np.uint16: {"uint8", "uint16"},
    np.uint64: {"uint8", "uint16", "uint32", "uint64"},
    np.float32: {"int8", "uint8", "int16", "uint16", "halffloat", "float"},
    np.float64: {"int8", "uint8", "int16", "uint16", "int32", "uint32", "halffloat", "float", "double"},
    np.bool_: {"bool"},
    str: set[str](),
    bytes: set[str](),
}


def write(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=3)
        return
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=3)


def read(kind: str, files: Any, **options: Any) -> Dataset[dict[str, Any]]:
    return Dataset.from_parquet(files, **options) if kind == "parquet" else Dataset.from_arrow(files, **options)


def column(kind: pa.DataType, first: int = 0, rows: int = 8) -> pa.Array:
    """Return numbers of a type, of which one is missing."""
    numbers = np.arange(first, first + rows) % 100
    dtype = bool if pa.types.is_boolean(kind) else kind.to_pandas_dtype()
    return pa.array(numbers.astype(dtype), kind, mask=np.arange(rows) == 2)


@pytest.fixture(params=KINDS)
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Files of int32, int64, dictionary-encoded int16, and null columns. Return their kind and their pattern."""
    columns = [
        column(pa.int32()),
        column(pa.int64(), 10),
        column(pa.int16(), 20).dictionary_encode(),
        pa.nulls(8),
    ]
    for number, each in enumerate(columns):
        table = pa.table({"n": each, "text": [f"{number} {row}" for row in range(8)]})
        write(tmp_path / f"{number}.{request.param}", table)
    return request.param, tmp_path / f"*.{request.param}"


EXPECTED: list[dict[str, Any]] = [
    {"n": None if row == 2 or file == 3 else 10 * file + row, "text": f"{file} {row}"}
    for file in range(4)
    for row in range(8)
]


def test_a_column_has_the_declared_type_in_every_file(shards: tuple[str, Path]) -> None:
    kind, pattern = shards
    found = list(read(kind, pattern, schema={"n": np.int64}))
    assert found == EXPECTED
    assert {type(row["n"]) for row in found} == {int, type(None)}
    floats = list(read(kind, str(pattern).replace("*", "[023]"), schema={"n": "float64"}))
    assert {type(row["n"]) for row in floats} == {float, type(None)}
    assert floats == [row for row in EXPECTED if not row["text"].startswith("1")]


def test_files_of_different_types_form_one_batch(shards: tuple[str, Path]) -> None:
    kind, pattern = shards
    rows = read(kind, pattern, schema={"n": np.int64}, cycle_length=3).filter(lambda row: row["n"] is not None)
    (batch,) = rows.batch(100)
    assert batch["n"].dtype == np.int64
    assert sorted(batch["n"].tolist()) == sorted(row["n"] for row in EXPECTED if row["n"] is not None)


def test_runs_with_a_declared_type_resume_everywhere_and_rows_can_be_fetched(shards: tuple[str, Path]) -> None:
    kind, pattern = shards
    dataset = read(kind, pattern, schema={"n": np.int64}, cycle_length=2, shuffle_shards=True, seed=5)
    resumes_everywhere(dataset.shuffle(5, seed=1), every=5)
    with dataset.open() as loader:
        for row in loader:
            fetched = dataset.fetch(loader.origins(row)[0])
            assert fetched == row
            assert type(fetched["n"]) is type(row["n"])


def test_a_worker_process_reads_the_declared_types(shards: tuple[str, Path]) -> None:
    kind, pattern = shards
    dataset = read(kind, pattern, schema={"n": np.int64})
    assert list(dataset.in_subprocess()) == EXPECTED


def test_a_state_of_another_schema_is_refused(shards: tuple[str, Path]) -> None:
    kind, pattern = shards
    one = str(pattern).replace("*", "0")
    with read(kind, one).open() as loader:
        next(loader)
        state = loader.state_dict()
    with pytest.raises(StateMismatchError):
        read(kind, one, schema={"n": np.int64}).open(state)
    with read(kind, one, schema={"n": np.int64, "text": str}).open() as loader:
        next(loader)
        declared = loader.state_dict()
    for other in (None, {"n": np.int32, "text": str}):
        with pytest.raises(StateMismatchError):
            read(kind, one, schema=other).open(declared)
    with read(kind, one, schema={"text": str, "n": "int64"}).open(declared) as loader:
        assert list(loader) == EXPECTED[1:8]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", WIDER)
def test_numbers_are_converted_to_types_that_contain_all_of_them(tmp_path: Path, kind: str, wanted: Any) -> None:
    for name, stored in NUMBERS.items():
        path = tmp_path / f"{name}.{kind}"
        write(path, pa.table({"x": column(stored)}))
        dataset = read(kind, path, schema={"x": wanted})
        if name in WIDER[wanted]:
            values = [row["x"] for row in dataset]
            assert values == column(stored).to_pylist()
            assert np.array([each for each in values if each is not None]).dtype == wanted
            continue
        message = rf"{name}\.{kind}: column 'x' is {name}, whose values are not all values of {np.dtype(wanted).name}, "
        if wanted in (str, bytes):
            message = message.replace(np.dtype(wanted).name, wanted.__name__)
        with pytest.raises(TableSchemaError, match=message + r"the type in schema=\. Declare a type") as raised:
            list(dataset)
        assert raised.value.column == "x"


@pytest.mark.parametrize("kind", KINDS)
def test_the_least_and_largest_numbers_keep_their_values(tmp_path: Path, kind: str) -> None:
    for bits, wanted in ((8, "int16"), (16, "float32"), (32, "int64"), (32, "float64")):
        for sign in ("int", "uint"):
            limits = np.iinfo(f"{sign}{bits}")
            path = tmp_path / f"{sign}{bits}{wanted}.{kind}"
            write(path, pa.table({"x": pa.array([limits.min, None, limits.max], pa.type_for_alias(f"{sign}{bits}"))}))
            assert [row["x"] for row in read(kind, path, schema={"x": wanted})] == [limits.min, None, limits.max]


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_every_layout_is_the_declared_text(tmp_path: Path, kind: str) -> None:
    texts = pa.array(["a", None, "c"])
    for number, each in enumerate([texts, texts.cast(pa.large_string()), texts.dictionary_encode(), pa.nulls(3)]):
        write(tmp_path / f"{number}.{kind}", pa.table({"x": each}))
    found = [row["x"] for row in read(kind, tmp_path / f"*.{kind}", schema={"x": str})]
    assert found == ["a", None, "c"] * 3 + [None] * 3
    blobs = pa.array([b"ab", None, b"cd"])
    for number, each in enumerate([blobs, blobs.cast(pa.large_binary()), blobs.cast(pa.binary(2))]):
        write(tmp_path / f"b{number}.{kind}", pa.table({"x": each}))
    assert [row["x"] for row in read(kind, tmp_path / f"b*.{kind}", schema={"x": bytes})] == [b"ab", None, b"cd"] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_large_files_are_converted_within_the_memory_that_they_declare(tmp_path: Path, kind: str) -> None:
    rows, path = 400_000, tmp_path / f"x.{kind}"
    table = pa.table({"n": np.arange(rows, dtype=np.int32), "i": np.arange(rows, dtype=np.int8)})
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=150_000)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=10_000)
    schema = {"n": np.int64, "i": np.float64}
    found = read(kind, path, schema=schema).batch(rows)
    (batch,) = found
    assert (batch["n"].dtype, batch["i"].dtype) == (np.int64, np.float64)
    assert batch["n"].tolist() == list(range(rows))
    assert batch["i"].tolist() == table["i"].to_pylist()
    data = path.read_bytes()
    sizes: list[int] = []
    for each in (None, schema):
        types = checked_types(each)
        format = ParquetFormat(declared=types) if kind == "parquet" else ArrowFormat(declared=types)
        directory = directory_of(format, data)
        sizes.append(0)
        for group in directory.groups_from(0):
            parts = parts_of(data, group.ranges)
            sizes[-1] += (nbytes := directory.decoded_nbytes(group, parts))
            leaves = [leaf for found in directory.decode(group, parts) for leaf in found.leaves]
            assert sum(leaf.nbytes for leaf in leaves if not is_view(leaf, parts)) <= nbytes
    assert sizes[1] == sizes[0] + 16 * rows


def test_directories_read_rows_of_declared_types_from_every_row(tmp_path: Path) -> None:
    for kind, format in (
        ("parquet", ParquetFormat(declared=(("n", "int64"),))),
        ("arrow", ArrowFormat(declared=(("n", "int64"),))),
    ):
        write(tmp_path / f"x.{kind}", pa.table({"n": column(pa.int32())}))
        data = (tmp_path / f"x.{kind}").read_bytes()
        for first in range(9):
            assert plain_rows(rows_of(format, data, first)) == [{"n": row["n"]} for row in EXPECTED[first:8]]


def test_filters_see_the_declared_type(tmp_path: Path) -> None:
    """A number of float32 is not 0.1, but larger. Statistics of the files must not exclude it."""
    for number, kind in enumerate((pa.float32(), pa.float64())):
        write(tmp_path / f"{number}.parquet", pa.table({"x": pa.array([0.1, None, 0.05], kind)}))
    pattern, schema, rounded = tmp_path / "*.parquet", {"x": np.float64}, float(np.float32(0.1))
    for operator, value, wanted in (
        ("==", 0.1, [0.1]),
        (">", 0.1, [rounded]),
        ("in", [0.1], [0.1]),
        ("<=", 0.1, [float(np.float32(0.05)), 0.1, 0.05]),
        ("==", rounded, [rounded]),
    ):
        for columns in (None, ["x"]):
            found = Dataset.from_parquet(pattern, columns, [("x", operator, value)], schema=schema)
            assert [row["x"] for row in found] == wanted
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    for number, kind in enumerate((pa.int32(), pa.int64(), pa.uint8())):
        write(numbers / f"{number}.parquet", pa.table({"n": column(kind, 10 * number), "m": range(8)}))
    found = Dataset.from_parquet(
        numbers / "*.parquet", ["m", "n"], [("n", "in", [7, 10, 27, 1 << 40])], schema={"n": "int64"}
    )
    assert list(found) == [{"m": 7, "n": 7}, {"m": 0, "n": 10}, {"m": 7, "n": 27}]
    others = Dataset.from_parquet(numbers / "*.parquet", ["m"], [("n", ">=", 26)], schema={"n": "int64"})
    assert list(others) == [{"m": 6}, {"m": 7}]


def test_partitions_are_text_that_can_be_declared(tmp_path: Path) -> None:
    for number, kind in enumerate((pa.int32(), pa.int64())):
        folder = tmp_path / f"part={number}"
        folder.mkdir()
        write(folder / "x.parquet", pa.table({"n": column(kind, 10 * number), "part": [9] * 8}))
    pattern = tmp_path / "*" / "*.parquet"
    schema = {"n": np.int64, "part": str}
    for filters, files in ((None, (0, 1)), ([("part", "=", "1")], (1,)), ([("part", "=", "1"), ("n", ">", 0)], (1,))):
        found = list(Dataset.from_parquet(pattern, filters=filters, partitions=True, schema=schema))
        given = [{"n": row["n"], "part": row["text"][0]} for row in EXPECTED if int(row["text"][0]) in files]
        assert found == [row for row in given if filters is None or len(filters) < 2 or row["n"] is not None]
    with pytest.raises(TableSchemaError, match="column 'part' is string, whose values are not all values of int64"):
        list(Dataset.from_parquet(pattern, partitions=True, schema={"n": np.int64, "part": np.int64}))


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_files_that_differ_names_schema_and_other_columns_are_not_converted(
    tmp_path: Path, kind: str
) -> None:
    for number, stored in enumerate((pa.int32(), pa.int64())):
        write(tmp_path / f"{number}.{kind}", pa.table({"a": column(stored), "b": column(stored)}))
    for schema, names in ((None, "[ab]"), ({"a": np.int64}, "b")):
        message = rf"column '{names}' is int\d\d, but int\d\d in .*\. Declare a type .* with schema={{name: type}}"
        with pytest.raises(TableSchemaError, match=message) as raised:
            list(read(kind, tmp_path / f"*.{kind}", schema=schema))
        assert set(re.findall(rf"\d\.{kind}", str(raised.value))) == {f"0.{kind}", f"1.{kind}"}


@pytest.mark.parametrize("kind", KINDS)
def test_types_that_are_not_converted_and_unknown_columns_are_refused(tmp_path: Path, kind: str) -> None:
    numbers = count()
    table = pa.table(
        {
            "list": [[1], [2]],
            "box": [{"x": 1}, {"x": 2}],
            "time": pa.array([1, 2], pa.timestamp("us")),
            "text": ["1", "2"],
            "price": pa.array([1, 2]).cast(pa.decimal128(21, 2)),
        }
    )
    path = tmp_path / f"x.{kind}"
    write(path, table)
    for name in table.column_names:
        for wanted in (np.int64, np.float64, bytes, bool):
            with pytest.raises(TableSchemaError, match=f"column '{name}' is .*not all values of"):
                list(read(kind, path, schema={name: wanted}))
            next(numbers)
    for name, message in (
        ("n", "has no column 'n', which schema declares"),
        ("box.x", "Name a whole column, not a field of a struct"),
        ("box.y", "Name a whole column"),
    ):
        with pytest.raises(PlanError, match=message):
            list(read(kind, path, schema={name: np.int64}))
    assert len(list(read(kind, path, columns=["text"], schema={"text": str, "time": np.int64}))) == 2
    assert next(numbers) == 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "schema must contain at least one column"),
        ([("a", int)], "schema must be a dict such as"),
        ("infer", "schema must be a dict such as"),
        ({1: np.int64}, "the names of schema must be str"),
        ({"a": None}, r"schema\['a'\] must be str, bytes, bool, or a dtype of"),
        ({"a": "datetime64[s]"}, r"schema\['a'\] must be"),
        ({"a": np.complex64}, r"schema\['a'\] must be"),
        ({"a": np.longdouble}, r"schema\['a'\] must be"),
        ({"a": "no dtype"}, r"schema\['a'\] must be"),
        ({"a": "U7"}, r"schema\['a'\] must be"),
    ],
)
def test_schemas_that_are_no_mapping_to_types_are_refused(kind: str, schema: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read(kind, "x", schema=schema)


def test_types_may_be_given_in_every_spelling_of_numpy() -> None:
    given = {"e": "f2", "b": "i4", "a": int, "c": "str", "d": np.dtype("bool"), "f": np.bytes_, "g": np.longlong}
    wanted = [("a", "int64"), ("b", "int32"), ("c", "str"), ("d", "bool"), ("e", "float16"), ("f", "bytes")]
    assert checked_types(given) == (*wanted, ("g", "int64"))
