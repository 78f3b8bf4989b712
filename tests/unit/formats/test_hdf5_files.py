"""HDF5 files: rows of datasets, resuming, links to other files, and damaged files."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_bytes import directory_of, plain_rows, rows_of

from aiostream_data import (
    AiostreamError,
    CorruptRecordError,
    Dataset,
    MemoryBudgetError,
    MissingExtraError,
    PlanError,
    TableSchemaError,
)
from aiostream_data.formats.hdf5 import Hdf5Format
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.resume import resumes_everywhere

h5py = pytest.importorskip("h5py")

ROWS = 30
RECORDS = np.array([(n, b"b%d" % n, [n, -n]) for n in range(ROWS)], [("n", "<i2"), ("b", "S4"), ("p", ">f8", (2,))])
MATRIX = np.arange(3.0 * ROWS).reshape(ROWS, 3)


def written(write: Callable[[Any], object]) -> bytes:
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        write(file)
    return made.getvalue()


def plain(file: Any) -> None:
    file["n"] = np.arange(ROWS)
    file.create_dataset("matrix", data=MATRIX, chunks=(7, 2), compression="gzip", shuffle=True, fletcher32=True)
    file["group/records"] = RECORDS
    file["group/inner/flag"] = np.arange(ROWS) % 2 == 0
    file["fixed"] = np.array([b"%d" % n for n in range(ROWS)])
    file["grid"] = np.array([[b"a", b"bc"]] * ROWS)


def text(file: Any) -> None:
    file["t"] = [f"naïve {n}" for n in range(ROWS)]
    file["n"] = np.arange(ROWS, dtype=np.int8)


EXPECTED: list[dict[str, Any]] = [
    {
        "fixed": b"%d" % n,
        "grid": [b"a", b"bc"],
        "group": {"inner": {"flag": n % 2 == 0}, "records": {"n": n, "b": b"b%d" % n, "p": [n, -n]}},
        "matrix": [3 * n, 3 * n + 1, 3 * n + 2],
        "n": n,
    }
    for n in range(ROWS)
]
TEXT = [{"n": n, "t": f"naïve {n}"} for n in range(ROWS)]


def read(data: bytes, *fields: str, first: int = 0, limit: int = 1 << 28) -> list[Any]:
    return plain_rows(rows_of(Hdf5Format(fields=fields or None), data, first, limit))


@pytest.mark.parametrize(("write", "expected"), [(plain, EXPECTED), (text, TEXT)])
def test_rows_are_dicts_of_all_datasets(write: Callable[[Any], object], expected: list[Any]) -> None:
    data = written(write)
    for first in range(ROWS + 1):
        assert read(data, first=first) == expected[first:]


def test_fields_choose_datasets_and_groups() -> None:
    data = written(plain)
    assert read(data, "group/inner", "n") == [
        {"group": {"inner": row["group"]["inner"]}, "n": row["n"]} for row in EXPECTED
    ]
    assert read(data, "n") == [{"n": n} for n in range(ROWS)]
    for name in ("z", "group/z", "n/z"):
        with pytest.raises(PlanError, match=f"has no dataset '{name}'"):
            read(data, name)


def test_only_the_chunks_of_the_needed_rows_are_read() -> None:
    large = np.random.default_rng(1).random((4000, 250))
    data = written(lambda file: file.create_dataset("x", data=large, chunks=(100, 250)))
    groups = list(directory_of(Hdf5Format(), data).groups_from(2950))
    assert groups[0].first_row <= 2950 < groups[0].first_row + groups[0].rows
    assert sum(group.stored_nbytes for group in groups) < len(data) / 2
    found = np.array([row["x"] for row in rows_of(Hdf5Format(), data, 2950)])
    np.testing.assert_array_equal(found, large[2950:])


def test_chunks_that_were_never_written_have_the_fill_value() -> None:
    def write(file: Any) -> None:
        file.create_dataset("x", (6,), "i4", chunks=(2,), fillvalue=7)[2] = 1
        file.create_dataset("y", (6,), "i4")

    assert read(written(write)) == [{"x": 1 if n == 2 else 7, "y": 0} for n in range(6)]


def test_rows_are_equal_in_the_newest_version_of_the_format() -> None:
    made = io.BytesIO()
    with h5py.File(made, "w", libver="latest") as file:
        plain(file)
    assert read(made.getvalue()) == EXPECTED


# -- datasets that are refused


def linked(file: Any) -> None:
    file["n"] = np.arange(3)
    file["x"] = h5py.ExternalLink("/etc/passwd", "/n")


def soft(file: Any) -> None:
    file["n"] = np.arange(3)
    file["x"] = h5py.SoftLink("/n")


def external(file: Any) -> None:
    file["n"] = np.arange(3)
    file.create_dataset("x", (3,), "u1", external=[("/etc/passwd", 0, 3)])


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((3,), "u1")
    layout[:] = h5py.VirtualSource("/etc/passwd", "n", (3,))
    file["n"] = np.arange(3)
    file.create_virtual_dataset("x", layout)


def pieces(file: Any) -> None:
    file["n"] = np.arange(3)
    file.create_dataset("x", (3,), h5py.vlen_dtype(np.int32))


def references(file: Any) -> None:
    file["n"] = np.arange(3)
    file.create_dataset("x", (3,), h5py.ref_dtype)


def opaque(file: Any) -> None:
    file["n"] = np.arange(3)
    file["x"] = np.zeros(3, "V4")


def scalar(file: Any) -> None:
    file["n"] = np.arange(3)
    file["x"] = 5


def shorter(file: Any) -> None:
    file["n"] = np.arange(3)
    file["x"] = np.arange(2)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (linked, "'x' is a link"),
        (soft, "'x' is a link"),
        (external, "'x' has its data in other files"),
        (virtual, "'x' has its data in other files"),
        (pieces, "'x' has the type object"),
        (references, "'x' has the type object"),
        (opaque, "'x' has the type"),
        (scalar, "'x' has no rows"),
        (shorter, "'x' has 2 rows, but 'n' has 3"),
    ],
)
def test_datasets_that_cannot_be_read_are_refused_unless_they_are_not_chosen(
    write: Callable[[Any], object], message: str
) -> None:
    data = written(write)
    with pytest.raises(PlanError, match=message):
        read(data)
    assert read(data, "n") == [{"n": n} for n in range(3)]


def test_a_group_that_contains_itself_ends_in_an_error() -> None:
    def write(file: Any) -> None:
        file["g/n"] = np.arange(3)
        file["g/again"] = file["g"]

    with pytest.raises(PlanError, match="too many groups"):
        read(written(write))


def test_files_without_datasets_are_refused() -> None:
    with pytest.raises(PlanError, match="has no datasets"):
        read(written(lambda file: file.create_group("g")))


# -- damage


def test_other_files_are_refused() -> None:
    for data in (b"", b"\x89HDF", b"PK\x03\x04" + bytes(100)):
        with pytest.raises(CorruptRecordError, match="not an HDF5 file"):
            read(data)


def test_truncated_files_are_an_error() -> None:
    data = written(plain)
    for stop in range(0, len(data) - 1, len(data) // 40):
        with pytest.raises(AiostreamError):
            read(data[:stop])


def test_a_name_that_a_damaged_group_lists_but_does_not_have_is_an_error(tmp_path: Path) -> None:
    content = bytearray(written(lambda file: file.create_dataset("numbers", data=np.arange(3))))
    content[content.index(b"HEAP") + 32] ^= 0xFF  # the smallest name, with which the library compares others
    (tmp_path / "0.h5").write_bytes(content)
    (tmp_path / "1.h5").write_bytes(written(lambda file: file.create_dataset("numbers", data=np.arange(3))))
    with pytest.raises(CorruptRecordError, match=r"0\.h5 at byte 0: the group lists 'numbers', but"):
        list(Dataset.from_hdf5(tmp_path / "0.h5"))
    assert len(list(Dataset.from_hdf5(tmp_path / "*.h5", on_error="skip"))) == 3


def test_an_error_that_is_alive_at_exit_does_not_crash_the_process(tmp_path: Path) -> None:
    data = written(plain)
    (tmp_path / "a.h5").write_bytes(data[: len(data) // 2])
    code = """
