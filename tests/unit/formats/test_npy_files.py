"""NumPy files: rows of arrays and archives, resuming, and damaged files."""

from __future__ import annotations

import io
import struct
import zipfile
from contextlib import suppress
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
    PlanError,
    TableSchemaError,
)
from aiostream_data.codecs.npy_header import MAX_HEADER_NBYTES
from aiostream_data.formats.npy import NpyFormat
from aiostream_data.testing.resume import resumes_everywhere

NUMBERS = np.arange(60, dtype=np.float32).reshape(20, 3)
RECORDS = np.array(
    [(n, f"é{n}", b"b%d" % n, [n, -n], (n, n / 2)) for n in range(9)],
    [("n", "<i2"), ("t", "<U5"), ("b", "S4"), ("p", ">f8", (2,)), ("in", [("x", "<i4"), ("y", "<f4")])],
)
RECORD_ROWS = [{"n": n, "t": f"é{n}", "b": b"b%d" % n, "p": [n, -n], "in": {"x": n, "y": n / 2}} for n in range(9)]


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    made = io.BytesIO()
    np.lib.format.write_array(made, np.asanyarray(array), version, allow_pickle=True)
    return made.getvalue()


def npz(compressed: bool = False, **arrays: Any) -> bytes:
    made = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(made, **arrays)
    return made.getvalue()


def headed(text: str, data: bytes = b"", version: int = 1) -> bytes:
    size = struct.pack("<H" if version == 1 else "<I", len(text.encode()))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode() + data


def read(data: bytes, *fields: str, first: int = 0, limit: int = 1 << 28) -> list[Any]:
    return plain_rows(rows_of(NpyFormat(fields=fields or None), data, first, limit))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(7),
        NUMBERS,
        np.arange(48, dtype=">i2").reshape(4, 3, 2, 2),
        np.arange(6, dtype="complex64").reshape(2, 3),
        np.array([True, False, True]),
        np.array(["2026-01-01", "NaT"], "datetime64[D]"),
        np.arange(10.0, dtype=np.float16)[:, None],
        np.zeros((3, 0)),
        np.zeros((0, 4), np.int8),
        np.array(["one", "ü\0", ""]),
        np.array([b"one", b"", b"a\0b"]),
        np.array([["a", "bc"], ["", "d"]]),
        np.array([b"abcd", b"a\0\0\0"], "V4"),
        np.array(["", ""]),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_rows_are_those_of_the_array(array: Any, order: Any) -> None:
    data = npy(np.asarray(array, order=order))
    expected = [row.tobytes() for row in array] if array.dtype.kind == "V" else array.tolist()
    if array.dtype.kind == "M":
        expected = list(array)
        assert all(str(a) == str(b) for a, b in zip(list(rows_of(NpyFormat(), data)), expected, strict=True))
        return
    assert read(data) == expected
    for first in range(len(array) + 1):
        assert read(data, first=first) == expected[first:]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_records_are_dicts_in_every_version_of_the_format(version: tuple[int, int]) -> None:
    data = npy(RECORDS, version)
    assert read(data) == RECORD_ROWS
    assert read(data, "in", "n") == [{"in": row["in"], "n": row["n"]} for row in RECORD_ROWS]
    with pytest.raises(PlanError, match=r"file has no field 'z'. Its fields are 'n', 't'"):
        read(data, "z")
    with pytest.raises(PlanError, match="Its items have no fields"):
        read(npy(NUMBERS), "n")


def test_large_arrays_in_fortran_order_are_read_by_parts_of_their_columns() -> None:
    array = np.asfortranarray(np.random.default_rng(1).random((100_000, 3, 2)))
    directory = directory_of(NpyFormat(), npy(array))
    groups = list(directory.groups_from(5))
    assert len(groups) > 1
    assert [len(group.ranges) for group in groups] == [6] * len(groups)
    found = np.array(list(rows_of(NpyFormat(), npy(array), 5)))
    np.testing.assert_array_equal(found, array[5:])
    wide = np.asfortranarray(np.random.default_rng(1).random((50, 300)))
    assert [len(group.ranges) for group in directory_of(NpyFormat(), npy(wide)).groups_from(3)] == [1]
    np.testing.assert_array_equal(list(rows_of(NpyFormat(), npy(wide), 3)), wide[3:])


@pytest.mark.parametrize("compressed", [False, True])
def test_archives_have_a_row_of_each_array(compressed: bool) -> None:
    data = npz(compressed, x=NUMBERS, label=np.arange(20), text=np.array([f"t{n}" for n in range(20)]))
    expected = [{"x": NUMBERS[n].tolist(), "label": n, "text": f"t{n}"} for n in range(20)]
    assert read(data) == expected
    assert read(data, first=13) == expected[13:]
    assert read(data, "label", "x")[4] == {"label": 4, "x": NUMBERS[4].tolist()}
    assert read(npz(compressed, r=RECORDS, n=np.arange(9)))[3] == {"r": RECORD_ROWS[3], "n": 3}
    with pytest.raises(PlanError, match=r"file has no array 'z'. Its arrays are 'x', 'label', 'text'"):
        read(data, "z")


