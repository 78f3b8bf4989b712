"""With ``verify=True``, no row of a damaged compressed file is delivered, and rows, order and states are the same."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from aiostream_data import Dataset
from aiostream_data.codecs.compressors import compressor
from aiostream_data.errors import CorruptRecordError

LINES = [b"line %06d" % number for number in range(150_000)]
TEXT = b"".join(line + b"\n" for line in LINES)
"""More than one block of a decompressed stream."""


def zstd(data: bytes) -> bytes:
    made = compressor("zstd")
    return made.compress(data) + made.flush()


def members(data: bytes) -> bytes:
    half = len(data) // 2 // 12 * 12
    return gzip.compress(data[:half]) + gzip.compress(data[half:])


def wrong_checksum(stream: bytes) -> bytes:
    return stream[:-2] + bytes([stream[-2] ^ 1]) + stream[-1:]


def cut_short(stream: bytes) -> bytes:
    return stream[:-1]


def with_garbage(stream: bytes) -> bytes:
    return stream + b"garbage"


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip members": members,
    "zlib": zlib.compress,
    "zstd": zstd,
}
DAMAGES = [wrong_checksum, cut_short, with_garbage]
SOURCES: dict[str, Callable[..., Dataset[Any]]] = {
    "text": lambda files, **options: Dataset.from_text(files, encoding=None, **options),
    "fixed length": lambda files, **options: Dataset.from_fixed_length(files, 12, compression="auto", **options).map(
        bytes.rstrip
    ),
}


def rows_and_error(dataset: Dataset[Any]) -> tuple[list[Any], CorruptRecordError]:
    given: list[Any] = []
    with pytest.raises(CorruptRecordError) as caught:
        given.extend(dataset)
    return given, caught.value


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("compress", COMPRESS)
def test_no_row_of_a_damaged_file_is_delivered(
    tmp_path: Path, compress: str, damage: Callable[[bytes], bytes], source: str
) -> None:
    (tmp_path / "0").write_bytes(COMPRESS[compress](TEXT.replace(b"line", b"good")))
    (tmp_path / "1").write_bytes(damage(COMPRESS[compress](TEXT)))
    for cycle in (1, 2):
        given, error = rows_and_error(SOURCES[source](tmp_path / "*", verify=True, cycle_length=cycle))
        assert not any(line.startswith(b"line") for line in given)
        assert error.url.endswith("/1")
    (tmp_path / "0").unlink()
    assert rows_and_error(SOURCES[source](tmp_path / "*", verify=True))[0] == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_short_files_are_checked(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    (tmp_path / "x.gz").write_bytes(damage(gzip.compress(b"one\ntwo\n")))
    assert rows_and_error(Dataset.from_text(tmp_path / "x.gz", encoding=None, verify=True))[0] == []


@pytest.mark.parametrize("compression", ["auto", ""])
def test_plain_files_are_read_as_without_it(tmp_path: Path, compression: str) -> None:
    (tmp_path / "x").write_bytes(TEXT)
    (tmp_path / "y").write_bytes(b"")
    dataset: Dataset[Any] = Dataset.from_text(tmp_path / "*", encoding=None, compression=compression, verify=True)
    assert list(dataset) == LINES


def test_states_are_those_without_it_and_rows_are_made_again(tmp_path: Path) -> None:
    for name, compress in COMPRESS.items():
        (tmp_path / name).write_bytes(compress(TEXT[:1200]))

    def dataset(verify: bool) -> Dataset[Any]:
        return Dataset.from_text(tmp_path / "*", cycle_length=3, verify=verify).shuffle(50).repeat(2).batch(7)

    with dataset(verify=False).open(seed=1) as loader:
        expected = [batch.tolist() for batch in loader]
    for saved_by in (False, True):
        with dataset(verify=saved_by).open(seed=1) as loader:
            given = [batch.tolist() for batch in islice(loader, 70)]
            state = json.loads(json.dumps(loader.state_dict()))
        with dataset(verify=not saved_by).open(state=state) as loader:
            assert [*given, *(batch.tolist() for batch in loader)] == expected


def test_a_row_of_a_damaged_file_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(TEXT))
    dataset = Dataset.from_text(path, verify=True)
    with dataset.open() as loader:
        next(iter(loader))
        origin = loader.origins()[0]
    assert dataset.fetch(origin) == LINES[0].decode()
    path.write_bytes(wrong_checksum(gzip.compress(TEXT)))
    with pytest.raises(CorruptRecordError):
        dataset.fetch(origin)


@pytest.mark.parametrize("compress", COMPRESS)
def test_checking_a_bomb_holds_a_small_part_of_it(tmp_path: Path, compress: str) -> None:
    (tmp_path / "bomb").write_bytes(with_garbage(COMPRESS[compress](b"line\n" * (8 << 20))))
    with Dataset.from_text(tmp_path / "bomb", verify=True).open(memory_limit="8MB") as loader:
        with pytest.raises(CorruptRecordError):
            next(iter(loader))
        assert loader.stats().memory.peak < 8 << 20
