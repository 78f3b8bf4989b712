"""The native walk over tar headers: the same as the pure-Python twin, and as Python's tarfile."""

from __future__ import annotations

import io
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_tars import FORMATS, KEYED, archive, member

from aiostream_data import _native
from aiostream_data._native import tar_py
from aiostream_data._native.tar_py import (
    BAD_CHECKSUM,
    BAD_EXTENDED,
    BAD_GLOBAL,
    BAD_SIZE,
    DATA,
    DEVICE,
    END,
    EXT_NBYTES,
    KEY_NBYTES,
    KIND,
    LINK,
    LONE_EXTENDED,
    META_NBYTES,
    MORE,
    NAME,
    NBYTES,
    OTHER,
    SPARSE,
    TarWalk,
)


def walk(stream: bytes, start: int = 0, stop: int | None = None) -> TarWalk:
    """Walk with both implementations, and check that they agree."""
    values = np.frombuffer(stream, np.uint8)
    ranges = np.array([start], np.int64), np.array([len(stream) if stop is None else stop], np.int64)
    native, twin = _native.walk_tar(values, *ranges), tar_py.walk_tar(values, *ranges)
    assert native.table.tolist() == twin.table.tolist()
    assert native.names.tobytes() == twin.names.tobytes()
    assert native[2:] == twin[2:]
    return native


def with_checksum(header: bytes) -> bytes:
    total = sum(header[:148]) + 8 * 32 + sum(header[156:512])
    return header[:148] + b"%06o\0 " % total + header[156:]


def changed(header: bytes, at: int, field: bytes) -> bytes:
    """Return a header with a changed field and a valid checksum."""
    return with_checksum(header[:at] + field + header[at + len(field) :])


def pax(records: bytes, kind: bytes = b"x") -> bytes:
    return member("pax", records, type=kind)


def record(name: bytes, value: bytes) -> bytes:
    nbytes = len(name) + len(value) + 3
    nbytes += len(str(nbytes + len(str(nbytes))))
    return b"%d %s=%s\n" % (nbytes, name, value)


@pytest.mark.parametrize("format", FORMATS)
def test_members_are_those_of_tarfile(format: str) -> None:
    source = random.Random(1)
    names = [f"{'d' * source.choice([0, 1, 90, 140])}/{row}.{row % 3}.JPG" for row in range(30)]
    if format != "ustar":
        names += [f"{'d' * 300}/é.txt", f"{'e' * 99}.x", f"{'e' * 100}.x"]
    stream = archive([(name, source.randbytes(source.choice([0, 1, 511, 512, 513]))) for name in names], format)
    found = walk(stream)
    assert (found.verdict, found.at) == (END, len(stream) - 1024)
    with tarfile.open(fileobj=io.BytesIO(stream)) as tar:
        infos = tar.getmembers()
    assert [info.offset_data for info in infos] == found.table[:, DATA].tolist()
    assert [info.size for info in infos] == found.table[:, NBYTES].tolist()
    for info, row in zip(infos, found.table, strict=True):
        start, key = int(row[NAME]), int(row[KEY_NBYTES])
        split = KEYED.fullmatch(info.name)
        assert split is not None
        assert found.names[start : start + key].tobytes().decode() == split[1]
        extension = found.names[start + key + 1 : start + key + 1 + int(row[EXT_NBYTES])]
        assert extension.tobytes().decode() == split[2].lower()


def test_every_cut_gives_the_members_before_it_and_says_what_is_missing() -> None:
    stream = archive([("a.x", b"1" * 600), (f"{'d' * 130}/b.y", b""), ("c.z", b"22")])
    whole = walk(stream)
    for stop in range(0, len(stream) - 1024, 7):
        part = walk(stream, 0, stop)
        assert part.table.tolist() == whole.table[: len(part.table)].tolist()
        assert part.verdict == MORE
        assert part.wanted > stop
        assert len(walk(stream, 0, min(part.wanted, len(stream))).table) >= len(part.table)


