"""A small file that decompresses to a record larger than the memory limit is refused before that memory is taken."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from leaks import leaves_nothing

from aiostream_data import Dataset, MemoryBudgetError, Quarantine, Retry, Skip, TFRecordWriter
from aiostream_data.codecs.compression import Compression
from aiostream_data.testing.cut_streams import compressed

LIMIT = 16 << 20
LARGE = 64 << 20
BLOCK = 4 << 20
"""The most bytes of a record that are received before it is measured again."""

WINDOW = 10 << 20
"""The most memory of a decompressor: the window of xz."""

COMPRESSIONS: dict[str, Compression] = {
    "gz": "gzip",
    "zz": "zlib",
    "zst": "zstd",
    "bz2": "bz2",
    "xz": "xz",
    "lz4": "lz4",
    "snappy": "snappy",
}


def whole(path: Any, **given: Any) -> Dataset[Any]:
    return Dataset.from_files(path, compression="auto", **given)


def sizes(dataset: Dataset[Any], **given: Any) -> list[int]:
    with dataset.open(memory_limit=LIMIT, **given) as loader:
        return [len(row["data"]) for row in loader]


@pytest.mark.parametrize("beside", [0, 3], ids=["alone", "in a group of small files"])
@pytest.mark.parametrize(("suffix", "name"), COMPRESSIONS.items())
def test_a_file_that_decompresses_beyond_the_limit_is_refused_without_the_memory(
    tmp_path: Path, suffix: str, name: Compression, beside: int
) -> None:
    for number in range(beside):
        (tmp_path / f"a{number}.{suffix}").write_bytes(compressed(b"x" * 100, name))
    bomb = tmp_path / f"b.{suffix}"
    bomb.write_bytes(compressed(bytes(LARGE), name))
    stored = bomb.stat().st_size
    rows: list[int] = []
    with leaves_nothing(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with whole(f"{tmp_path}/*").open(memory_limit=LIMIT) as loader, pytest.raises(MemoryBudgetError) as caught:
            rows.extend(len(row["data"]) for row in loader)
        peak = loader.stats().memory.peak
    assert rows == [100] * beside
    message = str(caught.value)
    assert message.startswith(f"{bomb} has at least ")
    assert f"{stored} bytes of {name}, more than the memory limit of {LIMIT} bytes. Raise memory_limit=, " in message
    assert "compression=''" in message
    assert caught.value.url == str(bomb)
    assert peak < LIMIT + WINDOW + 3 * BLOCK + stored


def test_an_uncompressed_file_beyond_the_limit_passes_alone_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(LARGE))
    with pytest.warns(RuntimeWarning, match="they pass alone"):
        assert sizes(whole(tmp_path / "a.bin")) == [LARGE]


def test_a_compressed_file_within_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(LIMIT)))
    assert sizes(whole(tmp_path / "a.gz")) == [LIMIT]
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(LIMIT + 1)))
    with pytest.raises(MemoryBudgetError, match=f"has at least {LIMIT + 1} bytes"):
        sizes(whole(tmp_path / "a.gz"))


def test_a_file_that_stays_compressed_is_read(tmp_path: Path) -> None:
    inner = gzip.compress(bytes(LARGE))
    (tmp_path / "plain.gz").write_bytes(inner)
    assert sizes(Dataset.from_files(tmp_path / "plain.gz")) == [len(inner)]
    (tmp_path / "twice.gz").write_bytes(gzip.compress(inner))  # only the outer stream is decompressed
    assert sizes(whole(tmp_path / "twice.gz")) == [len(inner)]
    members = gzip.compress(bytes(LIMIT // 2)) * 3
    (tmp_path / "members.gz").write_bytes(members)
    with pytest.raises(MemoryBudgetError, match=r"members\.gz has at least"):
        sizes(whole(tmp_path / "members.gz"))


@pytest.mark.parametrize("given", [{}, {"ordered": False}, {"shuffle_shards": True, "seed": 3}], ids=str)
@pytest.mark.parametrize("filling", [100, 3 << 20], ids=["small files", "large files"])
def test_a_policy_skips_such_a_file_alone(tmp_path: Path, filling: int, given: dict[str, Any]) -> None:
    for number in range(6):
        nbytes = LARGE if number in (1, 4) else filling + number
        (tmp_path / f"{number}.gz").write_bytes(gzip.compress(bytes(nbytes)))
    expected = [filling + number for number in (0, 2, 3, 5)]
    log = tmp_path / "log.jsonl"
    for policy in (Skip(2), Quarantine(log), Retry(3, 20.0, then="skip")):  # the same bytes are not read again
        assert sorted(sizes(whole(f"{tmp_path}/*.gz", on_error=policy, **given))) == expected
    assert sorted(sizes(whole(f"{tmp_path}/*.gz", **given), on_error="skip")) == expected
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(each["url"] for each in told) == [f"{tmp_path}/1.gz", f"{tmp_path}/4.gz"]
    assert all("MemoryBudgetError" in each["error"] and each["lost"] == "shard" for each in told)


@pytest.mark.timeout(60)
def test_large_files_with_damage_are_skipped_one_after_another(tmp_path: Path) -> None:
    nbytes = LIMIT // 2
    for number in range(4):
        content = bytearray(gzip.compress(random.Random(number).randbytes(nbytes), 1))
        content[-4000] ^= 255 * (number in (1, 2))
        (tmp_path / f"{number}.gz").write_bytes(content)
    assert sizes(whole(f"{tmp_path}/*.gz", on_error="skip")) == [nbytes] * 2


def tfrecords(rows: list[int]) -> bytes:
    with NamedTemporaryFile(suffix=".tfrecord") as file:
        with TFRecordWriter(file.name) as writer:
            for nbytes in rows:
                writer.write(bytes(nbytes))
        return Path(file.name).read_bytes()


def lines(rows: list[int]) -> bytes:
    return b"".join(b"x" * nbytes + b"\n" for nbytes in rows)


def samples(rows: list[int]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number, nbytes in enumerate(rows):
            info = tarfile.TarInfo(f"{number}.bin")
            info.size = nbytes
            archive.addfile(info, io.BytesIO(bytes(nbytes)))
    return file.getvalue()


STREAMS: dict[str, tuple[Callable[[list[int]], bytes], Callable[..., Dataset[Any]], str]] = {
    "tfrecord": (tfrecords, Dataset.from_tfrecord, rf"^a record of .*a has {LARGE + 16} bytes after"),
    "text": (lines, Dataset.from_text, "^a record of .*a has at least"),
    "webdataset": (samples, Dataset.from_webdataset, "^a record of .*a has "),
}


@pytest.mark.parametrize("name", ["gzip", "zstd"])
@pytest.mark.parametrize(("write", "read", "message"), STREAMS.values(), ids=STREAMS)
def test_a_record_of_a_compressed_stream_is_refused_behind_the_rows_before(
    tmp_path: Path, write: Callable[[list[int]], bytes], read: Callable[..., Dataset[Any]], message: str, name: Any
) -> None:
    path = tmp_path / "a"
    path.write_bytes(compressed(write([10] * 50 + [LARGE] + [10] * 50), name))
    rows: list[Any] = []
    with leaves_nothing(), read(path).open(memory_limit=LIMIT) as loader, pytest.raises(MemoryBudgetError) as caught:
        rows.extend(loader)
    assert len(rows) == 50
    assert loader.stats().memory.peak < LIMIT + 3 * BLOCK
    caught.match(message)
    with read(path, on_error="skip").open(memory_limit=LIMIT) as loader:
        assert sum(1 for _ in loader) == 50
    path.write_bytes(write([10] * 50 + [LARGE] + [10] * 50))
    with pytest.warns(RuntimeWarning, match="they pass alone"), read(path).open(memory_limit=LIMIT) as loader:
        assert sum(1 for _ in loader) == 101
