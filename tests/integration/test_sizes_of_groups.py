"""The size of groups: larger ones for shards that are read into separate objects than for one block."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from groups_or_alone import grouped
from numpy.typing import NDArray

from aiostream_data import Dataset
from aiostream_data._engine.sources import groups_ahead
from aiostream_data._engine.sources.group_bytes import SEPARATE_NBYTES
from aiostream_data._engine.sources.group_limits import (
    LOCAL_GROWTH,
    ONE_REQUEST_GROWTH,
    SEPARATE_REMOTE_GROWTH,
)
from aiostream_data._engine.sources.typical_shards import COMPRESSION_RATIO, MOST_RATIO, TypicalShards
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.file_reads import FileReader
from aiostream_data.testing.fault_server import fault_server

FILES = 160
FILES_OF_A_BLOCK = 8


pytestmark = pytest.mark.chooses_groups


def from_files(pattern: str) -> Dataset[Any]:
    return Dataset.from_files(pattern).map(lambda file: file["data"])


def from_long_records(pattern: str) -> Dataset[Any]:
    return Dataset.from_fixed_length(pattern, SEPARATE_NBYTES)


def from_records(pattern: str) -> Dataset[Any]:
    halves = Dataset.from_fixed_length(pattern, SEPARATE_NBYTES // 2)
    return halves.batch(2).map(lambda pair: pair[0] + pair[1])


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (from_files, LOCAL_GROWTH * FILES_OF_A_BLOCK),
        (from_long_records, LOCAL_GROWTH * FILES_OF_A_BLOCK),
        (from_records, FILES_OF_A_BLOCK),
    ],
)
def test_only_files_that_are_read_into_separate_objects_form_longer_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], Dataset[Any]], most: int
) -> None:
    adapted = groups_ahead.adapted_size  # a busy machine reads slowly, and gets smaller groups
    monkeypatch.setattr(groups_ahead, "adapted_size", lambda size, _, is_local: adapted(size, 0.0, is_local=is_local))
    contents = [number.to_bytes(4, "little") * (SEPARATE_NBYTES // 4) for number in range(FILES)]
    for number, content in enumerate(contents):
        (tmp_path / f"{number:03}").write_bytes(content)
    with grouped(FILES_OF_A_BLOCK * SEPARATE_NBYTES) as sizes, make(f"{tmp_path}/*").open() as loader:
        assert [bytes(row) for row in loader] == contents
    assert max(sizes) == most


def test_files_of_unknown_size_are_read_in_groups_of_the_same_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number:03}" for number in range(FILES)]
    for path in paths:
        path.write_bytes(bytes(SEPARATE_NBYTES))
    sizes, read = [], FileReader.read_objects

    def noted(self: FileReader, shards: Sequence[ShardRef], places: Sequence[memoryview]) -> NDArray[np.bool_]:
        sizes.append(sum(map(len, places)))
        return read(self, shards, places)

    monkeypatch.setattr(FileReader, "read_objects", noted)
    with grouped(FILES_OF_A_BLOCK * SEPARATE_NBYTES), Dataset.from_files(paths).open() as loader:
        assert sum(len(file["data"]) for file in loader) == FILES * SEPARATE_NBYTES
    assert max(sizes) == LOCAL_GROWTH * FILES_OF_A_BLOCK * SEPARATE_NBYTES


def test_the_expected_size_of_files_follows_the_recent_ones() -> None:
    typical = TypicalShards()
    typical.learn([])
    assert typical.nbytes == 0
    typical.learn([100, 300])
    assert typical.nbytes == 200
    for _ in range(10):
        typical.learn([1000])
    assert 990 < typical.nbytes < 1000


@pytest.mark.parametrize(("inputs", "cycle_length"), [(40, 1), (1, 40)])
def test_large_files_of_many_inputs_are_read_alone(tmp_path: Path, inputs: int, cycle_length: int) -> None:
    """A group has at least one file, so the groups of all open files together could exceed the memory limit."""
    limit, records = 64 << 20, [bytes([number]) * (1 << 16) for number in range(8)]
    for number in range(40):
        (tmp_path / f"{number:02}").write_bytes(b"".join(map(frame, records)))
    assert limit // (4 * 40) < (tmp_path / "00").stat().st_size < limit // 64
    files = sorted(map(str, tmp_path.iterdir()))
    few = Dataset.from_tfrecord(files)
    sources = [Dataset.from_tfrecord(files[at::inputs], cycle_length=cycle_length) for at in range(inputs)]
    many = sources[0] if inputs == 1 else Dataset.sample_from(sources, seed=3)
    for dataset, expected in ((few, 40), (many, 0)):
        with grouped() as sizes, dataset.open(memory_limit=limit) as loader:
            assert sorted(loader) == sorted(records * 40)
        assert sum(sizes) == expected


def test_the_expected_ratio_grows_only_if_most_compressed_files_were_too_large() -> None:
    typical = TypicalShards()
    typical.decompressed(0, 0)
    typical.decompressed(4, 2)
    assert typical.ratio == COMPRESSION_RATIO
    typical.decompressed(4, 3)
    assert typical.ratio == 2 * COMPRESSION_RATIO
    for _ in range(10):
        typical.decompressed(1, 1)
    assert typical.ratio == MOST_RATIO


def test_files_that_decompress_to_much_more_are_soon_read_alone(tmp_path: Path) -> None:
    """Otherwise, each of them would be decompressed twice."""
    compressor, content = zstandard.ZstdCompressor(), frame(random.Random(6).randbytes(1_000) + bytes(39_000))
    for number in range(FILES):
        (tmp_path / f"{number:03}.zst").write_bytes(compressor.compress(content))
    nbytes = (tmp_path / "000.zst").stat().st_size
    with grouped(10_000) as sizes, Dataset.from_tfrecord(f"{tmp_path}/*").open() as loader:
        assert sum(1 for _ in loader) == FILES
    assert COMPRESSION_RATIO * nbytes < 10_000 < MOST_RATIO * nbytes
    assert sum(sizes) < FILES // 2


def test_compressed_files_whose_names_do_not_tell_form_shorter_groups(tmp_path: Path) -> None:
    """Groups that fit into one step are decompressed side by side."""
    drawn = random.Random(6)
    for number in range(FILES):
        (tmp_path / f"{number:03}").write_bytes(gzip.compress(frame(drawn.randbytes(1000)), mtime=0))
    nbytes = (tmp_path / "000").stat().st_size
    with grouped(40 * nbytes) as sizes, Dataset.from_tfrecord(f"{tmp_path}/*").open() as loader:
        assert sum(1 for _ in loader) == FILES
    assert max(sizes[len(sizes) // 2 :]) <= 40 // COMPRESSION_RATIO


def test_files_of_one_record_among_others_are_read_as_alone(tmp_path: Path) -> None:
    """A record fills some files; others have two records, none, or bytes at the end that are no record."""
    records = [bytes([number]) * SEPARATE_NBYTES for number in range(90)]
    contents = [records[n] * (n % 3) if n % 9 == 0 else records[n] for n in range(90)]
    for number, content in enumerate(contents):
        (tmp_path / f"{number:03}").write_bytes(content + b"cut" * (number == 77))
    expected = [content[:SEPARATE_NBYTES] for content in contents for _ in range(len(content) // SEPARATE_NBYTES)]
    dataset = Dataset.from_fixed_length(f"{tmp_path}/*", SEPARATE_NBYTES, on_error="skip")
    with grouped(FILES_OF_A_BLOCK * SEPARATE_NBYTES), dataset.open() as loader:
        assert list(loader) == expected
        assert sum(stage.skipped for stage in loader.stats().stages) == 1


@pytest.mark.parametrize(("excess", "most"), [(0, SEPARATE_REMOTE_GROWTH // ONE_REQUEST_GROWTH), (1, 0)])
def test_objects_of_one_request_form_groups_and_larger_ones_are_read_alone(excess: int, most: int) -> None:
    nbytes = 2 * SEPARATE_NBYTES
    contents = [bytes([number]) * (ONE_REQUEST_GROWTH * nbytes + excess) for number in range(24)]
    with fault_server("s3") as server:
        for number, content in enumerate(contents):
            server.put(f"bucket/{number:02}", content)
        dataset = Dataset.from_files("s3://bucket/*", storage_options=server.storage_options)
        with grouped(nbytes) as sizes, dataset.open() as loader:
            assert [row["data"] for row in loader] == contents
    assert max(sizes, default=0) == most
