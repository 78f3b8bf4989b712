"""File sources over local files and memory://: how files are named, ordered, cut and interleaved."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import _native
from aiostream_data.errors import PlanError
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.storage import memory

FILES, RECORDS = 4, 5


def record(file: int, number: int) -> bytes:
    return b"%d:%d" % (file, number)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Four TFRecord files of five records each."""
    paths = [tmp_path / f"train-{file}.tfrecord" for file in range(FILES)]
    for file, path in enumerate(paths):
        path.write_bytes(b"".join(frame(record(file, number)) for number in range(RECORDS)))
    return paths


ALL = [record(file, number) for file in range(FILES) for number in range(RECORDS)]


def test_files_are_read_one_after_another_in_order_of_name(shards: list[Path]) -> None:
    assert list(asd.Dataset.from_tfrecord(str(shards[0].parent / "train-*.tfrecord"))) == ALL


def test_files_may_be_a_path_a_list_or_a_data_set(shards: list[Path]) -> None:
    assert list(asd.Dataset.from_tfrecord(shards[0])) == ALL[:RECORDS]
    assert list(asd.Dataset.from_tfrecord([shards[1], str(shards[0])])) == [*ALL[5:10], *ALL[:5]]
    names = asd.Dataset.from_tensor_slices([str(path) for path in shards])
    assert list(asd.Dataset.from_tfrecord(names)) == ALL
    listed = asd.Dataset.list_files(shards[0].parent / "train-*")
    assert list(asd.Dataset.from_tfrecord(listed.skip(1).take(1))) == ALL[5:10]
    assert list(asd.Dataset.from_tfrecord(listed.shard(2, 1).map(lambda url: url.encode()))) == [*ALL[5:10], *ALL[15:]]


def test_files_of_another_kind_are_refused(shards: list[Path]) -> None:
    with pytest.raises(PlanError, match="got int"):
        asd.Dataset.from_tfrecord([3])  # type: ignore[list-item]
    with pytest.raises(PlanError, match="empty list"):
        asd.Dataset.from_tfrecord([])
    with pytest.raises(PlanError, match="URLs as str, got int"):
        list(asd.Dataset.from_tfrecord(asd.Dataset.range(2)))  # type: ignore[arg-type]


def zstd(data: bytes) -> bytes:
    zstandard = pytest.importorskip("zstandard")
    packed: bytes = zstandard.ZstdCompressor().compress(data)
    return packed


def lz4(data: bytes) -> bytes:
    frame = pytest.importorskip("lz4.frame")
    packed: bytes = frame.compress(data)
    return packed


def snappy(data: bytes) -> bytes:
    cramjam = pytest.importorskip("cramjam")
    return bytes(cramjam.snappy.compress(data))


def gzip_members(data: bytes) -> bytes:
    return gzip.compress(data[:20]) + gzip.compress(data[20:])


COMPRESSORS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "plain": ("", bytes),
    "gzip": ("gzip", gzip.compress),
    "gzip members": ("GZIP", gzip_members),
    "zlib": ("ZLIB", zlib.compress),
    "zstd": ("zstd", zstd),
    "bz2": ("bz2", bz2.compress),
    "bz2 streams": ("bz2", lambda data: bz2.compress(data[:20], 1) + bz2.compress(data[20:])),
    "xz": ("xz", lzma.compress),
    "xz streams": ("XZ", lambda data: lzma.compress(data[:20]) + bytes(4) + lzma.compress(data[20:])),
    "lz4": ("lz4", lz4),
    "lz4 frames": ("lz4", lambda data: lz4(data[:20]) + b"\x51\x2a\x4d\x18\1\0\0\0x" + lz4(data[20:])),
    "snappy": ("snappy", snappy),
    "snappy streams": ("Snappy", lambda data: snappy(data[:20]) + b"\xfe\1\0\0\0" + snappy(data[20:])),
}


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("name", COMPRESSORS)
def test_records_of_compressed_files_are_the_same(tmp_path: Path, name: str, auto: bool) -> None:
    compression, compress = COMPRESSORS[name]
    records = [b"r%d" % number * number for number in range(2000)]
    (tmp_path / "file").write_bytes(compress(b"".join(map(frame, records))))
    dataset = asd.Dataset.from_tfrecord(tmp_path / "file", compression="auto" if auto else compression)
    assert list(dataset) == records


def interleaved(cycle: int, block: int) -> list[bytes]:
    files = [[record(file, number) for number in range(RECORDS)] for file in range(FILES)]
    slots: list[list[bytes] | None] = [None] * cycle
    order: list[bytes] = []
    slot = 0
    while files or any(rows is not None for rows in slots):
        rows = slots[slot] if slots[slot] is not None else (files.pop(0) if files else None)
        if rows is not None:
            order += rows[:block]
            slots[slot] = rows[block:] if len(rows) >= block else None
        slot = (slot + 1) % cycle
    return order


@pytest.mark.parametrize(("cycle", "block"), [(1, 1), (2, 1), (2, 3), (3, 2), (4, 1), (9, 2)])
def test_files_are_interleaved_in_tf_datas_order(shards: list[Path], cycle: int, block: int) -> None:
    pattern = str(shards[0].parent / "*.tfrecord")
    whole = asd.Dataset.from_tfrecord(pattern, cycle_length=cycle, block_length=block)
    assert list(whole) == interleaved(cycle, block)
    through_operator = asd.Dataset.list_files(pattern).interleave(
        lambda url: asd.Dataset.from_tfrecord(url), cycle_length=cycle, block_length=block
    )
    assert list(through_operator) == interleaved(cycle, block)


def test_unordered_reading_gives_the_same_records(shards: list[Path]) -> None:
    dataset = asd.Dataset.from_tfrecord(shards, cycle_length=3, ordered=False)
    assert sorted(dataset) == sorted(ALL)


