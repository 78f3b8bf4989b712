"""Files with row groups that change while they are read: the error of the store arrives as it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aiostream_data import Dataset, ObjectChangedError, StorageError

ROWS = 6_000_000
"""Rows of 8 bytes, in more row groups than are read ahead."""


def read_and_change(path: Path, change: Callable[[Path], None]) -> None:
    """Read a file, and change it after the first batch."""
    np.save(path, np.zeros((ROWS, 1)))
    with Dataset.from_npy(path).batch(100_000).open() as loader:
        for number, _ in enumerate(loader):
            if number == 0:
                change(path)


def test_a_changed_file_raises_the_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(ObjectChangedError, match="modified"):
        read_and_change(tmp_path / "a.npy", os.utime)


def test_a_truncated_file_raises_the_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        read_and_change(tmp_path / "a.npy", lambda path: os.truncate(path, 1000))
