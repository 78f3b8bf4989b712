"""Arrow IPC files: rows, columns, resuming, dictionaries, and damaged files."""

from __future__ import annotations

import io
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from table_bytes import directory_of, plain_rows, rows_of

from aiostream_data import (
    AiostreamError,
    ArrowTypeError,
    CorruptRecordError,
    Dataset,
    MemoryBudgetError,
    PlanError,
    StateMismatchError,
    TableSchemaError,
)
from aiostream_data.formats.arrow_files import ArrowFormat
from aiostream_data.formats.row_groups import advance
from aiostream_data.formats.table_types import TypesOfFiles
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.testing.table_reading import parts_of

ROWS = 24
TABLE = pa.table(
    {
        "n": pa.array(range(ROWS), pa.int32()),
        "text": [None if n % 5 == 3 else f"text {n}" for n in range(ROWS)],
        "words": pa.array([["a", "b"][n % 2] for n in range(ROWS)]).dictionary_encode(),
        "values": [None if n == 7 else list(range(n % 4)) for n in range(ROWS)],
        "box": [{"x": n / 2, "y": None if n % 3 else n} for n in range(ROWS)],
        "view": pa.array([f"a long text, number {n}" for n in range(ROWS)], pa.string_view()),
        "pair": pa.array([[n, -n] for n in range(ROWS)], pa.list_(pa.float32(), 2)),
        "is_even": [n % 2 == 0 for n in range(ROWS)],
    }
)
KINDS: dict[str, Callable[..., Any]] = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}


def written(table: Any, kind: str = "file", compression: str | None = None, rows: int = 7, **options: Any) -> bytes:
    made = io.BytesIO()
    write = pa.ipc.IpcWriteOptions(compression=compression, **options)
    with KINDS[kind](made, table.schema, options=write) as writer:
        writer.write_table(table, max_chunksize=rows)
    return made.getvalue()


def read(data: bytes, *columns: str, first: int = 0, limit: int = 1 << 28) -> list[Any]:
    return plain_rows(rows_of(ArrowFormat(columns=columns or None), data, first, limit))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, kind in enumerate(("file", "stream", "file")):
        part = TABLE.slice(8 * number, 8)
        (tmp_path / f"{number}.arrow").write_bytes(written(part, kind, "zstd" if number else None, 3))
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_rows_are_those_of_pyarrow(kind: str, compression: str | None) -> None:
    data = written(TABLE, kind, compression)
    assert read(data) == TABLE.to_pylist()
    for columns in (["n"], ["text", "n"], ["box", "words"], ["pair"]):
        rows = read(data, *columns)
        assert rows == TABLE.select(columns).to_pylist()
        assert list(rows[0]) == columns
    assert read(data, "box.x") == [{"box": {"x": n / 2}} for n in range(ROWS)]


def test_reading_from_any_row_needs_no_earlier_batch() -> None:
    data = written(TABLE, rows=5)
    directory = directory_of(ArrowFormat(), data)
    for row in range(ROWS + 1):
        groups = list(directory.groups_from(row))
        assert not groups or groups[0].first_row == row // 5 * 5
        assert read(data, "n", "words", first=row) == TABLE.select(["n", "words"]).to_pylist()[row:]


def test_files_are_interleaved_and_resume_after_every_row(folder: Path) -> None:
    dataset = Dataset.from_arrow(folder / "*.arrow", ["n", "text"], cycle_length=2, block_length=3)
    assert [row["n"] for row in dataset][:9] == [0, 1, 2, 8, 9, 10, 3, 4, 5]
    resumes_everywhere(dataset.take(12).shuffle(4, seed=1))
    shuffled = Dataset.from_arrow(folder / "*.arrow", ["n"], shuffle_shards=True, seed=3)
    assert sorted(row["n"] for row in shuffled) == list(range(ROWS))