def test_shuffled_shards_are_the_same_for_one_seed_and_differ_between_epochs(shards: list[Path]) -> None:
    def read(seed: int) -> asd.Dataset[bytes]:
        return asd.Dataset.from_tfrecord(str(shards[0].parent / "*"), shuffle_shards=True, seed=seed)

    given = list(read(3).repeat(8))
    assert given == list(read(3).repeat(8))
    epochs = [tuple(given[start : start + 20]) for start in range(0, 160, 20)]
    assert all(sorted(epoch) == sorted(ALL) for epoch in epochs)
    assert len(set(epochs)) > 2
    assert all(list(epoch[file : file + 5]) == sorted(epoch[file : file + 5]) for epoch in epochs for file in (0, 5))


def test_list_files_is_sorted_and_shuffled_only_by_a_seed(shards: list[Path]) -> None:
    pattern = str(shards[0].parent / "train-?.tfrecord")
    names = [Path(url).name for url in asd.Dataset.list_files(pattern)]
    assert names == [path.name for path in shards]
    shuffled = asd.Dataset.list_files(pattern, seed=1)
    epochs = [tuple(epoch) for epoch in (list(shuffled) for _ in range(8))]
    assert {frozenset(epoch) for epoch in epochs} == {frozenset(asd.Dataset.list_files(pattern))}
    assert len(set(epochs)) > 2


def test_text_lines_come_without_their_ends(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("one\r\ntwo\n\nfin\u00e9 \n last".encode())
    assert list(asd.Dataset.from_text(tmp_path / "a.txt")) == ["one", "two", "", "fin\u00e9 ", " last"]
    raw: asd.Dataset[Any] = asd.Dataset.from_text(tmp_path / "a.txt", encoding=None)
    assert list(raw.take(2)) == [b"one", b"two"]
    (tmp_path / "empty.txt").write_bytes(b"")
    assert list(asd.Dataset.from_text(tmp_path / "*.txt").take(2)) == ["one", "two"]
    assert list(asd.Dataset.from_text(tmp_path / "empty.txt")) == []


def test_fixed_length_records_lie_between_header_and_footer(tmp_path: Path) -> None:
    (tmp_path / "f.bin").write_bytes(b"HHaabbccF")
    dataset = asd.Dataset.from_fixed_length(tmp_path / "f.bin", 2, header_nbytes=2, footer_nbytes=1)
    assert list(dataset) == [b"aa", b"bb", b"cc"]


def test_whole_files_come_with_their_url_in_order_of_name(memory_objects: None) -> None:
    for name in ("b", "a"):
        memory.put(f"memory://bucket/{name}.bin", name.encode() * 3)
    given = list(asd.Dataset.from_files("memory://bucket/*.bin"))
    assert given == [{"url": f"memory://bucket/{name}.bin", "data": name.encode() * 3} for name in ("a", "b")]


def test_memory_objects_are_read_like_files(memory_objects: None) -> None:
    memory.put("memory://bucket/x.tfrecord", b"".join(map(frame, ALL)))
    assert list(asd.Dataset.from_tfrecord("memory://bucket/*.tfrecord")) == ALL


FEATURES: dict[str, asd.FixedLen | asd.VarLen] = {
    "image": asd.FixedLen((2,), np.float32),
    "label": asd.FixedLen((), np.int64, default=-1),
    "name": asd.FixedLen((), bytes),
}


def test_examples_are_parsed_into_the_same_elements_fused_or_not(memory_objects: None) -> None:
    records = [
        asd.encode_example({"image": np.full(2, n, np.float32), "name": b"n%d" % n} | ({"label": n} if n % 2 else {}))
        for n in range(100)
    ]
    memory.put("memory://bucket/x.tfrecord", b"".join(map(frame, records)))
    source = asd.Dataset.from_tfrecord("memory://bucket/x.tfrecord")
    fused, apart = source.parse_example(FEATURES), source.map(bytes).parse_example(FEATURES)
    shuffled = source.shuffle(1).parse_example(FEATURES)
    for dataset in (fused, apart, shuffled):
        given: list[dict[str, Any]] = list(dataset)
        assert [element["name"] for element in given] == [b"n%d" % n for n in range(100)]
        assert [element["label"] for element in given] == [n if n % 2 else -1 for n in range(100)]
        assert all(element["image"].tolist() == [n, n] for n, element in enumerate(given))


def test_empty_files_give_no_elements(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert list(asd.Dataset.from_tfrecord(tmp_path / "empty").repeat()) == []
    assert list(asd.Dataset.from_fixed_length(tmp_path / "empty", 4)) == []
    assert [element["data"] for element in asd.Dataset.from_files(tmp_path / "empty")] == [b""]


CHAINS: dict[str, Callable[[asd.Dataset[Any]], asd.Dataset[Any]]] = {
    "alone": lambda dataset: dataset,
    "shuffled": lambda dataset: dataset.shuffle(2),
    "batched": lambda dataset: dataset.batch(1).unbatch(),
}


@pytest.mark.parametrize("nbytes", [100 << 10, 3 << 20])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_large_file_becomes_a_bytes_object_without_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int, chain: str
) -> None:
    files = {name: bytes([number]) * nbytes for number, name in enumerate(["a", "b"])}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    copied: list[int] = []
    copy = _native.byte_rows

    def counting(values: Any, starts: Any, lengths: Any) -> list[bytes]:
        copied.extend(lengths.tolist())
        return copy(values, starts, lengths)

    monkeypatch.setattr(_native, "byte_rows", counting)
    given = [element["data"] for element in CHAINS[chain](asd.Dataset.from_files(tmp_path / "*"))]
    assert sorted(given) == list(files.values())
    assert copied == []