import ctypes, sys
from aiostream_data import CorruptRecordError, Dataset
try:
    list(Dataset.from_hdf5(sys.argv[1]))
except CorruptRecordError as error:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(error))
    print("raised")
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.h5"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "raised\n"), done.stderr


def test_text_that_is_not_utf_8_is_an_error() -> None:
    with pytest.raises(CorruptRecordError, match="'t' is not UTF-8"):
        read(written(text).replace("naïve 7".encode(), b"na\xff\xffve 7"))


@pytest.mark.parametrize("chunks", [None, (7,)])
def test_strings_longer_than_the_file_are_an_error(chunks: tuple[int] | None) -> None:
    names = [f"{n:>9}" for n in range(ROWS)]
    data = written(lambda file: file.create_dataset("t", data=names, dtype=h5py.string_dtype(), chunks=chunks))
    assert [row["t"] for row in read(data)] == names
    place = (9).to_bytes(4, "little") + data.index(b"GCOL").to_bytes(8, "little")
    with pytest.raises(CorruptRecordError, match="longer than the file"):
        read(data.replace(place, b"\0\0\0\xff" + place[4:], 1))


def test_a_damaged_heap_of_strings_is_an_error() -> None:
    data = bytearray(written(text))
    heap = data.index(b"GCOL")
    for place, value in ((heap + 24, b"\xff" * 8), (heap + 8, bytes(8)), (heap + 8, b"\xff" * 8)):
        damaged = bytearray(data)
        damaged[place : place + 8] = value
        with pytest.raises(CorruptRecordError, match="heap of strings is damaged"):
            read(bytes(damaged))


