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


def written(folder: Path, contents: list[bytes]) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """Write files. Return their paths, modification times and bounds."""
    paths = [folder / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    mtimes_ns = np.array([path.stat().st_mtime_ns for path in paths], np.int64)
    return [os.fsencode(path) for path in paths], mtimes_ns, np.cumsum([0, *map(len, contents)], dtype=np.int64)


def test_files_are_read_one_after_another(tmp_path: Path, read: Read) -> None:
    contents = [b"abc", b"", b"x" * 100_000, b"d"]
    paths, mtimes_ns, bounds = written(tmp_path, contents)
    target = np.zeros(int(bounds[-1]) + 5, np.uint8)
    assert read(paths, mtimes_ns, bounds, target).tolist() == [0, 0, 0, 0]
    assert target.tobytes() == b"".join(contents) + bytes(5)


def test_no_files_are_read_at_once(read: Read) -> None:
    assert len(read([], np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.uint8))) == 0


def test_each_file_that_is_not_as_listed_has_its_own_number(tmp_path: Path, read: Read) -> None:
    paths, mtimes_ns, bounds = written(tmp_path, [b"ab"] * 7)
    (tmp_path / "1").unlink()
    (tmp_path / "2").write_bytes(b"longer")
    mtimes_ns[3] += 1
    (tmp_path / "4").unlink()
    (tmp_path / "4").mkdir()
    (tmp_path / "5").unlink()
    os.mkfifo(tmp_path / "5")
    target = np.zeros(14, np.uint8)
    found = read(paths, mtimes_ns, bounds, target).tolist()
    assert found == [0, errno.ENOENT, CHANGED, CHANGED, NOT_A_FILE, NOT_A_FILE, 0]
    assert (target[:2].tobytes(), target[12:].tobytes()) == (b"ab", b"ab")


def test_more_files_than_are_loaded_at_once(tmp_path: Path, read: Read) -> None:
    contents = [b"%03d" % number for number in range(100)]
    paths, mtimes_ns, bounds = written(tmp_path, contents)
    target = np.zeros(300, np.uint8)
    assert not read(paths, mtimes_ns, bounds, target).any()
    assert target.tobytes() == b"".join(contents)


def test_no_descriptor_stays_open(tmp_path: Path, read: Read) -> None:
    paths, mtimes_ns, bounds = written(tmp_path, [b"ab"] * 50)
    mtimes_ns[::2] += 1
    before = len(os.listdir("/proc/self/fd"))
    read(paths, mtimes_ns, bounds, np.zeros(100, np.uint8))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("paths", "mtimes_ns", "bounds"),
    [
        ([b"a"], [0, 0], [0, 2]),
        ([b"a"], [0], [0, 2, 4]),
        ([b"a"], [0], [0, 9]),
        ([b"a"], [0], [-1, 2]),
        ([b"a", b"b"], [0, 0], [0, 3, 2]),
        ([b"a\0b"], [0], [0, 2]),
        (["a"], [0], [0, 2]),
    ],
)
def test_arguments_that_do_not_fit_are_refused(read: Read, paths: Any, mtimes_ns: Any, bounds: Any) -> None:
    with pytest.raises(ValueError, match=r"must|got"):
        read(paths, np.array(mtimes_ns, np.int64), np.array(bounds, np.int64), np.zeros(8, np.uint8))
