"""``Dataset.from_iceberg``: rows that deletion vectors delete, in Puffin files as Iceberg's library writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from aiostream_data import Dataset
from aiostream_data.errors import CorruptRecordError, TableSnapshotError
from aiostream_data.testing.resume import resumes_everywhere

pytest.importorskip("pyiceberg")

from iceberg_deletes import POSITION, numbers_in_two_files, with_deletes
from puffin_files import puffin, vector
from pyiceberg.table import StaticTable
from pyroaring import BitMap

from aiostream_data.dataset.deletion_vectors import MOST_BITMAPS, MOST_ROWS, DamagedVectorError, rows_of_vector
from aiostream_data.dataset.iceberg_vectors import vectors_in


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[Any]:
    with numbers_in_two_files(tmp_path) as table:
        yield table


def urls(table: Any) -> list[str]:
    """Return the URLs of the files, in the order of their numbers."""
    found = {}
    for number in (0, 5):
        (task,) = table.scan(row_filter=f"id == {number}").plan_files()
        found[number] = task.file.file_path
    return [found[0], found[5]]


def with_puffin(table: Any, content: bytes) -> Any:
    path = f"{table.metadata.location}/deletes.puffin"
    Path(path.removeprefix("file://")).write_bytes(content)
    return with_deletes(table, path, POSITION, "PUFFIN")


def ids(table: Any, **arguments: Any) -> list[int]:
    return sorted(int(row["id"]) for row in Dataset.from_iceberg(table, **arguments))


def test_rows_of_deletion_vectors_are_never_returned(numbers: Any) -> None:
    first, second = urls(numbers)
    table = with_puffin(numbers, puffin({second: vector([0, 4]), first: vector([1, 2]), "elsewhere": vector([3])}))
    assert ids(table) == [0, 3, 4, 6, 7, 8] == sorted(table.scan().to_arrow()["id"].to_pylist())
    assert ids(table, filters=[("id", ">=", 4)]) == [4, 6, 7, 8]
    assert ids(table, snapshot_id=numbers.current_snapshot().snapshot_id) == list(range(10))
    resumes_everywhere(Dataset.from_iceberg(table, cycle_length=2))


def test_the_rows_of_a_file_can_all_be_deleted(numbers: Any) -> None:
    table = with_puffin(numbers, puffin({urls(numbers)[0]: vector(range(5))}))
    assert ids(table) == [5, 6, 7, 8, 9]


def test_other_blobs_are_ignored(numbers: Any) -> None:
    content = puffin({urls(numbers)[0]: b"statistics"}, type="apache-datasketches-theta-v1")
    assert ids(with_puffin(numbers, content)) == list(range(10))


def damaged(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def one(rows: Sequence[int]) -> Callable[[str], bytes]:
    return lambda url: puffin({url: vector(rows)})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda url: b"", "it is not a Puffin file"),
        (lambda url: one([1])(url)[:-1], "it is not a Puffin file"),
        (one(range(6)), "deletes more than the 5 rows of its file"),
        (one([2**32]), "the keys of a deletion vector are damaged"),
        (lambda url: puffin({url: damaged(vector([1]), 4)}), "it is not a deletion vector"),
        (lambda url: puffin({url: damaged(vector([1]), 21)}), "the checksum of a deletion vector is wrong"),
        (lambda url: puffin({url: vector([1])[:-1]}), "it is not a deletion vector, or it is cut off"),
        (lambda url: puffin({url: vector([1])}, length=1 << 40), "a deletion vector lies outside of the file"),
        (lambda url: puffin({url: vector([1])}, offset=-1), "a deletion vector lies outside of the file"),
        (lambda url: puffin({url: vector([1])}, **{"compression-codec": "zstd"}), "a deletion vector is compressed"),
        (lambda url: puffin({url: vector([1])}, properties={}), "a deletion vector has no referenced-data-file"),
    ],
)
def test_damaged_vectors_are_an_error_that_names_the_file(
    numbers: Any, content: Callable[[str], bytes], reason: str
) -> None:
    table = with_puffin(numbers, content(urls(numbers)[0]))
    with pytest.raises(
        TableSnapshotError, match=rf"the deletion vectors in .*deletes\.puffin cannot be read: .*{reason}"
    ):
        list(Dataset.from_iceberg(table))


def test_a_vector_of_rows_that_do_not_exist_is_an_error(numbers: Any) -> None:
    table = with_puffin(numbers, one([5])(urls(numbers)[0]))
    with pytest.raises(CorruptRecordError, match="deletes rows that the file, which has 5 rows, does not have"):
        list(Dataset.from_iceberg(table))


def test_vectors_that_share_bytes_are_refused_without_copies_of_them() -> None:
    one_vector = vector(range(0, 60_000, 3))
    several = puffin({str(number): b"" for number in range(1_000)}, offset=4, length=len(one_vector))
    content = several[:4] + one_vector + several[4:]
    with pytest.raises(DamagedVectorError, match="its deletion vectors overlap"):
        vectors_in(content)
    two = puffin({"a": vector([1]), "b": vector([2])}, properties={"referenced-data-file": "a"})
    with pytest.raises(DamagedVectorError, match="several deletion vectors for one data file"):
        vectors_in(two)


@pytest.mark.parametrize("number", [int("9" * 4_000), 2**64])
def test_numbers_of_any_length_are_refused(number: int) -> None:
    for more in ({"offset": number}, {"length": number}, {"offset": number, "length": number}):
        with pytest.raises(DamagedVectorError, match="lies outside of the file"):
            vectors_in(puffin({"a": vector([1])}, **more))


def test_a_file_cut_off_anywhere_gives_its_vectors_or_a_typed_error() -> None:
    content = puffin({"a": vector([1, 7]), "b": vector(range(100))})
    for nbytes in range(len(content)):
        with pytest.raises(DamagedVectorError):
            vectors_in(content[:nbytes])


def test_a_vector_with_any_byte_changed_is_refused() -> None:
    whole = vector([1, 7, 70_000])
    assert rows_of_vector(whole, 100_000).tolist() == [1, 7, 70_000]
    for at in range(len(whole)):
        with pytest.raises(DamagedVectorError):
            rows_of_vector(damaged(whole, at), 100_000)
        with pytest.raises(DamagedVectorError):
            rows_of_vector(whole[:at], 100_000)


def test_rows_beyond_four_billion_have_keys() -> None:
    rows = [0, 2**32 - 1, 2**32, 5 * 2**32 + 3]
    assert rows_of_vector(vector(rows), 2**40).tolist() == rows
    assert rows_of_vector(vector([]), 5).tolist() == []
    assert rows_of_vector(vector([]), 5).dtype == np.int64


def test_a_small_vector_of_billions_of_rows_is_refused_before_they_are_written() -> None:
    everything = BitMap()
    everything.add_range(0, 2**32 - 1)
    everything.run_optimize()
    body = b"\xd1\xd3\x39\x64" + (1).to_bytes(8, "little") + bytes(4) + everything.serialize()
    hostile = len(body).to_bytes(4, "big") + body + crc32(body).to_bytes(4, "big")
    assert len(hostile) < 1 << 20
    with pytest.raises(DamagedVectorError, match="deletes more than the 100 rows"):
        rows_of_vector(hostile, 100)
    with pytest.raises(DamagedVectorError, match=rf"deletes more than {MOST_ROWS} rows\. Compact the table"):
        rows_of_vector(hostile, 1 << 62)


def test_a_vector_of_many_bitmaps_is_refused_soon() -> None:
    rows = [number << 32 for number in range(MOST_BITMAPS)]
    assert rows_of_vector(vector(rows), 1 << 62).tolist() == rows
    with pytest.raises(DamagedVectorError, match="too many bitmaps"):
        rows_of_vector(vector([*rows, MOST_BITMAPS << 32]), 1 << 62)


def test_a_table_that_was_upgraded_to_version_3_is_read(numbers: Any, tmp_path: Path) -> None:
    before = with_puffin(numbers, one([1, 3])(urls(numbers)[0]))
    metadata = json.loads(Path(before.metadata_location.removeprefix("file://")).read_text())
    (tmp_path / "3.metadata.json").write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 10}))
    table = StaticTable.from_metadata(f"file://{tmp_path}/3.metadata.json")
    assert table.metadata.format_version == 3
    assert ids(table) == [0, 2, 4, 5, 6, 7, 8, 9]