# -- through a Dataset


@pytest.fixture
def files(tmp_path: Path) -> str:
    for number, write in enumerate((plain, plain)):
        (tmp_path / f"{number}.h5").write_bytes(written(write))
    return str(tmp_path / "*.h5")


def test_runs_resume_at_every_row(files: str, tmp_path: Path) -> None:
    resumes_everywhere(Dataset.from_hdf5(files, ["n", "matrix"], cycle_length=2, shuffle_shards=True, seed=1).batch(7))
    (tmp_path / "text.hdf5").write_bytes(written(text))
    resumes_everywhere(Dataset.from_hdf5(str(tmp_path / "text.hdf5")).shuffle(5, seed=1))


def test_batches_have_columns(files: str) -> None:
    batch = next(iter(Dataset.from_hdf5(files).batch(2 * ROWS)))
    assert (batch["matrix"].shape, batch["group"]["records"]["p"].dtype) == ((2 * ROWS, 3), np.float64)
    assert list(batch["group"]["inner"]["flag"][:3]) == [True, False, True]


def test_files_whose_rows_differ_are_refused(files: str, tmp_path: Path) -> None:
    (tmp_path / "2.h5").write_bytes(written(lambda file: file.create_dataset("n", data=np.arange(3.0))))
    with pytest.raises(TableSchemaError, match=r"2\.h5"):
        list(Dataset.from_hdf5(files, ["n"]))


def test_a_chunk_larger_than_the_memory_limit_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    shape = (2000, 50_000)
    path.write_bytes(written(lambda file: file.create_dataset("x", shape, "f8", chunks=shape, compression="gzip")))
    with pytest.raises(MemoryBudgetError, match=r"a\.h5"):
        list(Dataset.from_hdf5(str(path)).open(memory_limit="64MB"))


def test_any_format_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(written(text))
    assert len(list(Dataset.open_any(tmp_path))) == ROWS


def test_object_stores_deliver_the_same_rows() -> None:
    with fault_server("s3") as server:
        server.put("bucket/a.h5", written(plain))
        found = Dataset.from_hdf5("s3://bucket/a.h5", storage_options=server.storage_options)
        assert plain_rows(list(found)) == EXPECTED


def test_a_missing_library_names_the_extra(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[hdf5\]"):
        list(Dataset.from_hdf5(files))


@pytest.mark.parametrize("fields", [[], "n", ["n", "n"], [""], [1]])
def test_invalid_fields_are_refused_at_once(fields: Any) -> None:
    with pytest.raises(PlanError, match="fields must be"):
        Dataset.from_hdf5("a.h5", fields)