@pytest.mark.parametrize(
    ("name", "key", "extension"),
    [
        ("a/b/x.tar.gz", "a/b/x", "tar.gz"),
        ("x.JPG", "x", "jpg"),
        ("a.b/c.png", "a.b/c", "png"),
        ("x.", "x", ""),
        ("/etc/passwd.txt", "/etc/passwd", "txt"),
        ("../../x.txt", "../../x", "txt"),
        ("a/.hidden", "a/", "hidden"),
        ("b/a/.hidden.x", "b/a/", "hidden.x"),
        ("./a.x", "./a", "x"),
        ("none", None, None),
        (".hidden", None, None),
        ("a.b/.hidden", None, None),
        ("__meta__", None, None),
        ("__meta__/x.json", None, None),
        ("__x.json", "__x", "json"),
        ("a/__meta__/x.json", "a/__meta__/x", "json"),
    ],
)
def test_names_are_split_as_the_webdataset_library_splits_them(
    name: str, key: str | None, extension: str | None
) -> None:
    found = walk(member(name, b"data"))
    [row] = found.table
    if key is None:
        assert row[KEY_NBYTES] == -1
    else:
        assert extension is not None
        assert found.names.tobytes().decode() == f"{key}.{extension}"
        assert row[[KEY_NBYTES, EXT_NBYTES]].tolist() == [len(key), len(extension)]


@pytest.mark.parametrize(
    ("stream", "verdict"),
    [
        (b"\xff" * 512, BAD_CHECKSUM),
        (changed(member("a.x"), 124, b"77777777778\0"), BAD_SIZE),
        (changed(member("a.x"), 124, b"-0000000001\0"), BAD_SIZE),
        (changed(member("a.x"), 124, b"\xff" * 12), BAD_SIZE),
        (changed(member("a.x"), 124, b"\x80" + b"\x7f" * 11), BAD_SIZE),
        (pax(record(b"size", b"-1")), BAD_SIZE),
        (pax(record(b"size", b"9" * 30)), BAD_SIZE),
        (pax(b"9999 path=x\n"), BAD_EXTENDED),
        (pax(b"0 path=x\n"), BAD_EXTENDED),
        (pax(b"path=x\n"), BAD_EXTENDED),
        (pax(b"7 path\n"), BAD_EXTENDED),
        (pax(b"9 path=xy"), BAD_EXTENDED),
        (changed(member("a", type=b"x"), 124, b"%011o\0" % (META_NBYTES + 1)), BAD_EXTENDED),
        (changed(member("a", type=b"L"), 124, b"\x80" + bytes(3) + b"\x3f" + b"\xff" * 7), BAD_EXTENDED),
        (pax(record(b"path", b"x"), b"g"), BAD_GLOBAL),
        (pax(record(b"path", b"x")) + bytes(1024), LONE_EXTENDED),
    ],
)
def test_damaged_headers_are_refused(stream: bytes, verdict: int) -> None:
    found = walk(stream)
    assert (found.verdict, len(found.table)) == (verdict, 0)


def test_many_extended_headers_of_one_member_are_refused() -> None:
    assert walk(pax(b"") * (META_NBYTES // 512 + 2)).verdict == BAD_EXTENDED


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"type": b"1", "linkname": "b"}, LINK),
        ({"type": b"2", "linkname": "b"}, LINK),
        ({"type": b"3"}, DEVICE),
        ({"type": b"4"}, DEVICE),
        ({"type": b"6"}, DEVICE),
        ({"type": b"S"}, SPARSE),
        ({"type": b"V"}, OTHER),
    ],
)
def test_members_that_are_no_files_are_marked(fields: dict[str, Any], kind: int) -> None:
    assert walk(member("a.x", **fields)).table[:, KIND].tolist() == [kind]


def test_sparse_members_of_pax_archives_are_marked() -> None:
    stream = pax(record(b"GNU.sparse.major", b"1")) + member("a.x", b"1")
    assert walk(stream).table[:, KIND].tolist() == [SPARSE]


