"""Small record batches of numbers, text and lists are read at once, with the same rows and errors as one by one."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_bytes import directory_of, plain_rows, rows_of

from aiostream_data import AiostreamError, Dataset
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data.formats import arrow_directory, arrow_together
from aiostream_data.formats.arrow_files import ArrowFormat
from aiostream_data.formats.arrow_nodes import NodeReader
from aiostream_data.testing.table_reading import parts_of

ROWS = 60
COLUMNS: dict[str, pa.Array] = {
    "i1": pa.array(range(ROWS), pa.int8()),
    "f8": pa.array(np.arange(ROWS) / 4),
    "u2": pa.array(range(ROWS), pa.uint16()),
    "f2": pa.array(np.arange(ROWS, dtype=np.float16)),
    "when": pa.array(range(ROWS), pa.timestamp("ms")),
    "text": pa.array(["é" * (n % 3) + f"row {n}" * (n % 2) for n in range(ROWS)]),
    "large_text": pa.array([f"text {n}" for n in range(ROWS)], pa.large_string()),
    "bytes": pa.array([bytes([n]) * (n % 4) for n in range(ROWS)]),
    "list": pa.array([list(range(n % 4)) for n in range(ROWS)], pa.list_(pa.int16())),
    "large_list": pa.array([[n / 2] * (n % 3) for n in range(ROWS)], pa.large_list(pa.float64())),
    "pair": pa.array([[n, -n] for n in range(ROWS)], pa.list_(pa.int32(), 2)),
}
TABLE = pa.table(COLUMNS)
OTHERS: dict[str, pa.Array] = {
    "missing": pa.array([None if n == 50 else n for n in range(ROWS)]),
    "bool": pa.array([n % 2 == 0 for n in range(ROWS)]),
    "words": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
    "view": pa.array([f"{n}" for n in range(ROWS)], pa.string_view()),
    "box": pa.array([{"x": n} for n in range(ROWS)]),
    "lists": pa.array([[[n]] for n in range(ROWS)]),
    "holes": pa.array([[n, None] for n in range(ROWS)]),
}


def written(table: Any, sizes: list[int], compression: str | None = None) -> bytes:
    made = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(made, table.schema, options=options) as writer:
        start = 0
        for size in sizes:
            writer.write_batch(table.slice(start, size).combine_chunks().to_batches()[0] if size else _empty(table))
            start += size
    return made.getvalue()


def _empty(table: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)


def outcome(data: bytes, patch: pytest.MonkeyPatch, joined_nbytes: int, *columns: str) -> Any:
    """Return the rows of a file, or its error. The first batch is read alone."""
    patch.setattr(arrow_directory, "joined_sizes", lambda: iter([1, *[joined_nbytes] * 99]))
    try:
        return repr(plain_rows(rows_of(ArrowFormat(columns=columns or None), data, limit=1 << 24)))
    except AiostreamError as error:
        return type(error)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the numbers of rows that were read together."""
    read: list[int] = []
    columns = arrow_together.ManyReader.columns

    def counted(reader: Any, table: Any, *args: Any) -> Any:
        found = columns(reader, table, *args)
        read.append(0 if found is None else len(found[0]))
        return found

    monkeypatch.setattr(arrow_together.ManyReader, "columns", counted)
    return read


@pytest.mark.parametrize("name", [*COLUMNS, "all"])
def test_rows_are_those_of_single_batches(name: str, together: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    table = TABLE if name == "all" else TABLE.select([name])
    data = written(table, [7, 1, 20, 3, 29])
    found = outcome(data, monkeypatch, 4 << 20)
    assert together == [53]
    assert found == outcome(data, monkeypatch, 1)


@pytest.mark.parametrize("columns", [["text"], ["pair", "i1", "list"], list(reversed(COLUMNS))])
def test_columns_are_selected(columns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(TABLE, [7, 1, 20, 3, 29])
    found = outcome(data, monkeypatch, 4 << 20, *columns)
    assert found == outcome(data, monkeypatch, 1, *columns)


@pytest.mark.parametrize("name", OTHERS)
def test_other_columns_are_read_batch_by_batch(name: str, together: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(pa.table({"n": COLUMNS["u2"], name: OTHERS[name]}), [7, 1, 20, 3, 29])
    assert outcome(data, monkeypatch, 4 << 20) == outcome(data, monkeypatch, 1)
    assert not any(together)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_batches_are_read_one_by_one(
    compression: str, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = written(TABLE, [7, 1, 20, 3, 29], compression)
    assert outcome(data, monkeypatch, 4 << 20) == outcome(data, monkeypatch, 1)
    assert not together


@given(st.lists(st.integers(0, 9), min_size=2, max_size=9))
def test_batches_of_any_size_give_the_rows_in_order(sizes: list[int]) -> None:
    data = written(TABLE, [1, *sizes][:8])
    with pytest.MonkeyPatch.context() as patch:
        assert outcome(data, patch, 4 << 20) == outcome(data, patch, 1)


def test_damage_gives_the_rows_of_single_batches_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    data, draw = written(TABLE, [7, 1, 20, 3, 29]), np.random.default_rng(9)
    numbers = [b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f" + bytes(4), b"\x01" + bytes(7), b"\x80\xff"]
    failed = 0
    for turn in range(600):
        changed = bytearray(data)
        for place in draw.integers(len(data) // 8, len(data) - 8, 1 + turn % 2):
            size = (1, 4, 8)[turn % 3]
            changed[place : place + size] = numbers[turn % 5][:size].ljust(size, b"\0")
        alone = outcome(bytes(changed), monkeypatch, 1)
        found = outcome(bytes(changed), monkeypatch, 4 << 20)
        assert isinstance(found, type) or found == alone, "after an error, the batches are read one by one"
        failed += isinstance(found, type)
    assert 50 < failed < 550


@pytest.mark.parametrize("name", ["f8", "missing"])
def test_the_copies_of_joined_columns_are_counted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    column = {**COLUMNS, **OTHERS}[name]
    data = written(pa.table({f"c{number}": column for number in range(40)}), [20, 20, 20])
    monkeypatch.setattr(arrow_directory, "joined_sizes", lambda: iter([1, 1 << 20]))
    directory = directory_of(ArrowFormat(), data)
    first, later = directory.groups_from(0)
    directory.decode(first, parts_of(data, first.ranges))
    parts = parts_of(data, later.ranges)
    assert directory.decoded_nbytes(later, parts) >= 40 * 40 * 8
    assert directory.decode(later, parts)


def test_large_groups_take_memory_of_the_pool(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 400_000
    table = pa.table({"a": np.arange(rows), "b": np.arange(rows, dtype=np.float32), "c": np.arange(rows) % 100})
    path = tmp_path / "rows.arrow"
    path.write_bytes(written(table, [1000] * 400))
    lent: list[int] = []
    lend = BlockPool.lend
    monkeypatch.setattr(BlockPool, "lend", lambda pool, nbytes: (lent.append(nbytes), lend(pool, nbytes))[1])  # type: ignore[func-returns-value]
    monkeypatch.setattr(NodeReader, "chunk", None)
    with Dataset.from_arrow(path).batch(5000).open() as loader:
        for number, batch in enumerate(loader):
            first = 5000 * number
            assert (batch["a"][0], batch["b"][0], batch["c"][0]) == (first, first, first % 100)
            np.testing.assert_array_equal(batch["a"], np.arange(first, first + 5000))
    assert any(nbytes > 2 << 20 for nbytes in lent)
