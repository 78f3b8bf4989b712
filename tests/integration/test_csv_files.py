"""CSV files through a Dataset: headers, schemas, damage, resuming, and every kind of store."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from http_server import HttpObjects

from aiostream_data import (
    CorruptRecordError,
    CsvParseError,
    CsvSchemaError,
    Dataset,
    NoMatchError,
    PlanError,
    StateMismatchError,
    write_index,
)
from aiostream_data.storage import memory
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.resume import resumes_everywhere

SCHEMA = {"id": np.int64, "x": np.float32, "name": str, "good": bool}
ROWS = 6


def rows_of(file: int, rows: int = ROWS) -> list[dict[str, Any]]:
    return [
        {
            "id": 100 * file + row,
            "x": None if row == 3 else np.float32(row / 8),
            "name": None if row == 2 else f'name {row}, "quoted"\nline',
            "good": row % 2 == 0,
        }
        for row in range(rows)
    ]


def content(file: int, rows: int = ROWS, names: list[str] | None = None) -> bytes:
    made = io.StringIO(newline="")
    writer = csv.DictWriter(made, names or list(SCHEMA))
    writer.writeheader()
    writer.writerows(rows_of(file, rows))
    return made.getvalue().encode()


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Three files; the columns of the second one are in another order, the third one is compressed."""
    (tmp_path / "0.csv").write_bytes(content(0))
    (tmp_path / "1.csv").write_bytes(content(1, names=["name", "good", "id", "x"]))
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(content(2)))
    return str(tmp_path / "*.csv*")


EXPECTED = [row for file in range(3) for row in rows_of(file)]


def test_rows_of_several_files_are_typed_dicts(files: str) -> None:
    found = list(Dataset.from_csv(files, SCHEMA))
    assert found == EXPECTED
    assert type(found[0]["x"]) is np.float32
    assert list(found[6]) == list(SCHEMA)


def test_types_are_inferred_when_the_dataset_is_opened(files: str) -> None:
    dataset = Dataset.from_csv(files)
    assert [{**row, "x": row["x"] and np.float32(row["x"])} for row in dataset] == EXPECTED
    assert type(next(iter(dataset))["x"]) is float


def test_an_open_event_loop_does_not_prevent_inference(files: str) -> None:
    async def first() -> Any:
        async with Dataset.from_csv(files).open() as loader:
            return await anext(loader)

    assert asyncio.run(first())["id"] == 0


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_a_run_resumes_after_every_row(files: str, schema: Any) -> None:
    resumes_everywhere(Dataset.from_csv(files, schema, cycle_length=2, block_length=2).shuffle(4, seed=1))
    resumes_everywhere(Dataset.from_csv(files, schema, select=["good", "id"]).batch(4))


def test_rows_have_origins_and_can_be_fetched(files: str) -> None:
    dataset = Dataset.from_csv(files).shuffle(5, seed=3)
    with dataset.open() as loader:
        for _ in range(10):
            element = next(loader)
            (origin,) = loader.origins()
            assert dataset.fetch(origin) == element


def test_ranks_share_the_rows(files: str) -> None:
    found = []
    for rank in range(2):
        with Dataset.from_csv(files).open(rank=rank, world_size=2) as loader:
            found += [row["id"] for row in loader]
    assert sorted(found) == [row["id"] for row in EXPECTED]


def test_batches_are_columns_and_refuse_missing_numbers_by_name(files: str) -> None:
    batch = next(iter(Dataset.from_csv(files, SCHEMA, select=["x", "name"]).take(3).batch(3)))
    assert batch["x"].dtype == np.float32
    assert batch["name"].tolist()[2] is None
    with pytest.raises(ValueError, match=r"0\.csv record 3 has no value"):
        list(Dataset.from_csv(files, SCHEMA).batch(4))


def test_the_element_spec_is_that_of_the_schema(files: str) -> None:
    spec = Dataset.from_csv(files, SCHEMA, select=["name", "x"]).element_spec
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in spec.items()} == {
        "name": ((), np.dtype(object)),
        "x": ((), np.dtype(np.float32)),
    }