def test_pax_headers_override_path_and_size() -> None:
    stream = pax(record(b"path", b"long/name.TXT") + record(b"size", b"3")) + changed(
        member("a.x", b"123"), 124, bytes(12)
    )
    found = walk(stream)
    assert found.names.tobytes() == b"long/name.txt"
    assert found.table[:, NBYTES].tolist() == [3]
    assert found.at == len(stream)


def test_sizes_in_base_256_and_old_headers_are_read() -> None:
    large = changed(member("a.x"), 124, b"\x80" + (5 << 32).to_bytes(11, "big"))
    assert walk(large).table[:, NBYTES].tolist() == [5 << 32]
    old = with_checksum(member("v7.x", b"12")[:257] + bytes(255)) + b"12" + bytes(510)
    assert walk(old).names.tobytes() == b"v7.x"
    folder = with_checksum(member("v7.x/")[:156] + b"\0" + bytes(355))
    assert not len(walk(folder).table)


def test_checksums_of_signed_bytes_are_accepted() -> None:
    header = member("é.x")
    total = sum(header[:148]) + 256 + sum(header[156:512]) - 256 * 2
    assert len(walk(header[:148] + b"%06o\0 " % total + header[156:]).table) == 1


def test_ranges_outside_the_buffer_are_refused() -> None:
    values = np.zeros(10, np.uint8)
    for kernel in (_native.walk_tar, tar_py.walk_tar):
        for start, stop in ((-1, 5), (5, 11), (6, 5)):
            with pytest.raises(IndexError):
                kernel(values, np.array([start]), np.array([stop]))
    for find in (_native.find_tar_header, tar_py.find_tar_header):
        with pytest.raises(IndexError):
            find(values, 0, 11)


def test_hostile_bytes_give_the_same_result_in_both_implementations() -> None:
    source = random.Random(7)
    stream = pax(record(b"path", b"p/q.x")) + archive([("a.x", b"1" * 600), (f"{'d' * 130}/b.y", b"")])
    for _ in range(2000):
        damaged = bytearray(stream)
        for _ in range(source.randint(1, 3)):
            at = source.randrange(len(stream))
            damaged[at : at + source.choice([1, 4])] = source.randbytes(source.choice([1, 4]))
        if source.random() < 0.7:  # headers that pass their checksum
            for at in range(0, len(damaged) - 511, 512):
                if source.random() < 0.8 and any(damaged[at : at + 512]):
                    damaged[at : at + 512] = with_checksum(bytes(damaged[at : at + 512]))
        walk(bytes(damaged))
        values = np.frombuffer(damaged, np.uint8)
        assert _native.find_tar_header(values, 1, len(values)) == tar_py.find_tar_header(values, 1, len(values))


def file_walk(path: Path, start: int = 0, stop: int | None = None, most: int = 100) -> TarWalk:
    """Walk over a file with both implementations, and check that they agree."""
    file = os.open(path, os.O_RDONLY)
    try:
        where = file, start, os.fstat(file).st_size if stop is None else stop, most
        native, twin = _native.walk_tar_file(*where), tar_py.walk_tar_file(*where)
    finally:
        os.close(file)
    assert native.table.tolist() == twin.table.tolist()
    assert native.names.tobytes() == twin.names.tobytes()
    assert native[2:] == twin[2:]
    return native


def written(folder: Path, stream: bytes) -> Path:
    path = folder / "archive.tar"
    path.write_bytes(stream)
    return path


