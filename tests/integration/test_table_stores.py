"""Files with a directory, such as Arrow and NumPy files, from every kind of store."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from array_records import array_record, in_groups
from http_server import HttpObjects

from aiostream_data import Dataset
from aiostream_data.storage import memory
from aiostream_data.testing.fault_server import fault_server

ROWS = 60


def columns_of(file: int) -> dict[str, Any]:
    numbers = np.arange(ROWS) + 1000 * file
    return {"n": numbers, "x": np.repeat(numbers[:, None] / 8, 3, axis=1)}


def arrow(file: int) -> bytes:
    columns = columns_of(file)
    lists = pa.FixedSizeListArray.from_arrays(columns["x"].reshape(-1), 3)
    table = pa.table({"n": columns["n"], "x": lists, "text": [f"text {n}" for n in columns["n"]]})
    made = io.BytesIO()
    with (pa.ipc.new_stream if file else pa.ipc.new_file)(made, table.schema) as writer:
        writer.write_table(table, max_chunksize=25)
    return made.getvalue()


def npy(file: int) -> bytes:
    columns = columns_of(file)
    rows = np.empty(ROWS, [("n", np.int64), ("x", np.float64, 3)])
    rows["n"], rows["x"] = columns["n"], columns["x"]
    made = io.BytesIO()
    np.save(made, rows)
    return made.getvalue()


def npz(file: int) -> bytes:
    made = io.BytesIO()
    columns = columns_of(file)
    (np.savez_compressed if file else np.savez)(made, n=columns["n"], x=np.asfortranarray(columns["x"]))
    return made.getvalue()


def array_records(file: int) -> bytes:
    columns = columns_of(file)
    rows = zip(columns["n"].tolist(), columns["x"].tolist(), strict=True)
    records = [json.dumps({"n": n, "x": x}).encode() for n, x in rows]
    return array_record(in_groups(records, 7), "zstd" if file else "")


def parsed(record: bytes) -> dict[str, Any]:
    row = json.loads(record)
    return {"n": row["n"], "x": np.array(row["x"])}


def tokens(file: int) -> bytes:
    return np.repeat(columns_of(file)["n"], 4).astype("<u4").tobytes()


def read_tokens(urls: Any, **options: Any) -> Dataset[Any]:
    return Dataset.from_tokens(urls, 4, dtype="<u4", **options).map(lambda row: {"n": row[0], "x": row[1:] / 8})


READERS: dict[str, tuple[Callable[[int], bytes], Callable[..., Dataset[Any]]]] = {
    "arrow": (arrow, lambda urls, **options: Dataset.from_arrow(urls, ["n", "x"], **options)),
    "npy": (npy, lambda urls, **options: Dataset.from_npy(urls, **options)),
    "npz": (npz, lambda urls, **options: Dataset.from_npy(urls, **options)),
    "array_record": (
        array_records,
        lambda urls, **options: Dataset.from_array_record(urls, **options).map(parsed),
    ),
    "tokens": (tokens, read_tokens),
}


def plain(rows: Any) -> list[Any]:
    return [(int(row["n"]), row["x"].tolist()) for row in rows]


EXPECTED = [(n, [n / 8] * 3) for file in range(2) for n in columns_of(file)["n"].tolist()]


@pytest.mark.parametrize("kind", READERS)
def test_every_store_delivers_the_same_rows(kind: str, http_objects: HttpObjects, memory_objects: None) -> None:
    write, read = READERS[kind]
    for file in range(2):
        memory.put(f"memory://rows/{file}.{kind}", write(file))
    urls = [http_objects.put(f"/{file}.{kind}", write(file)) for file in range(2)]
    assert plain(read(f"memory://rows/*.{kind}")) == EXPECTED
    assert plain(read(urls)) == EXPECTED


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(("store", "scheme"), [("s3", "s3"), ("gcs", "gs")])
def test_object_stores_deliver_the_same_rows_and_resume(kind: str, store: Any, scheme: str) -> None:
    write, read = READERS[kind]
    with fault_server(store) as server:
        for file in range(2):
            server.put(f"bucket/rows/{file}.{kind}", write(file))
        dataset = read(f"{scheme}://bucket/rows/*.{kind}", storage_options=server.storage_options, cycle_length=2)
        with dataset.open() as loader:
            rows = [next(loader) for _ in range(70)]
            state = loader.state_dict()
        with dataset.open(state) as loader:
            rows += loader
        assert sorted(plain(rows)) == EXPECTED