@pytest.mark.parametrize("kind", KINDS)
def test_dictionaries_may_grow(kind: str) -> None:
    words = pa.array(["a", "b", "a", "c", "d", "a", None])
    parts = [words.slice(0, 3), words.slice(0, 5), words]
    batches = [pa.record_batch({"w": part.dictionary_encode()}) for part in parts]
    made = io.BytesIO()
    with KINDS[kind](made, batches[0].schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    expected = [{"w": word} for part in parts for word in part.to_pylist()]
    assert read(made.getvalue()) == expected
    for first in range(len(expected)):
        assert read(made.getvalue(), first=first) == expected[first:]


def steps_of(data: bytes, limit: int = 1 << 28) -> list[int]:
    """Return the number of bytes of each step that reads the directory."""
    sizes: list[int] = []
    steps = ArrowFormat().directory("file", len(data))
    ranges, found = advance(steps, None)
    while found is None:
        sizes.append(sum(part.nbytes for part in ranges))
        too_large = MemoryBudgetError("too large") if sizes[-1] > limit else None
        ranges, found = advance(steps, too_large or parts_of(data, ranges))
    return sizes


def test_small_messages_of_a_stream_are_read_together() -> None:
    small = written(pa.table({"n": np.arange(2_000_000)}), "stream", rows=1000)
    sizes = steps_of(small)
    assert len(sizes) < 15, "of 2,000 messages"
    assert max(sizes) == 4 << 20
    assert read(small, first=1_999_990) == [{"n": n} for n in range(1_999_990, 2_000_000)]
    large = written(pa.table({"n": np.arange(2_000_000)}), "stream", rows=400_000)
    assert sum(steps_of(large)) < 1 << 20, "the bodies of large messages are skipped"


def test_messages_are_read_one_by_one_if_the_memory_is_small(tmp_path: Path) -> None:
    data = written(pa.table({"n": np.arange(500_000)}), "stream", rows=1000)
    limit = 1_000_000
    assert sum(size > limit for size in steps_of(data, limit)) == 1
    path = tmp_path / "rows.arrow"
    path.write_bytes(data)
    with Dataset.from_arrow(path).batch(1000).open(memory_limit=limit) as loader:
        assert [int(batch["n"][0]) for batch in loader] == list(range(0, 500_000, 1000))


def test_the_directory_of_a_stream_keeps_only_metadata() -> None:
    data = written(pa.table({"n": np.arange(2_000_000)}), "stream", rows=1000)
    tracemalloc.start()
    try:
        directory = directory_of(ArrowFormat(), data)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert directory.rows == 2_000_000
    assert held < 4 << 20, "of 16 MB that were read"


def test_dictionaries_of_a_stream_may_be_replaced() -> None:
    parts = [pa.array(["a", "b"]), pa.array(["c", "b", "c"]), pa.array(["c", "b", "c"]), pa.array(["x"])]
    batches = [pa.record_batch({"w": part.dictionary_encode(), "n": pa.array(range(len(part)))}) for part in parts]
    made = io.BytesIO()
    with pa.ipc.new_stream(made, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    expected = [word for part in parts for word in part.to_pylist()]
    for first in range(len(expected)):
        assert [row["w"] for row in read(made.getvalue(), "w", first=first)] == expected[first:]
    assert len(read(made.getvalue(), "n")) == len(expected)


def test_extension_types_are_read_as_their_storage() -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"] * 2, pa.binary(16)))
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8, dtype=np.float32).reshape(2, 4))
    rows = read(written(pa.table({"id": ids, "t": tensors})))
    assert rows == [{"id": b"0123456789abcdef", "t": [4.0 * n + i for i in range(4)]} for n in range(2)]


def test_columns_that_are_not_selected_may_have_any_type() -> None:
    table = pa.table(
        {
            "union": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]),
            "dense": pa.UnionArray.from_dense(
                pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["y"])]
            ),
            "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int16()), pa.array(["r"])),
            "nothing": pa.nulls(2),
            "n": [7, 8],
        }
    )
    assert read(written(table), "n") == [{"n": 7}, {"n": 8}]
    assert read(written(table), "nothing") == [{"nothing": None}] * 2
    for name in ("union", "dense", "runs"):
        with pytest.raises(ArrowTypeError, match=name):
            read(written(table), name)


def test_files_without_rows_are_read() -> None:
    for kind in KINDS:
        assert read(written(TABLE.slice(0, 0), kind)) == []
    assert read(written(TABLE.select(["n"]), "file", rows=1), first=ROWS) == []
    with pytest.raises(CorruptRecordError, match="has no columns"):
        read(written(pa.table({})))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_at_any_byte_is_an_error_that_names_it(kind: str) -> None:
    data = written(TABLE.select(["n", "words"]).slice(0, 3), kind)
    for size in range(len(data)):
        with pytest.raises(CorruptRecordError, match="file at byte"):
            read(data[:size])
    assert len(read(data)) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_changed_bytes_give_other_rows_or_an_error_but_no_crash(kind: str, compression: str | None) -> None:
    data, draw = written(TABLE.slice(0, 9), kind, compression, 4), np.random.default_rng(5)
    for turn in range(120):
        changed = bytearray(data)
        for place in draw.integers(0, len(data) - 8, 3):
            size = 1 if turn % 2 else 8
            changed[place : place + size] = [b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f" + bytes(4)][turn % 3][:size]
        with suppress(AiostreamError):
            read(bytes(changed), limit=1 << 24)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "neither an Arrow IPC file"),
        (b"PAR1" + bytes(50), "neither an Arrow IPC file"),
        (b"FEA1" + bytes(50), "Feather file of version 1"),
        (b"ARROW1\0\0" + bytes(50), "cut short"),
        (b"ARROW1\0\0" + bytes(50) + struct.pack("<i", -5) + b"ARROW1", "the footer has -5 bytes"),
        (b"ARROW1\0\0" + bytes(50) + struct.pack("<i", 2**31 - 1) + b"ARROW1", "the footer has 2147483647 bytes"),
        (b"ARROW1\0\0" + bytes(50) + struct.pack("<i", 40) + b"ARROW1", "PyArrow cannot read|metadata|no schema"),
        (b"\xff\xff\xff\xff" + struct.pack("<i", -1) + bytes(50), "the metadata of a message has -1 bytes"),
        (b"\xff\xff\xff\xff" + struct.pack("<i", 2**31 - 1) + bytes(50), "cut short"),
        (b"\xff\xff\xff\xff" + bytes(4), "the stream has no schema"),
    ],
    ids=range(10),
)
def test_other_files_and_hostile_lengths_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=message):
        read(data)