@pytest.mark.parametrize("format", FORMATS)
def test_walk_over_a_file_finds_the_members_that_a_walk_over_its_bytes_finds(tmp_path: Path, format: str) -> None:
    source = random.Random(format)
    names = [f"{'folder/' * source.randrange(20)}{number:04}.{source.choice('abc')}" for number in range(200)]
    sizes = [source.choice([0, 3, 511, 512, 513, 3_000, 5_000, 70_000]) for _ in names]
    stream = archive([(name, bytes(size)) for name, size in zip(names, sizes, strict=True)], format)
    whole, of_file = walk(stream), file_walk(written(tmp_path, stream), most=300)
    assert of_file.table.tolist() == whole.table.tolist()
    assert of_file.names.tobytes() == whole.names.tobytes()
    assert (of_file.at, of_file.verdict, of_file.fault_at) == (whole.at, END, whole.fault_at)


def test_walk_over_a_file_begins_at_any_member_and_counts_from_there(tmp_path: Path) -> None:
    stream = archive([("a.x", bytes(10_000)), ("b.x", bytes(700)), ("c.x", b"")])
    second = len(member("a.x", bytes(10_000)))
    found = file_walk(written(tmp_path, stream), second)
    assert found.table.tolist() == walk(stream[second:]).table.tolist()


def test_walk_over_a_file_stops_after_the_maximum_number_of_members(tmp_path: Path) -> None:
    stream = archive([(f"{number}.x", bytes(900)) for number in range(9)])
    found = file_walk(written(tmp_path, stream), most=4)
    assert (len(found.table), found.at, found.verdict) == (4, 4 * len(member("0.x", bytes(900))), MORE)


def test_walk_over_a_file_stops_before_names_that_need_more_memory(tmp_path: Path) -> None:
    stream = archive([(f"{'n' * 3_000}{number}.x", b"") for number in range(9)], "pax")
    found = file_walk(written(tmp_path, stream), most=9)
    assert 0 < len(found.table) < 9
    assert found.verdict == MORE


def test_walk_over_a_file_stops_before_headers_that_are_longer_than_its_window(tmp_path: Path) -> None:
    stream = archive([("a.x", b"1"), ("n" * 5_000 + ".x", b"2")], "gnu")
    found = file_walk(written(tmp_path, stream))
    assert (len(found.table), found.at, found.verdict) == (1, len(member("a.x", b"1")), MORE)


@pytest.mark.parametrize("cut", [0, 1, 511, 512, 600, 1_023, 1_024])
def test_walk_over_a_file_stops_before_a_member_that_ends_after_the_file(tmp_path: Path, cut: int) -> None:
    first = member("a.x", bytes(5_000))
    stream = first + member("b.x", bytes(1_000))
    found = file_walk(written(tmp_path, stream[: len(first) + cut]))
    assert (len(found.table), found.at, found.verdict) == (1, len(first), MORE)


def test_walk_over_a_file_leaves_out_directories(tmp_path: Path) -> None:
    stream = member("d/", type=tarfile.DIRTYPE) + member("d/a.x", b"1") + bytes(1024)
    found = file_walk(written(tmp_path, stream))
    assert (len(found.table), found.verdict) == (1, END)


def test_walk_over_a_file_reports_damage_where_a_walk_over_its_bytes_reports_it(tmp_path: Path) -> None:
    source = random.Random(5)
    whole = archive([(f"{number}.x", bytes(source.randrange(6_000))) for number in range(6)], "pax")
    for _ in range(200):
        stream = bytearray(whole)
        stream[source.randrange(len(stream))] = source.randrange(256)
        there, found = walk(bytes(stream)), file_walk(written(tmp_path, bytes(stream)))
        assert found.table.tolist() == there.table[: len(found.table)].tolist()
        if found.verdict != MORE:
            assert (found.verdict, found.at, found.fault_at) == (there.verdict, there.at, there.fault_at)


@pytest.mark.parametrize("where", [(-1, 10, 1), (5, 4, 1), (0, 10, 0)])
def test_walk_over_a_file_refuses_invalid_arguments(where: tuple[int, int, int]) -> None:
    for kernel in (_native.walk_tar_file, tar_py.walk_tar_file):
        with pytest.raises(ValueError, match="cannot read"):
            kernel(0, *where)
