"""Files of one record that are far too long are refused by their size, before memory is allocated for them."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from aiostream_data import CorruptRecordError, Dataset

NBYTES = 10**11


def files(folder: Path) -> list[Path]:
    paths = [folder / f"{number}.bin" for number in range(5)]
    for path in paths:
        path.write_bytes(b"x")
    os.truncate(paths[2], NBYTES)  # a sparse file
    return paths


def test_the_error_names_the_size(tmp_path: Path) -> None:
    rows: list[bytes] = []
    with pytest.raises(CorruptRecordError, match=f"2.bin at byte 0: .*the object has {NBYTES} bytes, more than"):
        rows.extend(element["data"] for element in Dataset.from_files(files(tmp_path)))
    assert rows == [b"x", b"x"]


def test_it_is_skipped_alone_and_without_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = list(Dataset.from_files(files(tmp_path), on_error="skip"))
    assert [element["data"] for element in found] == [b"x"] * 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 200_000  # KiB
