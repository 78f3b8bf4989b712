"""Reading WebDataset shards: samples, broken samples, and what is left of damaged shards."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_tars import FORMATS, archive, member, samples_by_tarfile

from aiostream_data import CorruptRecordError, Dataset, PlanError, Skip
from aiostream_data.formats import cutting
from aiostream_data.formats.webdataset import WebDatasetFormat
from aiostream_data.testing.resume import resumes_everywhere

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(stream: bytes, name: str = "shard.tar") -> str:
        (tmp_path / name).write_bytes(stream)
        return str(tmp_path / name)

    return written


def samples(count: int, first: int = 0, nbytes: int = 20) -> list[tuple[str, bytes]]:
    source = random.Random(first)
    names = [f"n/{row:04d}.{extension}" for row in range(first, first + count) for extension in ("JPG", "json")]
    return [(name, source.randbytes(nbytes)) for name in names]


def keys(path: str, **options: Any) -> list[str]:
    return [sample["__key__"] for sample in Dataset.from_webdataset(path, **options)]


@pytest.mark.parametrize("format", FORMATS)
def test_samples_are_those_of_tarfile(write: Write, format: str) -> None:
    stream = archive(samples(50), format)
    got = list(Dataset.from_webdataset(write(stream)))
    assert got == samples_by_tarfile(stream)
    assert list(got[0]) == ["__key__", "jpg", "json"]


def test_samples_with_other_extensions_stay_dicts_and_batch_as_far_as_they_match(write: Write) -> None:
    members = [("a.x", b"1"), ("a.y", b"2"), ("b.y", b"3"), ("c.y", b"4"), ("c.x", b"5")]
    got = list(Dataset.from_webdataset(write(archive(members))))
    assert got == [
        {"__key__": "a", "x": b"1", "y": b"2"},
        {"__key__": "b", "y": b"3"},
        {"__key__": "c", "x": b"5", "y": b"4"},
    ]
    assert list(got[2]) == ["__key__", "x", "y"]


def test_the_order_of_members_in_a_sample_does_not_matter(write: Write) -> None:
    members = [("a.x", b"1"), ("a.y", b"2"), ("b.y", b"3"), ("b.x", b"4")]
    [batch] = Dataset.from_webdataset(write(archive(members))).batch(2)
    assert batch["x"].tolist() == [b"1", b"4"]
    assert batch["y"].tolist() == [b"2", b"3"]
    assert batch["__key__"].tolist() == ["a", "b"]


def test_names_that_are_not_utf8_are_escaped(write: Write) -> None:
    stream = archive([("ol\udce9.x", b"1"), ("é.y", b"2")])
    assert keys(write(stream)) == ["ol\\xe9", "é"]


def test_absolute_and_parent_names_are_only_keys(write: Write, tmp_path: Path) -> None:
    path = write(archive([(f"{tmp_path}/new.txt", b"1"), ("../up.txt", b"2")]))
    assert keys(path) == [f"{tmp_path}/new", "../up"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["shard.tar"]


def test_members_that_belong_to_no_sample_are_ignored(write: Write) -> None:
    members = [
        ("__meta__.json", b""),
        ("README", b"text"),
        ("a.x", b"1"),
        ("LICENSE", b""),
        ("a.y", b"2"),
        ("b.x", b"3"),
    ]
    stream = member("n", type=b"5") + archive(members)
    assert list(Dataset.from_webdataset(write(stream))) == [
        {"__key__": "__meta__", "json": b""},
        {"__key__": "a", "x": b"1", "y": b"2"},
        {"__key__": "b", "x": b"3"},
    ]


@pytest.mark.parametrize(
    ("members", "offset", "reason"),
    [
        ([("a.x", b""), ("b.x", b""), ("b.X", b"")], 512, r"member 'b.x' occurs twice .* byte 512 and at byte 1024"),
        (
            [("a.x", b""), ("b.x", b""), ("a.y", b"")],
            1024,
            r"key 'a' was used at byte 0 and is used again at byte 1024",
        ),
        (
            [("a.x", b""), ("b.x", b""), ("b.__KEY__", b"other")],
            512,
            r"member 'b.__key__' at byte 1024 has the extension '__key__', which is the field with the key",
        ),
        ([("a.x", b""), ("b.__key__", b"other")], 512, r"member 'b.__key__' at byte 512 has the extension"),
    ],
)
def test_broken_samples_are_errors_that_name_both_members(
    write: Write, members: list[tuple[str, bytes]], offset: int, reason: str
) -> None:
    with pytest.raises(CorruptRecordError, match=reason) as raised:
        list(Dataset.from_webdataset(write(archive(members))))
    assert raised.value.offset == offset
    assert raised.value.url.endswith("shard.tar")


@pytest.mark.parametrize(
    ("kind", "reason"), [(b"1", "link"), (b"2", "link"), (b"3", "device"), (b"S", "sparse"), (b"V", "unknown type")]
)
def test_members_that_are_no_files_are_refused_or_their_sample_is_skipped(
    write: Write, kind: bytes, reason: str
) -> None:
    stream = (
        member("a.x", b"1") + member("b.x", b"2") + member("b.y", type=kind, linkname="z") + archive([("c.x", b"3")])
    )
    path = write(stream)
    with pytest.raises(CorruptRecordError, match=f"member 'b.y' at byte 2048 .*{reason}") as raised:
        list(Dataset.from_webdataset(path))
    assert raised.value.offset == 1024
    assert keys(path, on_error="skip") == ["a", "c"]


def test_a_sample_with_a_member_named_as_the_field_of_the_key_is_skipped_wherever_its_members_lie(
    write: Write,
) -> None:
    for long in (b"", bytes(3 << 20)):  # a long sample is longer than the blocks in which the archive is read
        path = write(archive([("a.x", b"1"), ("b.w", long), ("b.__key__", b"2"), ("b.x", b"3"), ("c.x", b"4")]))
        with pytest.raises(CorruptRecordError, match=r"member 'b.__key__' at byte \d+ has the extension '__key__'"):
            list(Dataset.from_webdataset(path))
        assert keys(path, on_error="skip") == ["a", "c"]


def test_members_with_similar_extensions_are_fields(write: Write) -> None:
    (sample,) = Dataset.from_webdataset(write(archive([("a.__url__", b"1"), ("a.x.__key__", b"2")])))
    assert sample == {"__key__": "a", "__url__": b"1", "x.__key__": b"2"}


def test_a_damaged_header_loses_no_sample_but_its_own_and_the_next(write: Write) -> None:
    stream = bytearray(archive(samples(6)))
    stream[4 * 1024 + 1024 + 3] ^= 1  # n/0002.json
    path = write(bytes(stream))
    with pytest.raises(CorruptRecordError, match="no valid tar header at byte 5120"):
        list(Dataset.from_webdataset(path))
    assert keys(path, on_error="skip") == ["n/0000", "n/0001", "n/0004", "n/0005"]


def test_no_sample_lacks_a_member_whichever_header_is_damaged(write: Write) -> None:
    plain = archive(samples(5))
    whole = samples_by_tarfile(plain)
    for at in range(0, len(plain) - 1024, 512):
        stream = bytearray(plain)
        stream[at : at + 20] = b"\xff" * 20
        left = list(Dataset.from_webdataset(write(bytes(stream)), on_error=Skip()))
        assert len(left) >= 3
        names = [sample["__key__"] for sample in left]
        assert names == sorted(set(names))
        is_header = at % 1024 == 0
        assert all(sample in whole for sample in left) or not is_header


def test_a_shard_cut_at_any_byte_is_an_error_or_complete(write: Write) -> None:
    stream = archive(samples(3))
    whole = samples_by_tarfile(stream)
    for stop in range(0, len(stream), 61):
        path = write(stream[:stop])
        if stop >= len(stream) - 512:
            assert list(Dataset.from_webdataset(path)) == whole
            continue
        with pytest.raises(CorruptRecordError):
            list(Dataset.from_webdataset(path))
        left = list(Dataset.from_webdataset(path, on_error="skip"))
        assert left == whole[: len(left)]


def test_a_missing_end_marker_is_accepted_on_request(write: Write) -> None:
    stream = archive(samples(3))[:-1024]
    path = write(stream)
    with pytest.raises(CorruptRecordError, match=r"no end marker.*verify=False") as raised:
        list(Dataset.from_webdataset(path))
    assert raised.value.offset == 4096
    assert keys(path, verify=False) == ["n/0000", "n/0001", "n/0002"]


def test_bytes_after_the_end_are_ignored_but_another_archive_is_an_error(write: Write) -> None:
    one, two = archive(samples(2)), archive(samples(2, 2))
    assert keys(write(one + bytes(10_000) + b"rest" * 1000)) == ["n/0000", "n/0001"]
    path = write(one + two)
    with pytest.raises(CorruptRecordError, match="another archive") as raised:
        list(Dataset.from_webdataset(path))
    assert raised.value.offset == len(one)


def test_samples_above_the_limit_are_refused_or_skipped(write: Write) -> None:
    path = write(archive([*samples(2), ("n/0001x.jpg", bytes(5000)), *samples(2, 2)]))
    with pytest.raises(CorruptRecordError, match="larger than the limit of 4096 bytes"):
        list(Dataset.from_webdataset(path, max_sample_nbytes=4096))
    assert keys(path, max_sample_nbytes=4096, on_error="skip") == ["n/0000", "n/0001", "n/0002", "n/0003"]
    with pytest.raises(PlanError, match="max_sample_nbytes"):
        WebDatasetFormat(max_sample_nbytes=1)


def test_a_member_that_claims_more_than_the_file_holds_is_an_error_at_once(write: Write) -> None:
    header = bytearray(member("b.x"))
    header[124:136] = b"%011o\0" % (1 << 29)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path = write(archive([("a.x", b"1")])[:1024] + bytes(header) + bytes(4096))
    with pytest.raises(CorruptRecordError) as raised:
        list(Dataset.from_webdataset(path))
    assert raised.value.offset == 1024


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_every_position_of_every_source_can_be_resumed(tmp_path: Path, suffix: str) -> None:
    for shard in range(3):
        stream = archive(samples(4 + shard, 10 * shard))
        if suffix == ".zst":
            stream = pytest.importorskip("zstandard").ZstdCompressor().compress(stream)
        (tmp_path / f"{shard}.tar{suffix}").write_bytes(gzip.compress(stream) if suffix == ".gz" else stream)
    dataset = Dataset.from_webdataset(str(tmp_path / "*.tar*"), cycle_length=2, shuffle_shards=True, seed=3)
    assert len(list(dataset)) == 15
    resumes_everywhere(dataset.shuffle(4, seed=1).batch(2))


def test_every_sample_can_be_fetched_by_its_origin(write: Write) -> None:
    dataset = Dataset.from_webdataset(write(archive(samples(30))))
    with dataset.open() as loader:
        for sample in loader:
            [origin] = loader.origins()
            assert dataset.fetch(origin) == sample


@pytest.mark.parametrize("long_nbytes", [1, 5000, 256 << 10])
def test_large_members_are_read_in_any_blocks(write: Write, monkeypatch: pytest.MonkeyPatch, long_nbytes: int) -> None:
    monkeypatch.setattr(cutting, "LONG_NBYTES", long_nbytes)
    members = [
        (f"{'d' * 130}/{row}.{name}", np.random.default_rng(row).bytes(1 << size))
        for row, size in enumerate([3, 20, 10, 22, 21])
        for name in ("a", "b")
    ]
    stream = archive(members, "pax")
    assert list(Dataset.from_webdataset(write(stream))) == samples_by_tarfile(stream)
    assert list(Dataset.from_webdataset(write(gzip.compress(stream, 1)))) == samples_by_tarfile(stream)