def test_archives_with_long_comments_and_many_arrays() -> None:
    arrays: dict[str, Any] = {f"array_{n:03}": np.arange(2) + n for n in range(700)}
    made = io.BytesIO(npz(**arrays))
    with zipfile.ZipFile(made, "a") as archive:
        archive.comment = b"c" * 65_000
    assert read(made.getvalue(), "array_003", "array_699")[1] == {"array_003": 4, "array_699": 700}


def test_members_that_do_not_fit_are_named() -> None:
    for arrays, message in (
        ({"x": NUMBERS, "y": np.arange(3)}, "the array 'y' has 3 rows, but 'x' has 20"),
        ({"x": NUMBERS, "y": np.array(3)}, "the array 'y' is a single value without rows"),
        ({"x": NUMBERS, "y": np.array([None] * 20)}, "Python objects, which are pickles"),
    ):
        with pytest.raises(CorruptRecordError, match=message):
            read(npz(**arrays))
        assert len(read(npz(**arrays), "x")) == 20
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x.npy", npy(NUMBERS))
    with pytest.raises(CorruptRecordError, match="its compression is neither deflate nor none"):
        read(made.getvalue())
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("x.txt", b"text")
    with pytest.raises(CorruptRecordError, match=r"member 'x\.txt': this is not a \.npy file"):
        read(made.getvalue())


def test_files_resume_after_every_row_and_rows_can_be_fetched(tmp_path: Path) -> None:
    for file in range(2):
        np.save(tmp_path / f"{file}.npy", NUMBERS[:7] + 100 * file)
        np.savez(tmp_path / f"{file}.npz", x=NUMBERS[:7] + 100 * file, n=np.arange(7))
    dataset = Dataset.from_npy(tmp_path / "*.npy", cycle_length=2)
    assert [row.tolist() for row in dataset][:3] == [[0, 1, 2], [100, 101, 102], [3, 4, 5]]
    resumes_everywhere(dataset.skip(4).take(6))
    archives = Dataset.from_npy(tmp_path / "*.npz", ["n", "x"]).shuffle(5, seed=2)
    resumes_everywhere(archives.batch(4))
    with archives.open() as loader:
        for _ in range(5):
            row = next(loader)
            (origin,) = loader.origins()
            assert plain_rows([archives.fetch(origin)]) == plain_rows([row])


def test_a_compressed_archive_cut_at_any_byte_is_an_error_that_names_it() -> None:
    data = npz(True, x=NUMBERS[:2])
    for size in range(len(data)):
        with pytest.raises(CorruptRecordError, match="file at byte"):
            read(data[:size])
    assert len(read(data)) == 2


@pytest.mark.parametrize(
    "data",
    [npy(RECORDS), npz(x=RECORDS, n=np.arange(9)), npz(True, x=RECORDS, n=np.arange(9))],
    ids=["npy", "npz", "z"],
)
def test_changed_bytes_give_other_rows_or_an_error_but_no_crash(data: bytes) -> None:
    draw = np.random.default_rng(3)
    for turn in range(150):
        changed = bytearray(data)
        for place in draw.integers(0, len(data) - 8, 3):
            size = 1 if turn % 2 else 8
            changed[place : place + size] = [b"\xff" * 8, bytes(8), draw.bytes(8)][turn % 3][:size]
        with suppress(AiostreamError):
            read(bytes(changed), limit=1 << 24)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "neither a .npy file nor"),
        (b"\x93NUMPX" + bytes(40), "neither a .npy file nor"),
        (b"\x93NUMPY\x04\x00" + bytes(40), "version 4.0"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(40), "more than 65536"),
        (headed("{'descr': '<i4', 'fortran_order': False, 'shape': (-3,)}"), "not a tuple of lengths"),
        (headed("{'descr': '<i4', 'fortran_order': False, 'shape': (1.5,)}"), "not a tuple of lengths"),
        (
            headed(f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({2**62}, {2**62})}}", bytes(4)),
            "the file has 4",
        ),
        (
            headed("{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", bytes(4)),
            "needs 8 bytes, but the file has 4",
        ),
        (headed("{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", bytes(12)), "needs 8 bytes"),
        (headed("{'descr': '<i4', 'fortran_order': False, 'shape': ()}", bytes(4)), "a single value without rows"),
        (headed(f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({2**60}, 0)}}"), "rows without bytes"),
        (headed("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8)), "Python objects"),
        (headed("{'descr': [('a', '<i4'), ('a', '<i4')], 'fortran_order': False, 'shape': (1,)}", bytes(8)), "dtype"),
        (headed("{'descr': 'spam', 'fortran_order': False, 'shape': (1,)}", bytes(8)), "dtype"),
        (headed("{'descr': ('i4,i4', (1,)), 'fortran_order': False, 'shape': (1,)}", bytes(8)), "dtype"),
        (headed("{'descr': '<i4', 'fortran_order': 1, 'shape': (1,)}", bytes(4)), "fortran_order"),
        (headed("{'descr': '<i4', 'shape': (1,)}", bytes(4)), "not a dict with"),
        (headed("__import__('os').abort()"), "cannot be parsed"),
        (headed("(" * 5000), "cannot be parsed"),
        (headed("-" * 60_000 + "1"), "cannot be parsed"),
        (npy(np.array([{}], object)), "Python objects, which are pickles"),
        (npy(NUMBERS) * 2, "but the file has"),
        (b"PK\x03\x04" + bytes(100), "the directory of the archive is damaged"),
        (b"PK\x05\x06" + bytes(18), "has 0 members"),
    ],
    ids=range(24),
)
def test_other_files_and_hostile_headers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=message):
        read(data)


