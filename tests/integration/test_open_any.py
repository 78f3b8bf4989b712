"""``Dataset.open_any`` finds the format of files and folders, and reads them as their constructor does."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from array_records import array_record
from http_server import HttpObjects
from lake_files import write_delta
from pyarrow import parquet
from tfds_files import record, write_folder

from aiostream_data import Dataset, NoMatchError, ObjectNotFoundError, PlanError, TFRecordWriter
from aiostream_data.codecs.compressors import compressor
from aiostream_data.errors import ArgumentTypeError
from aiostream_data.testing.comparing import same
from aiostream_data.testing.servers import ObjectServer

DATA = Path(__file__).parents[1] / "data"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def tfrecord(folder: Path) -> tuple[str, Dataset[Any]]:
    for part in range(2):
        with TFRecordWriter(str(folder / f"part.tfrecord-0000{part}-of-00002")) as writer:
            writer.write(b"%d" % part)
    return str(folder), Dataset.from_tfrecord(str(folder / "*"))


def csv(folder: Path) -> tuple[str, Dataset[Any]]:
    (folder / "a.csv").write_text("a,b\n1,x\n2,y\n")
    return str(folder / "a.csv"), Dataset.from_csv(str(folder / "a.csv"))


def tsv(folder: Path) -> tuple[str, Dataset[Any]]:
    (folder / "a.tsv").write_text("a\tb\n1\tx\n")
    return str(folder / "a.tsv"), Dataset.from_csv(str(folder / "a.tsv"), delimiter="\t")


def compressed_csv(folder: Path) -> tuple[str, Dataset[Any]]:
    made = compressor("snappy")
    (folder / "a.csv.sz").write_bytes(made.compress(b"a,b\n1,x\n2,y\n") + made.flush())
    return str(folder / "a.csv.sz"), Dataset.from_csv(str(folder / "a.csv.sz"))


def json_without_a_suffix(folder: Path) -> tuple[str, Dataset[Any]]:
    (folder / "part-0").write_text('{"a": 1}\n{"a": 2}\n')
    return str(folder / "part-0"), Dataset.from_jsonl(str(folder / "part-0"))


def json_with_the_suffix_of_a_document(folder: Path) -> tuple[str, Dataset[Any]]:
    (folder / "a.json").write_text('{"a": 1}\n{"a": 2}\n')
    return str(folder), Dataset.from_jsonl(str(folder / "a.json"))


def text(folder: Path) -> tuple[str, Dataset[Any]]:
    (folder / "notes").write_text("one\ntwo\n")
    return str(folder / "notes"), Dataset.from_text(str(folder / "notes"))


def table_with_a_wrong_name(folder: Path) -> tuple[str, Dataset[Any]]:
    parquet.write_table(pa.table({"a": [1, 2]}), folder / "a.csv")
    return str(folder / "a.csv"), Dataset.from_parquet(str(folder / "a.csv"))


def partitions(folder: Path) -> tuple[str, Dataset[Any]]:
    write_partitions(folder)
    return str(folder), Dataset.from_parquet(str(folder / "*" / "*.parquet"), partitions=True)


def pattern_of_partitions(folder: Path) -> tuple[str, Dataset[Any]]:
    write_partitions(folder)
    return str(folder / "**" / "*.parquet"), Dataset.from_parquet(str(folder / "*" / "*.parquet"), partitions=True)


def partitions_among_other_folders(folder: Path) -> tuple[str, Dataset[Any]]:
    write_partitions(folder)
    (folder / "new").mkdir()
    parquet.write_table(pa.table({"a": [0]}), folder / "new" / "part.parquet")
    return str(folder), Dataset.from_parquet(str(folder / "*" / "*.parquet"))


def one_partition(folder: Path) -> tuple[str, Dataset[Any]]:
    write_partitions(folder)
    return str(folder / "year=2024"), Dataset.from_parquet(str(folder / "year=2024" / "*.parquet"))


def write_partitions(folder: Path) -> None:
    for year in (2024, 2025):
        (folder / f"year={year}").mkdir()
        parquet.write_table(pa.table({"a": [year]}), folder / f"year={year}" / "part.parquet")
    (folder / "_SUCCESS").touch()


def arrays(folder: Path) -> tuple[str, Dataset[Any]]:
    np.save(folder / "a.npy", np.arange(6).reshape(3, 2))
    return str(folder / "*.npy"), Dataset.from_npy(str(folder / "a.npy"))


def records_of_grain(folder: Path) -> tuple[str, Dataset[Any]]:
    (folder / "train.array_record-00000-of-00001").write_bytes(array_record([[b"one", b"two"]]))
    return str(folder), Dataset.from_array_record(str(folder / "train*"))


def images(folder: Path) -> tuple[str, Dataset[Any]]:
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        (folder / name / "1.png").write_bytes(PNG)
    return str(folder), Dataset.from_image_folder(str(folder))


def images_without_classes(folder: Path) -> tuple[str, Dataset[Any]]:
    (folder / "1.png").write_bytes(PNG)
    return str(folder), Dataset.from_files(str(folder / "*.png"))


def shards_of_mosaic(folder: Path) -> tuple[str, Dataset[Any]]:
    return str(DATA / "mds" / "plain"), Dataset.from_mds(str(DATA / "mds" / "plain"))


def prepared_by_tensorflow(folder: Path) -> tuple[str, Dataset[Any]]:
    write_folder(folder, {"train": [[record(1)], [record(2)]], "test": [[record(3)]]})
    return str(folder), Dataset.from_tfds(str(folder))


def delta_table(folder: Path) -> tuple[str, Dataset[Any]]:
    write_delta(folder / "table")
    return str(folder / "table"), Dataset.from_delta(str(folder / "table"))


def archives(folder: Path) -> tuple[str, Dataset[Any]]:
    pattern = str(DATA / "golden" / "*.tar*")
    return pattern, Dataset.from_webdataset(pattern)


MAKERS = (
    *(tfrecord, csv, tsv, compressed_csv, json_without_a_suffix, json_with_the_suffix_of_a_document, text),
    *(
        table_with_a_wrong_name,
        records_of_grain,
        partitions,
        pattern_of_partitions,
        partitions_among_other_folders,
        one_partition,
        arrays,
        images,
        images_without_classes,
        shards_of_mosaic,
        archives,
        prepared_by_tensorflow,
        delta_table,
    ),
)


@pytest.mark.parametrize("make", MAKERS)
def test_rows_are_those_of_the_constructor(make: Callable[[Path], tuple[str, Dataset[Any]]], tmp_path: Path) -> None:
    url, expected = make(tmp_path)
    found, wanted = list(Dataset.open_any(url)), list(expected)
    assert len(found) == len(wanted) > 0
    assert all(map(same, found, wanted))


def test_the_log_names_the_format_and_the_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n1\tx\n")
    with caplog.at_level(logging.INFO, "aiostream_data"):
        Dataset.open_any(tmp_path / "a.tsv")
    (record,) = caplog.records
    assert "TSV: 1 file, 8 bytes, recognized by the names. Read by Dataset.from_csv(" in record.getMessage()
    assert r"delimiter='\t'" in record.getMessage()


def test_shards_are_shuffled_when_asked_for(tmp_path: Path) -> None:
    for part in range(20):
        (tmp_path / f"{part:02}.txt").write_text(f"{part}\n")
    found = list(Dataset.open_any(tmp_path, shuffle_shards=True, seed=3))
    assert found != sorted(found, key=int)
    assert found == list(Dataset.from_text(str(tmp_path / "*.txt"), shuffle_shards=True, seed=3))


def test_it_may_be_called_under_a_running_event_loop(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")

    async def main() -> list[Any]:
        async with Dataset.open_any(tmp_path / "a.txt").open() as loader:
            return [element async for element in loader]

    assert asyncio.run(main()) == ["one"]


def test_files_of_several_formats_are_counted_and_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.csv").write_text("a\n1\n")
    (tmp_path / "c.txt").write_text("x\n")
    with pytest.raises(PlanError, match=r"several formats: 2 of CSV, 1 of text lines\. Pass a pattern"):
        Dataset.open_any(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.bin", b"ORC\x08\x03" + bytes(100), r"is an ORC file: read it with pyarrow\.orc"),
        ("a.csv", b"ORC\x08\x03" + bytes(100), "is an ORC file"),
        ("a.bin", bytes(100), r"cannot recognize the format of .*a\.bin\. Call a constructor"),
        ("a.unknown", b"", "cannot recognize the format of .*, because the file is empty"),
        ("a.json", b'{\n "a": 1\n}', r"is one JSON document\. Write one record per line"),
    ],
)
def test_a_file_that_no_constructor_reads_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PlanError, match=message):
        Dataset.open_any(tmp_path / name)


def test_the_folder_of_an_iceberg_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "00001-x.metadata.json").write_text("{}")
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(PlanError, match=r"is an Iceberg table\. Use from_iceberg\(\)"):
        Dataset.open_any(tmp_path)


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoMatchError):
        Dataset.open_any(tmp_path / "missing.csv")
    with pytest.raises(NoMatchError):
        Dataset.open_any(tmp_path)
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(NoMatchError, match="the folder contains no data"):
        Dataset.open_any(tmp_path)
    for wrong in ("", None, 3, ["a.csv"]):
        with pytest.raises(ArgumentTypeError, match="url must be the URL or path"):
            Dataset.open_any(wrong)  # type: ignore[arg-type]


def test_files_below_temporary_folders_are_left_out(tmp_path: Path) -> None:
    for place, text in (("a.txt", "a"), ("_temporary/0/b.txt", "b"), (".cache/c.txt", "c"), ("_day=1/d.txt", "d")):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(f"{text}\n")
    assert sorted(Dataset.open_any(tmp_path)) == ["a", "d"]


def test_folders_and_files_on_s3(s3_endpoint: ObjectServer) -> None:
    for part in range(2):
        body = json.dumps({"part": part}).encode() + b"\n"
        s3_endpoint.put(f"s3://test-bucket/open any/part-{part}.jsonl", body)
    options = s3_endpoint.storage_options
    for url in ("s3://test-bucket/open any", "s3://test-bucket/open any/", "s3://test-bucket/open any/*.jsonl"):
        assert list(Dataset.open_any(url, storage_options=options)) == [{"part": 0}, {"part": 1}]
    one = Dataset.open_any("s3://test-bucket/open any/part-1.jsonl", storage_options=options)
    assert list(one) == [{"part": 1}]


def test_one_file_over_http(http_objects: HttpObjects) -> None:
    http_objects.put("/a.csv", b"a\n1\n")
    assert list(Dataset.open_any(f"{http_objects.endpoint_url}/a.csv")) == [{"a": 1}]
    with pytest.raises(ObjectNotFoundError):
        Dataset.open_any(f"{http_objects.endpoint_url}/missing.csv")
    with pytest.raises(PlanError, match="HTTP servers cannot list"):
        Dataset.open_any(f"{http_objects.endpoint_url}/folder/")


def test_an_empty_file_in_front_of_others_does_not_hide_their_format(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_bytes(b"")
    (tmp_path / "part-1").write_text('{"a": 1}\n')
    assert list(Dataset.open_any(tmp_path)) == [{"a": 1}]
    assert list(Dataset.open_any(tmp_path / "part-*")) == [{"a": 1}]


@pytest.mark.parametrize("pad", [5_000, 30_000])
def test_json_lines_of_long_records_are_no_document(tmp_path: Path, pad: int) -> None:
    rows = [{"text": "é" * pad}, {"text": "x"}]
    (tmp_path / "a.json").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    assert list(Dataset.open_any(tmp_path / "a.json")) == rows
    (tmp_path / "a.json.gz").write_bytes(gzip.compress((tmp_path / "a.json").read_bytes()))
    assert list(Dataset.open_any(tmp_path / "a.json.gz")) == rows


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("a\tb\n1\tx\n", [{"a": 1, "b": "x"}]),
        ("a;b\n1;2,5\n", [{"a": 1, "b": "2,5"}]),
        ("a|b\n1|2\n", [{"a": 1, "b": 2}]),
        ('"a,c";b\n1;2\n', [{"a,c": 1, "b": 2}]),
        ("a;b\n", []),
        ("a;b,c\n1,2\n", [{"a;b": 1, "c": 2}]),
        ("a;b\nx\n", [{"a;b": "x"}]),
        ("a\n1\n", [{"a": 1}]),
    ],
)
def test_the_header_of_a_csv_file_shows_its_delimiter(tmp_path: Path, content: str, rows: list[Any]) -> None:
    (tmp_path / "a.csv").write_text(content)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(content.encode()))
    assert list(Dataset.open_any(tmp_path / "a.csv")) == rows
    assert list(Dataset.open_any(tmp_path / "a.csv.gz")) == rows


def test_splits_of_a_data_set_are_no_classes_of_images(tmp_path: Path) -> None:
    for place in ("train/cat", "train/dog", "val/cat"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "a.png").write_bytes(PNG)
    with pytest.raises(PlanError, match=r"contains the splits 'train', 'val', which are no classes\. Pass one"):
        Dataset.open_any(tmp_path)
    assert [row["label"] for row in Dataset.open_any(tmp_path / "train")] == [0, 1]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.png").write_bytes(PNG)
    assert len(list(Dataset.open_any(tmp_path))) == 4


def test_a_stream_of_arrow_without_a_suffix_is_recognized(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2]})
    with pa.ipc.new_stream(str(tmp_path / "part-0"), table.schema) as writer:
        writer.write_table(table)
    assert list(Dataset.open_any(tmp_path)) == [{"a": 1}, {"a": 2}]