def test_an_index_and_a_dataset_of_files_name_the_file_to_infer_from(files: str, tmp_path: Path) -> None:
    write_index(files, tmp_path / "index.jsonl")
    expected = [row["id"] for row in EXPECTED]
    assert [row["id"] for row in Dataset.from_csv(index=tmp_path / "index.jsonl")] == expected
    assert [row["id"] for row in Dataset.from_csv(Dataset.list_files(files))] == expected
    with pytest.raises(PlanError, match=r"the files are elements of a dataset\. Pass schema="):
        list(Dataset.from_csv(Dataset.from_iterable([str(tmp_path / "0.csv")])))


def test_a_function_that_returns_csv_datasets_needs_a_schema(files: str) -> None:
    names = Dataset.list_files(files)
    assert len(list(names.interleave(lambda name: Dataset.from_csv(name, SCHEMA)))) == 18
    with pytest.raises(PlanError, match="Pass schema= to from_csv"):
        list(names.interleave(lambda name: Dataset.from_csv(name)))


def test_files_without_a_header_have_numbered_columns_or_those_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\t2\n3\tNA\n")
    path = tmp_path / "a.tsv"
    read: dict[str, Any] = {"header": False, "delimiter": "\t", "na_values": ["NA"]}
    assert list(Dataset.from_csv(path, **read)) == [{"column_0": 1, "column_1": 2}, {"column_0": 3, "column_1": None}]
    assert list(Dataset.from_csv(path, {"a": float, "b": str}, **read))[1] == {"a": 3.0, "b": None}