def test_headers_up_to_the_limit_and_of_python_2_are_read() -> None:
    many = np.zeros(3, [(f"field_{n:05}", "<i2") for n in range(2000)])
    assert len(npy(many)) > 50_000
    assert len(read(npy(many), "field_00007")) == 3
    assert MAX_HEADER_NBYTES >= 65_535  # the largest header of version 1
    old = headed("{'descr': '<i2', 'fortran_order': False, 'shape': (2L,), }", bytes([1, 0, 2, 0]))
    assert read(old) == [1, 2]


@pytest.mark.filterwarnings("ignore:Reading")  # as NumPy says of files that Python 2 wrote
@pytest.mark.parametrize(
    "path", sorted((Path(np.__file__).parent / "lib/tests/data").glob("*.np[yz]")), ids=lambda p: p.name
)
def test_files_that_numpy_ships_are_read_or_refused(path: Path) -> None:
    if "objarr" in path.name:
        with pytest.raises(CorruptRecordError, match="Python objects, which are pickles"):
            read(path.read_bytes())
    else:
        assert read(path.read_bytes()) == np.load(path).tolist()


def test_invalid_text_is_an_error() -> None:
    for array in (np.array(["abc"]), np.array([["b"]])):
        for character in (0x7FFFFFFF, 0x110000, 0xD800, 0xDFFF):
            data = npy(array).replace("b".encode("utf-32-le"), struct.pack("<I", character))
            with pytest.raises(CorruptRecordError, match="a character that Unicode does not have"):
                read(data)


def test_members_in_front_of_the_file_are_refused() -> None:
    data = npz(True, x=NUMBERS)
    end = data.rindex(b"PK\x05\x06")
    place = struct.unpack_from("<I", data, end + 16)[0]
    moved = data[: end + 16] + struct.pack("<I", place + 90) + data[end + 20 :]
    with pytest.raises(CorruptRecordError, match=r"points to other bytes|directory of the archive is damaged"):
        read(moved)


def test_damaged_and_enormous_members_are_refused(tmp_path: Path) -> None:
    data = bytearray(npz(True, x=np.random.default_rng(1).integers(0, 99, 500)))
    data[400] ^= 1
    with pytest.raises(CorruptRecordError, match=r"cannot be decompressed|size or checksum is wrong"):
        read(bytes(data))
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros((1000, 10_000)))
    assert (tmp_path / "bomb.npz").stat().st_size < 1 << 20
    with (
        pytest.raises(MemoryBudgetError, match=r"bomb\.npz needs \d+ bytes"),
        Dataset.from_npy(tmp_path / "bomb.npz").open(memory_limit="64MB") as loader,
    ):
        list(loader)


def test_files_whose_arrays_differ_are_named(tmp_path: Path) -> None:
    for other in (NUMBERS[:, :2], NUMBERS.astype(np.float64), RECORDS):
        np.save(tmp_path / "0.npy", NUMBERS)
        np.save(tmp_path / "1.npy", other)
        with pytest.raises(TableSchemaError, match=r"0\.npy") as raised:
            list(Dataset.from_npy(tmp_path / "*.npy"))
        assert "1.npy" in str(raised.value)
    np.save(tmp_path / "1.npy", np.asfortranarray(NUMBERS.astype(">f4")))
    assert len(list(Dataset.from_npy(tmp_path / "*.npy"))) == 40


@pytest.mark.parametrize("fields", ["x", [], ["x", "x"], [1]], ids=str)
def test_invalid_fields_are_refused(fields: Any) -> None:
    with pytest.raises(PlanError, match="fields must be"):
        Dataset.from_npy("x.npy", fields)