def blocks_of(data: bytes) -> int:
    """Return the place of the first block of record batches in the footer, from its known offset and sizes."""
    steps = ArrowFormat().directory("file", len(data))
    advance(steps, None)
    ranges, _ = advance(steps, [memoryview(data)])
    found = data.rfind(struct.pack("<q", ranges[0].start))
    assert found > 0
    return found


@pytest.mark.parametrize(("place", "value"), [(0, -8), (0, 2**62), (8, -1), (8, 2**31 - 1), (16, -1), (16, 2**62)])
def test_hostile_places_of_record_batches_are_refused(place: int, value: int) -> None:
    data = bytearray(written(TABLE.select(["n"])))
    struct.pack_into("<i" if place == 8 else "<q", data, blocks_of(bytes(data)) + place, value)
    with pytest.raises(CorruptRecordError, match="the footer places"):
        read(bytes(data))


def test_offsets_of_text_and_indices_are_checked() -> None:
    for table, old, new in (
        (pa.table({"t": ["one", "three"]}), struct.pack("<iii", 0, 3, 8), struct.pack("<iii", 0, 9, 8)),
        (pa.table({"t": ["one", "three"]}), struct.pack("<iii", 0, 3, 8), struct.pack("<iii", 0, 3, 2**30)),
        (pa.table({"t": ["one", "three"]}), b"onethree", b"one\xff\xff\xff\xff\xff"),
        (pa.table({"t": [[1], [2, 3]]}), struct.pack("<iii", 0, 1, 3), struct.pack("<iii", 0, -1, 3)),
        (
            pa.table({"t": pa.DictionaryArray.from_arrays([1, 0, 1], ["a", "b"])}),
            struct.pack("<qq", 1, 0),
            b"\x05" * 16,
        ),
    ):
        data = written(table)
        assert data.count(old) == 1
        with pytest.raises(CorruptRecordError, match=r"column .t.|PyArrow"):
            read(data.replace(old, new))


def test_memory_beyond_the_limit_is_refused_before_it_is_used(tmp_path: Path) -> None:
    zeros = written(pa.table({"zeros": np.zeros(20_000_000)}), compression="zstd", rows=20_000_000)
    assert len(zeros) < 1 << 20
    with pytest.raises(MemoryBudgetError):
        read(zeros, limit=64 << 20)
    (tmp_path / "large.arrow").write_bytes(zeros)
    with (
        pytest.raises(MemoryBudgetError, match=r"large\.arrow needs \d+ bytes"),
        Dataset.from_arrow(tmp_path / "large.arrow").open(memory_limit="64MB") as loader,
    ):
        list(loader)
    wide = pa.array([[0] * 100_000], pa.list_(pa.int64(), 100_000))
    with pytest.raises(MemoryBudgetError):  # one value of a dictionary that many rows repeat
        read(
            written(pa.table({"w": pa.DictionaryArray.from_arrays(pa.array([0] * 500, pa.int8()), wide)}), rows=500),
            limit=64 << 20,
        )
    with pytest.raises(MemoryBudgetError):  # rows without bytes
        read(written(pa.table({"n": pa.nulls(1 << 24)}), rows=1 << 24), limit=64 << 20)


