"""Extents of a file without a name: none overlaps another, what is given back is used again, the end is cut off."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.errors import AiostreamError, SpillError
from aiostream_data.transforms.spill_file import GRAIN_NBYTES, SpillFile, check_folder, rounded
from aiostream_data.transforms.spill_log import SpillLog
from aiostream_data.transforms.spilled_slots import MAX_SEGMENT_NBYTES, MIN_SEGMENT_NBYTES, Spill


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SpillFile]:
    made = SpillFile(str(tmp_path))
    yield made
    made.close()


def vector(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, np.int64)


def content(number: int, nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.full(nbytes, number % 256, np.uint8)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30_000)), max_size=60))
def test_extents_never_overlap_and_the_file_ends_with_the_last(steps: list[tuple[bool, int]]) -> None:
    file = SpillFile(gettempdir())
    held: list[tuple[int, int]] = []
    most = 0
    try:
        for gives_back, number in steps:
            if gives_back and held:
                file.free(*held.pop(number % len(held)))
            else:
                held.append((file.allocate(number), number))
            spans = sorted((start, start + rounded(nbytes)) for start, nbytes in held)
            assert all(stop <= start for (_, stop), (start, _) in pairwise(spans))
            assert file.nbytes == max([0, *(stop for _, stop in spans)])
            most = max(most, sum(stop - start for start, stop in spans))
        for extent in held:
            file.free(*extent)
        assert file.nbytes == 0
        assert file.allocate(most or 1) == 0
    finally:
        file.close()


def test_space_that_was_given_back_is_used_before_the_file_grows(file: SpillFile) -> None:
    starts = [file.allocate(GRAIN_NBYTES) for _ in range(4)]
    file.free(starts[1], GRAIN_NBYTES)
    file.free(starts[2], GRAIN_NBYTES)
    assert file.allocate(2 * GRAIN_NBYTES) == starts[1]  # both, as one
    assert file.nbytes == 4 * GRAIN_NBYTES


def test_what_is_written_is_read(file: SpillFile) -> None:
    first, second = file.allocate(10_000), file.allocate(10_000)
    file.write(second, [content(2, 4_000), content(3, 0), content(4, 6_000)])
    file.write(first, [content(1, 10_000)])
    found = file.read(vector(second + 3_990, first), vector(20, 5))
    assert found.tolist() == [2] * 10 + [4] * 10 + [1] * 5


def test_reading_behind_the_end_is_an_error_that_names_the_folder(file: SpillFile) -> None:
    with pytest.raises(SpillError, match="cannot read rows back: 10 bytes at 0 of a file that ends before"):
        file.read(vector(0), vector(10))


def test_the_file_is_nobody_elses(file: SpillFile) -> None:
    mode = os.fstat(file._file.fileno())
    assert mode.st_nlink == 0
    assert mode.st_mode & 0o777 == 0o600
    assert not os.get_inheritable(file._file.fileno())


def test_a_folder_is_tried_without_leaving_anything(tmp_path: Path) -> None:
    check_folder(str(tmp_path))
    assert os.listdir(tmp_path) == []
    with pytest.raises(SpillError, match="cannot create the file: No such file or directory"):
        check_folder(str(tmp_path / "none"))


def test_the_error_pickles_with_its_fields() -> None:
    error = SpillError("/folder", 7, "cannot write rows", "free space")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.folder, again.nbytes) == (str(error), "/folder", 7)
    assert isinstance(again, AiostreamError)
    assert isinstance(again, OSError)


@pytest.mark.parametrize(
    ("limit", "segment"), [(1, MIN_SEGMENT_NBYTES), (64 << 20, 1 << 20), (1 << 40, MAX_SEGMENT_NBYTES)]
)
def test_what_is_written_at_once_follows_from_the_memory_limit(limit: int, segment: int) -> None:
    spill = Spill.within("a folder", limit)
    assert spill.segment_nbytes == segment
    assert spill.memory_nbytes == limit // 8


def test_rows_that_leave_before_they_are_written_never_are(file: SpillFile) -> None:
    log = SpillLog(file, 1_000)
    for _ in range(50):
        addresses = log.add(content(1, 900), vector(900), vector(0))
        log.forget(addresses, vector(900))
    assert file.nbytes == 0
