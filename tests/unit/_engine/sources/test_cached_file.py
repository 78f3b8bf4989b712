"""Tables in the page cache are read on the thread that decodes them, and other tables by reader threads."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from aiostream_data import Dataset, Loader, ObjectChangedError
from aiostream_data.storage.file_reads import FileRead, FileReader

ROWS = 300_000
NAMES = ("table.arrow", "stream.arrow", "table.parquet", "table.npy")


def write(folder: Path, name: str, first: int = 0) -> Path:
    path, table = folder / name, pa.table({"n": np.arange(first, first + ROWS)})
    if name.endswith(".parquet"):
        parquet.write_table(table, path, row_group_size=50_000)
    elif name.endswith(".npy"):
        np.save(path, np.arange(first, first + ROWS * 4).reshape(-1, 4)[:, :1].repeat(8, 1))
    else:
        make: Any = pa.ipc.new_stream if name.startswith("stream") else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=20_000)
    return path


def dataset_of(path: Path) -> Dataset[Any]:
    read: dict[str, Any] = {".arrow": Dataset.from_arrow, ".parquet": Dataset.from_parquet, ".npy": Dataset.from_npy}
    made: Dataset[Any] = read[path.suffix](path).batch(1000)
    return made


def sums(loader: Loader[Any]) -> list[int]:
    return [int((batch["n"] if isinstance(batch, dict) else batch).sum()) for batch in loader]


class Cache:
    """Page cache that contains the first ``hits`` ranges that are asked for."""

    def __init__(self, hits: int) -> None:
        self.hits = hits
        self.asked = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        fill = FileReader.fill_cached

        def fill_cached(reader: FileReader, read: FileRead) -> bool:
            self.asked += 1
            return self.asked <= self.hits and fill(reader, read)

        patch.setattr(FileReader, "fill_cached", fill_cached)


def waited_reads(patch: pytest.MonkeyPatch) -> Sequence[FileRead]:
    """Return a list to which the reads on reader threads are added."""
    reads: list[FileRead] = []
    read_all = FileReader.read_all

    def noted(reader: FileReader, some: list[FileRead]) -> list[Exception | None]:
        reads.extend(some)
        return read_all(reader, some)

    patch.setattr(FileReader, "read_all", noted)
    return reads


@pytest.mark.parametrize("name", NAMES)
def test_a_cached_table_needs_no_reader_thread(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = waited_reads(monkeypatch)
    with dataset_of(write(tmp_path, name)).open() as loader:
        sums(loader)
    assert not reads


@pytest.mark.parametrize("hits", range(9))
@pytest.mark.parametrize("name", NAMES)
def test_rows_and_counters_do_not_depend_on_the_page_cache(
    name: str, hits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, name)
    with dataset_of(path).open() as loader:
        expected = sums(loader)
        counters = loader.stats().as_dict()["storage"]
    cache = Cache(hits)
    cache.install(monkeypatch)
    with dataset_of(path).open() as loader:
        assert sums(loader) == expected
        found = loader.stats().as_dict()["storage"]
    assert (found["nbytes"], found["requests"]) == (counters["nbytes"], counters["requests"])
    assert cache.asked <= hits + 1, "after a miss, the ranges are requested ahead"


@pytest.mark.parametrize("name", NAMES)
def test_a_table_replaced_during_the_run_is_an_error(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name)
    with dataset_of(path).open(memory_limit="4MB") as loader:
        next(iter(loader))
        later = write(tmp_path, f"new-{name}" if not name.startswith("stream") else "stream-new.arrow", 7)
        os.utime(later, ns=(time.time_ns(), time.time_ns() + 10**9))
        later.replace(path)
        try:
            rest = sums(loader)
        except ObjectChangedError:
            return
    assert rest == sums_of(name)[1:], "all rows were read before the file was replaced"


def sums_of(name: str) -> list[int]:
    values = np.arange(0, ROWS * 4, 4) * 8 if name.endswith(".npy") else np.arange(ROWS)
    return [int(part.sum()) for part in values.reshape(-1, 1000)]
