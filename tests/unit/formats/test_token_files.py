"""Files of tokens: sequences of one length, overlapping or not, of every dtype; damaged and foreign files."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_bytes import directory_of, rows_of

from aiostream_data import CorruptRecordError, Dataset, PlanError, TableSchemaError
from aiostream_data.formats.tokens import TokensFormat
from aiostream_data.testing.resume import resumes_everywhere

TOKENS = np.random.default_rng(0).integers(0, 50_000, 1_000)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def headed(shape: str) -> bytes:
    text = f"{{'descr': '<u2', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text


def sequences(tokens: Any, length: int, stride: int) -> Any:
    return [tokens[at : at + length] for at in range(0, len(tokens) - length + 1, stride)]


def format_of(length: int, stride: int, dtype: str = "<u2", header_nbytes: int = 0) -> TokensFormat:
    return TokensFormat(length=length, stride=stride, dtype=dtype, header_nbytes=header_nbytes)


@pytest.mark.parametrize("dtype", ["<u2", "<u4", ">u2", "<i8", "u1"])
@pytest.mark.parametrize(("length", "stride"), [(10, 10), (11, 10), (7, 1), (5, 30), (1, 1), (1_000, 1), (1_001, 1)])
def test_sequences_are_parts_of_the_tokens(dtype: str, length: int, stride: int) -> None:
    tokens = TOKENS.astype(dtype)
    expected = sequences(tokens, length, stride)
    for data in (tokens.tobytes(), npy(tokens)):
        for first in (0, 1, len(expected) // 2, len(expected)):
            found = list(rows_of(format_of(length, stride, dtype), data, first))
            assert len(found) == len(expected) - min(first, len(expected))
            np.testing.assert_array_equal(found, expected[first:] if found else found)
            assert all(row.dtype == np.dtype(dtype).newbyteorder("=") for row in found)


def test_large_files_are_read_in_parts_of_bounded_size() -> None:
    tokens = np.random.default_rng(1).integers(0, 1 << 16, 1_100_000).astype(np.uint16)
    for length, stride in ((1_025, 1_024), (2_000, 900), (1_000, 1_000)):
        found = directory_of(format_of(length, stride), tokens.tobytes())
        groups = list(found.groups_from(0))
        assert len(groups) > 1
        assert all(group.stored_nbytes + group.nbytes < 5 << 20 for group in groups)
        rows = list(rows_of(format_of(length, stride), tokens.tobytes(), 17))
        np.testing.assert_array_equal(rows, sequences(tokens, length, stride)[17:])


def test_a_header_is_skipped() -> None:
    data = bytes(range(200)) + TOKENS.astype("<u2").tobytes()
    np.testing.assert_array_equal(list(rows_of(format_of(10, 10, "<u2", 200), data)), TOKENS.reshape(100, 10))
    with pytest.raises(CorruptRecordError, match="the file has 1 bytes, fewer than its header of 200 bytes"):
        directory_of(format_of(10, 10, "<u2", 200), b"a")


def test_truncated_files_are_refused_at_every_byte_that_is_not_the_end_of_a_token() -> None:
    raw, saved = TOKENS[:20].astype("<u4").tobytes(), npy(TOKENS[:20].astype("<u4"))
    for stop in range(len(raw)):
        if stop % 4:
            with pytest.raises(CorruptRecordError, match="not a multiple of uint32 tokens"):
                directory_of(format_of(3, 3, "<u4"), raw[:stop])
        else:
            assert directory_of(format_of(3, 3, "<u4"), raw[:stop]).rows == stop // 12
    for stop in range(1, len(saved)):
        with pytest.raises(CorruptRecordError, match=r".+"):
            directory_of(format_of(3, 3), saved[:stop])
    assert directory_of(format_of(3, 3), b"").rows == 0
    with pytest.raises(CorruptRecordError, match="the NumPy file is cut short: it has 0 bytes"):
        directory_of(format_of(3, 3), b"", url="a.npy")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy(TOKENS.reshape(10, 100)), r"shape \(10, 100\) and int64 does not contain tokens"),
        (npy(TOKENS / 2), "float64 does not contain tokens"),
        (npy(np.int64(3)), r"shape \(\) and int64 does not contain tokens"),
        (npy(TOKENS) + b"\0", "1000 tokens of int64 do not match the 8001 bytes"),
        (b"\x93NUMPY\x01\0\xff\xff{}", "header"),
        (headed("(99999999999999999999,)"), "99999999999999999999 tokens of uint16 do not match the 0 bytes"),
        (headed("(-1,)"), "is not a tuple of lengths"),
        (b"PAR1\x15\x04" * 8, "this is a Parquet file, not a file of tokens: use from_parquet"),
        (b"\x89HDF\r\n\x1a\n" * 8, "this is an HDF5 file"),
    ],
)
def test_other_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=message):
        directory_of(format_of(10, 10), data)


def test_compressed_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.bin.gz").write_bytes(gzip.compress(TOKENS.astype("<u2").tobytes()) + b"\0")
    with pytest.raises(CorruptRecordError, match=r"name ends with .gz, but compressed tokens are not supported"):
        list(Dataset.from_tokens(tmp_path / "train.bin.gz", 10))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "length must be at least 1"),
        ({"length": 4, "stride": 0}, "stride must be at least 1"),
        ({"length": 4, "dtype": "float32"}, "dtype must be a dtype of integers, got float32"),
        ({"length": 4, "dtype": "tokens"}, "dtype must be a dtype of integers"),
        ({"length": 4, "header_nbytes": -1}, "header_nbytes must be at least 0"),
    ],
)
def test_invalid_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Dataset.from_tokens("*.bin", **arguments)


@pytest.fixture
def files(tmp_path: Path) -> str:
    for number, size in enumerate((40, 3, 57)):
        (tmp_path / f"{number}.bin").write_bytes((100 * number + np.arange(size)).astype("<u2").tobytes())
    return f"{tmp_path}/*.bin"


def test_sequences_of_several_files_are_read_in_order_and_resume_after_every_one(files: str) -> None:
    dataset = Dataset.from_tokens(files, 9, stride=8)
    expected = [*sequences(np.arange(40), 9, 8), *sequences(200 + np.arange(57), 9, 8)]
    np.testing.assert_array_equal(list(dataset), expected)
    resumes_everywhere(dataset.shuffle(4, seed=1).batch(3))
    resumes_everywhere(Dataset.from_tokens(files, 5, cycle_length=2, shuffle_shards=True, seed=7))


def test_numpy_files_of_different_dtypes_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(40, dtype=np.uint16))
    np.save(tmp_path / "b.npy", np.arange(40, dtype=np.uint32))
    with pytest.raises(TableSchemaError, match=r"a\.npy(.|\n)*b\.npy|b\.npy(.|\n)*a\.npy"):
        list(Dataset.from_tokens(f"{tmp_path}/*.npy", 4))
    assert Dataset.from_tokens(tmp_path / "b.npy", 4).take(1).batch(1).element_spec is not None
