"""Files with row groups that change while they are read: the error of the store arrives as it is."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from groups_or_alone import alone, grouped

from aiostream_data import Dataset, ObjectChangedError, StorageError, write_index
from aiostream_data.testing.fault_server import FaultServer, fault_server

ROWS = 6_000_000
"""Rows of 8 bytes, in more row groups than are read ahead."""

FILES = 6
CHANGED = 3
"""Number of the file that changes."""


def read_and_change(path: Path, change: Callable[[Path], None]) -> None:
    """Read a file, and change it after the first batch."""
    np.save(path, np.zeros((ROWS, 1)))
    with Dataset.from_npy(path).batch(100_000).open() as loader:
        for number, _ in enumerate(loader):
            if number == 0:
                change(path)


def test_a_changed_file_raises_the_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(ObjectChangedError, match="modified"):
        read_and_change(tmp_path / "a.npy", os.utime)


def test_a_truncated_file_raises_the_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        read_and_change(tmp_path / "a.npy", lambda path: os.truncate(path, 1000))


def npy(first: int, rows: int = 4) -> bytes:
    made = io.BytesIO()
    np.save(made, np.arange(first, first + rows))
    return made.getvalue()


def parquet(first: int, rows: int = 4) -> bytes:
    made = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"n": np.arange(first, first + rows)}), made)
    return made.getvalue()


def arrow(first: int, rows: int = 4) -> bytes:
    made, table = io.BytesIO(), pa.table({"n": np.arange(first, first + rows)})
    with pa.ipc.new_file(made, table.schema) as writer:
        writer.write_table(table)
    return made.getvalue()


def tokens(first: int, rows: int = 4) -> bytes:
    return np.arange(first, first + rows).astype("<u4").tobytes()


def read_tokens(files: Any = None, **options: Any) -> Dataset[Any]:
    return Dataset.from_tokens(files, 1, dtype="<u4", **options)


KINDS: dict[str, tuple[Callable[..., bytes], Callable[..., Dataset[Any]]]] = {
    "npy": (npy, Dataset.from_npy),
    "parquet": (parquet, Dataset.from_parquet),
    "arrow": (arrow, Dataset.from_arrow),
    "tokens": (tokens, read_tokens),
}
WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {"grouped": grouped, "alone": alone}


class Objects:
    """Objects of one kind in a store, and an index of them."""

    def __init__(self, kind: str, server: FaultServer, folder: Path) -> None:
        self.encode, self.read = KINDS[kind]
        self.server = server
        self.storage = {**server.storage_options, "hedge": False}
        for number in range(FILES):
            self.put(number, 10 * number)
        self.pattern, self.index = server.url("bucket/*"), folder / "index.jsonl"

    def put(self, number: int, first: int, rows: int = 4) -> None:
        self.server.put(f"bucket/{number}", self.encode(first, rows))

    def write_index(self, *, versions: bool) -> None:
        write_index(self.pattern, self.index, storage_options=self.storage, versions=versions)

    def indexed(self, **options: Any) -> Dataset[Any]:
        return self.read(index=self.index, storage_options=self.storage, **options)


@pytest.fixture(params=["s3", "gcs"])
def server(request: pytest.FixtureRequest) -> Iterator[FaultServer]:
    with fault_server(request.param) as running:
        yield running


@pytest.fixture(params=KINDS)
def objects(request: pytest.FixtureRequest, server: FaultServer, tmp_path: Path) -> Objects:
    return Objects(request.param, server, tmp_path)


def refused(dataset: Dataset[Any], name: str) -> str:
    """Return the error of a dataset whose file ``name`` is not the listed one."""
    with pytest.raises(ObjectChangedError) as caught:
        list(dataset)
    assert name in str(caught.value)
    return str(caught.value)


@pytest.mark.chooses_groups
@pytest.mark.parametrize("way", WAYS)
def test_an_object_that_was_replaced_after_it_was_indexed_is_refused(objects: Objects, way: str) -> None:
    objects.write_index(versions=True)
    objects.put(CHANGED, 500)
    with WAYS[way]():
        for options in ({}, {"on_error": "skip", "cycle_length": 3}, {"shuffle_shards": True, "seed": 1}):
            assert "replaced" in refused(objects.indexed(**options), f"bucket/{CHANGED}")


@pytest.mark.chooses_groups
@pytest.mark.parametrize("way", WAYS)
def test_an_object_of_another_size_than_in_the_index_is_refused(objects: Objects, way: str) -> None:
    objects.write_index(versions=False)
    objects.put(CHANGED, 500)
    with WAYS[way]():
        assert len(list(objects.indexed())) == 4 * FILES  # an index without versions knows only sizes
        objects.put(CHANGED, 500, rows=400)
        assert "bytes were listed" in refused(objects.indexed(), f"bucket/{CHANGED}")


@pytest.mark.chooses_groups
@pytest.mark.parametrize("way", WAYS)
def test_an_object_that_an_index_calls_empty_is_refused_if_it_has_rows(objects: Objects, way: str) -> None:
    objects.write_index(versions=False)
    lines = [json.loads(line) for line in objects.index.read_text().splitlines()]
    entry = next(line for line in lines if line.get("url", "").endswith(f"/{CHANGED}"))
    entry["nbytes"] = 0
    objects.index.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with WAYS[way]():
        assert "0 bytes were listed" in refused(objects.indexed(), f"bucket/{CHANGED}")


@pytest.mark.chooses_groups
@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_changed_after_open_listed_it_is_refused(tmp_path: Path, way: str) -> None:
    paths = [tmp_path / f"{number}.npy" for number in range(FILES)]
    for number, path in enumerate(paths):
        path.write_bytes(npy(10 * number))
    dataset = Dataset.from_npy(tmp_path / "*.npy")
    with WAYS[way](), dataset.open() as loader:
        paths[CHANGED].write_bytes(npy(500, 5))
        with pytest.raises(ObjectChangedError, match=r"3\.npy"):
            list(loader)
    assert len(list(dataset)) == 4 * FILES + 1


def test_a_function_that_reads_listed_names_refuses_a_replaced_object(server: FaultServer, tmp_path: Path) -> None:
    objects = Objects("npy", server, tmp_path)
    objects.write_index(versions=True)
    names = Dataset.list_files(index=objects.index)

    def read(url: str) -> Dataset[Any]:
        return Dataset.from_npy(url, storage_options=objects.storage).batch(2)

    assert len(list(names.interleave(read))) == 2 * FILES
    objects.put(CHANGED, 500)
    refused(names.interleave(read), f"bucket/{CHANGED}")
    others = names.map(lambda url: url.replace(f"/{CHANGED}", "/0"))  # a name that no list contains
    assert len(list(others.interleave(read))) == 2 * FILES


def test_a_replaced_object_is_refused_when_a_run_resumes(server: FaultServer, tmp_path: Path) -> None:
    objects = Objects("npy", server, tmp_path)
    objects.write_index(versions=True)
    dataset = objects.indexed(cycle_length=2)
    with dataset.open() as loader:
        for _, _ in zip(range(4 * CHANGED), loader, strict=False):
            pass
        state = loader.state_dict()
    objects.put(CHANGED, 500)
    with dataset.open(state) as loader, pytest.raises(ObjectChangedError, match=f"bucket/{CHANGED}"):
        list(loader)
