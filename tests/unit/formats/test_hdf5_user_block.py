"""HDF5 files behind a user block are read as those without one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_bytes import directory_of, plain_rows, rows_of

from aiostream_data import CorruptRecordError, Dataset
from aiostream_data.formats.hdf5 import Hdf5Format
from aiostream_data.testing.resume import resumes_everywhere

h5py = pytest.importorskip("h5py")

ROWS = 40
EXPECTED = [{"n": n, "x": [n, -n]} for n in range(ROWS)]


def written(block: int) -> bytes:
    made = io.BytesIO()
    with h5py.File(made, "w", userblock_size=block) as file:
        file["n"] = np.arange(ROWS)
        pairs = np.stack([np.arange(ROWS), -np.arange(ROWS)], 1)
        file.create_dataset("x", data=pairs, chunks=(6, 2), compression="gzip")
    content = made.getvalue()
    return b"MATLAB 7.3".ljust(block, b"\0") + content[block:] if block else content


@pytest.mark.parametrize("block", [0, 512, 1024, 1 << 16])
def test_rows_are_the_same_behind_a_user_block(block: int) -> None:
    data = written(block)
    for first in range(ROWS + 1):
        assert plain_rows(rows_of(Hdf5Format(), data, first)) == EXPECTED[first:]


def test_a_user_block_that_was_put_before_a_file_is_skipped() -> None:
    assert plain_rows(rows_of(Hdf5Format(), b"\x89HDF of another program".ljust(2048) + written(0))) == EXPECTED


def test_a_signature_is_only_sought_at_powers_of_two() -> None:
    for size in (8, 511, 513, 1536):
        with pytest.raises(CorruptRecordError, match="not an HDF5 file"):
            list(rows_of(Hdf5Format(), bytes(size) + written(0)))


def test_groups_of_rows_do_not_need_the_user_block() -> None:
    groups = list(directory_of(Hdf5Format(), written(4096)).groups_from(0))
    assert sum(group.rows for group in groups) == ROWS
    assert min(part.start for group in groups for part in group.ranges) > 4096


def test_the_place_of_damage_counts_from_the_start_of_the_file() -> None:
    places = []
    for block in (0, 512):
        with pytest.raises(CorruptRecordError) as found:
            list(rows_of(Hdf5Format(), written(block)[: block + 2500]))
        assert f"at byte {found.value.offset}" in str(found.value)
        places.append(found.value.offset)
    assert places[1] == places[0] + 512


def test_damaged_files_behind_a_user_block_raise_typed_errors() -> None:
    data = written(512)
    for stop in range(0, len(data), len(data) // 50):
        with pytest.raises(CorruptRecordError):
            list(rows_of(Hdf5Format(), data[:stop]))


def test_a_file_of_matlab_is_recognized_and_resumes_at_every_row(tmp_path: Path) -> None:
    (tmp_path / "a.mat").write_bytes(written(512))
    found: Dataset[Any] = Dataset.open_any(tmp_path)
    assert plain_rows(list(found)) == EXPECTED
    resumes_everywhere(Dataset.from_hdf5(str(tmp_path / "a.mat")))