def test_files_whose_headers_differ_are_named(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("a,b\n1,2\n")
    (tmp_path / "1.csv").write_text("a,c\n1,2\n")
    for policy in (None, "skip"):
        with pytest.raises(CsvSchemaError, match=r"1\.csv: column 'b' of the header of .*0\.csv is not in") as raised:
            list(Dataset.from_csv(tmp_path / "*.csv", on_error=policy))
        assert raised.value.column == "b"


def test_a_later_value_of_another_type_names_line_column_and_value(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + '1,"x\ny"\n' * 2000 + "n/a,z\n")
    told = r"a\.csv line 4002: column 'a': 'n/a' is not int64, the type inferred from the start of this file; declare"
    with pytest.raises(CsvParseError, match=told) as raised:
        list(Dataset.from_csv(tmp_path / "a.csv"))
    assert raised.value.record == 2000


BROKEN = b'id,x\n1,2\n3\n4,5,6\n7,eight\n9,\xff\n10,"11"x\n12,13\n14,"15'


def test_rows_before_a_damaged_one_are_delivered(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(BROKEN)
    with Dataset.from_csv(tmp_path / "a.csv", {"id": int, "x": int}).open() as loader:
        assert next(loader) == {"id": 1, "x": 2}
        with pytest.raises(CsvParseError, match="line 3: expected 2 fields, found 1 in '3'"):
            next(loader)


def test_skipping_leaves_out_damaged_rows_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(BROKEN)
    dataset = Dataset.from_csv(tmp_path / "a.csv", {"id": int, "x": int}, on_error="skip")
    with dataset.open(dead_letters=tmp_path / "log.jsonl") as loader:
        assert list(loader) == [{"id": 1, "x": 2}, {"id": 12, "x": 13}]
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert len(logged) >= 6
    resumes_everywhere(dataset)


def test_a_file_cut_off_anywhere_gives_its_rows_or_an_error(tmp_path: Path) -> None:
    whole = content(0, 4)
    expected = rows_of(0, 4)
    for end in range(len(whole)):
        (tmp_path / "a.csv").write_bytes(whole[:end])
        found: list[Any] = []
        expected_errors = CsvParseError, CsvSchemaError, CorruptRecordError
        with suppress(*expected_errors), Dataset.from_csv(tmp_path / "a.csv", SCHEMA).open() as loader:
            found.extend(loader)
        # the last field of a text that ends early cannot be told from a shorter one
        assert found[:-1] == expected[: max(0, len(found) - 1)], end


@pytest.mark.parametrize("schema", [{"a": int}, None])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(b"a\n1\n", mtime=0), "pass compression='gzip'"),
        (b"PAR1\x15\0\0\0\0\x80" + bytes(50), "Parquet"),
        ("a\n1\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_binary_files_are_recognised(tmp_path: Path, data: bytes, message: str, schema: Any) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(CorruptRecordError, match=message):
        list(Dataset.from_csv(tmp_path / "a.csv", schema, compression=""))


def test_empty_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"")
    assert list(Dataset.from_csv(tmp_path / "a.csv", {"a": int})) == []
    with pytest.raises(CsvSchemaError, match="the file is empty, so its columns are unknown"):
        Dataset.from_csv(tmp_path / "a.csv").open()
    with pytest.raises(NoMatchError, match="no file matches"):
        Dataset.from_csv(tmp_path / "*.tsv").open()


def test_a_state_of_other_types_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    dataset = Dataset.from_csv(tmp_path / "a.csv")
    with dataset.open() as loader:
        next(loader)
        state = loader.state_dict()
    (tmp_path / "a.csv").write_text("a\n1\n2.5\n")
    with pytest.raises(StateMismatchError, match=r"types was \(int64,?\), is \(float64,?\)"):
        dataset.open(state)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Dataset.from_csv("a.csv", {"a": int}, select=["b"]), "select contains 'b'"),
        (lambda: Dataset.from_csv("a.csv", select=[]), "at least one column"),
        (lambda: Dataset.from_csv("a.csv", select="a"), "select must be a list of column names"),
        (lambda: Dataset.from_csv("a.csv", na_values="NA"), "na_values must be a list of str"),
        (lambda: Dataset.from_csv("a.csv", na_values=cast(Any, [None])), "na_values must be a list of str"),
        (lambda: Dataset.from_csv("a.csv", header=cast(Any, "yes")), "header must be"),
        (lambda: Dataset.from_csv("a.csv", delimiter="||"), "delimiter must be one ASCII character"),
        (lambda: Dataset.from_csv("a.csv", {"a": str}, encoding=None), "Declare it as bytes"),
        (lambda: Dataset.from_csv("a.csv", encoding="utf-16"), "encoding must be compatible with ASCII"),
        (lambda: Dataset.from_csv("a.csv", max_line_nbytes=0), "max_line_nbytes must be"),
    ],
)
def test_invalid_arguments_are_refused_at_once(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call()


def test_every_store_delivers_the_same_rows(http_objects: HttpObjects, memory_objects: None) -> None:
    expected = [row for file in range(2) for row in rows_of(file)]
    for file in range(2):
        memory.put(f"memory://rows/{file}.csv", content(file))
    urls = [http_objects.put(f"/{file}.csv", content(file)) for file in range(2)]
    assert list(Dataset.from_csv("memory://rows/*.csv", SCHEMA)) == expected
    assert list(Dataset.from_csv(urls, SCHEMA)) == expected
    assert [row["id"] for row in Dataset.from_csv(urls)] == [row["id"] for row in expected]


@pytest.mark.parametrize(("kind", "scheme"), [("s3", "s3"), ("gcs", "gs")])
def test_object_stores_deliver_the_same_rows_and_resume(kind: Any, scheme: str) -> None:
    with fault_server(kind) as server:
        for file in range(3):
            server.put(f"bucket/rows/{file}.csv", content(file, 90))
        for schema in (SCHEMA, None):
            url = f"{scheme}://bucket/rows/*.csv"
            dataset = Dataset.from_csv(url, schema, storage_options=server.storage_options, cycle_length=2)
            with dataset.open() as loader:
                left = [next(loader)["id"] for _ in range(120)]
                state = loader.state_dict()
            with dataset.open(state) as loader:
                left += [row["id"] for row in loader]
            assert sorted(left) == sorted(row["id"] for file in range(3) for row in rows_of(file, 90))
