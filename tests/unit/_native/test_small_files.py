"""The native reader of small files reads, and refuses, what its twin does."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data._native import read_small_files, small_files_py
from aiostream_data._native.small_files_py import CHANGED, NOT_A_FILE

Read = Callable[..., Any]


@pytest.fixture(params=[read_small_files, small_files_py.read_small_files], ids=["core", "twin"])
def read(request: pytest.FixtureRequest) -> Read:
    kernel: Read = request.param
    return kernel


def written(folder: Path, contents: list[bytes]) -> tuple[list[bytes], np.ndarray, list[bytearray]]:
    """Write files. Return their paths, modification times and buffers of their sizes."""
    paths = [folder / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    mtimes_ns = np.array([path.stat().st_mtime_ns for path in paths], np.int64)
    return [os.fsencode(path) for path in paths], mtimes_ns, [bytearray(len(content)) for content in contents]


def places(buffers: list[bytearray]) -> list[memoryview]:
    return [memoryview(buffer) for buffer in buffers]


def test_files_are_read_one_after_another(tmp_path: Path, read: Read) -> None:
    contents = [b"abc", b"", b"x" * 100_000, b"d"]
    paths, mtimes_ns, buffers = written(tmp_path, contents)
    assert read(paths, mtimes_ns, places(buffers)).tolist() == [0, 0, 0, 0]
    assert buffers == contents


def test_no_files_are_read_at_once(read: Read) -> None:
    assert len(read([], np.empty(0, np.int64), [])) == 0


def test_each_file_that_is_not_as_listed_has_its_own_number(tmp_path: Path, read: Read) -> None:
    paths, mtimes_ns, buffers = written(tmp_path, [b"ab"] * 7)
    (tmp_path / "1").unlink()
    (tmp_path / "2").write_bytes(b"longer")
    mtimes_ns[3] += 1
    (tmp_path / "4").unlink()
    (tmp_path / "4").mkdir()
    (tmp_path / "5").unlink()
    os.mkfifo(tmp_path / "5")
    found = read(paths, mtimes_ns, places(buffers)).tolist()
    assert found == [0, errno.ENOENT, CHANGED, CHANGED, NOT_A_FILE, NOT_A_FILE, 0]
    assert buffers[0] == buffers[6] == b"ab"


def test_more_files_than_are_loaded_at_once(tmp_path: Path, read: Read) -> None:
    contents = [b"%03d" % number for number in range(100)]
    paths, mtimes_ns, buffers = written(tmp_path, contents)
    assert not read(paths, mtimes_ns, places(buffers)).any()
    assert buffers == contents


def test_no_descriptor_stays_open(tmp_path: Path, read: Read) -> None:
    paths, mtimes_ns, buffers = written(tmp_path, [b"ab"] * 50)
    mtimes_ns[::2] += 1
    before = len(os.listdir("/proc/self/fd"))
    read(paths, mtimes_ns, places(buffers))
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_buffers_can_be_used_again(tmp_path: Path, read: Read) -> None:
    paths, mtimes_ns, buffers = written(tmp_path, [b"ab", b"cd"])
    lent = places(buffers)
    read(paths, mtimes_ns, lent)
    for place in lent:
        place.release()
    buffers[0].append(1)  # raises BufferError while anybody holds the buffer


@pytest.mark.parametrize(
    ("paths", "mtimes_ns", "sizes"),
    [
        ([b"a"], [0, 0], [2]),
        ([b"a"], [0], [2, 2]),
        ([b"a"], [0], []),
        ([b"a\0b"], [0], [2]),
        (["a"], [0], [2]),
    ],
)
def test_arguments_that_do_not_fit_are_refused(read: Read, paths: Any, mtimes_ns: Any, sizes: list[int]) -> None:
    with pytest.raises(ValueError, match=r"must|got|needs"):
        read(paths, np.array(mtimes_ns, np.int64), places(list(map(bytearray, sizes))))


@pytest.mark.parametrize("place", [memoryview(b"ab"), memoryview(bytearray(4))[::2]])
def test_buffers_that_cannot_be_filled_are_refused(tmp_path: Path, read: Read, place: memoryview) -> None:
    paths, mtimes_ns, buffers = written(tmp_path, [b"ab", b"ab"])
    with pytest.raises(BufferError):
        read(paths, mtimes_ns, [memoryview(buffers[0]), place])
    buffers[0].append(1)  # raises BufferError while anybody holds the buffer