def test_unknown_columns_are_named(folder: Path) -> None:
    with pytest.raises(PlanError, match=r"0\.arrow has no column 'colour'. Its columns are 'n', 'text'"):
        list(Dataset.from_arrow(folder / "*.arrow", ["colour"]))
    with pytest.raises(PlanError, match=r"no column 'box\.z'"):
        list(Dataset.from_arrow(folder / "*.arrow", ["box.z"]))
    for columns in ("n", [], ["n", "n"], [1]):
        with pytest.raises(PlanError):
            Dataset.from_arrow("x.arrow", columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tables", "messages"),
    [
        ([{"a": [1]}, {"a": [1.5]}], {"column 'a' is double, but int64 in", "column 'a' is int64, but double in"}),
        ([{"a": [1], "b": [1]}, {"a": [1]}], {"the file has no column 'b', which"}),
        ([{"a": [1]}, {"a": [1], "b": [1]}], {"the file has no column 'b', which"}),
        (
            [{"a": [{"x": 1}]}, {"a": [{"x": "1"}]}],
            {"column 'a.x' is text, but int64 in", "column 'a.x' is int64, but text in"},
        ),
    ],
    ids=["type", "less", "more", "field"],
)
def test_files_whose_columns_differ_are_named(tmp_path: Path, tables: list[Any], messages: set[str]) -> None:
    for number, table in enumerate(tables):
        (tmp_path / f"{number}.arrow").write_bytes(written(pa.table(table)))
    with pytest.raises(TableSchemaError, match=r"0\.arrow") as raised:  # in the order in which they were opened
        list(Dataset.from_arrow(tmp_path / "*.arrow"))
    assert "1.arrow" in str(raised.value)
    assert any(message in str(raised.value) for message in messages)
    assert raised.value.column in ("a", "b", "a.x")


def test_a_column_without_values_fits_every_type() -> None:
    seen = TypesOfFiles()
    seen.add("0", {"a": None, "b": "text"})
    seen.add("1", {"b": None, "a": "int64"})
    seen.add("2", {"a": "int64", "b": "text"})
    with pytest.raises(TableSchemaError, match="3: column 'a' is double, but int64 in 1"):
        seen.add("3", {"a": "double", "b": "text"})


def test_files_of_other_data_sets_may_have_other_columns(tmp_path: Path) -> None:
    for number, table in enumerate(({"a": [1, 2]}, {"a": ["x", "y"]})):
        (tmp_path / f"{number}.arrow").write_bytes(written(pa.table(table)))
    paths = [str(tmp_path / f"{number}.arrow") for number in range(2)]
    files = Dataset.from_iterable(paths)
    expected = [{"a": 1}, {"a": 2}, {"a": "x"}, {"a": "y"}]
    assert list(files.flat_map(lambda path: Dataset.from_arrow(path))) == expected
    both = Dataset.zip(*map(Dataset.from_arrow, paths))
    assert list(both) == [(expected[0], expected[2]), (expected[1], expected[3])]


def test_types_that_are_read_alike_may_differ(tmp_path: Path) -> None:
    texts = pa.array(["x", "y"])
    for number, column in enumerate((texts, texts.cast(pa.large_string()), texts.dictionary_encode(), pa.nulls(2))):
        (tmp_path / f"{number}.arrow").write_bytes(written(pa.table({"a": column})))
    assert [row["a"] for row in Dataset.from_arrow(tmp_path / "*.arrow")] == ["x", "y"] * 3 + [None] * 2


def test_a_state_beyond_a_shorter_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    path.write_bytes(written(TABLE.select(["n"])))
    dataset = Dataset.from_arrow(path)
    with dataset.open() as loader:
        for _, _row in zip(range(20), loader, strict=False):
            pass
        state = loader.state_dict()
        (origin,) = loader.origins()
    path.write_bytes(written(TABLE.select(["n"]).slice(0, 9)))
    with pytest.raises(StateMismatchError, match=r"row 19 of .* was requested, but it has 9 rows"):
        dataset.fetch(origin)
    with (
        pytest.raises(StateMismatchError, match="which has 9 rows"),
        dataset.open(state, allow=["content"]) as loader,
    ):
        list(loader)


def test_a_type_that_pyarrow_has_no_arrays_for_is_refused(tmp_path: Path) -> None:
    dates = pa.table({"d": pa.array([date(2020, 1, 1)] * 3).dictionary_encode()})
    path = tmp_path / "x.arrow"
    with pa.ipc.new_file(path, dates.schema) as writer:
        writer.write_table(dates)
    content, refused = path.read_bytes(), []
    for at in (at for at, value in enumerate(content) if value == 8):  # dates become intervals of months
        path.write_bytes(content[:at] + b"\x0b" + content[at + 1 :])
        try:
            list(Dataset.from_arrow(path))
        except (ArrowTypeError, CorruptRecordError) as error:
            refused.append(str(error))
    assert any("PyArrow cannot read the type month_interval" in text for text in refused)
