"""A short run of the fuzz target, so that it cannot rot."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("h5py")

from fuzz_hdf5 import FORMATS, HEAD_NBYTES, ROWS, check, main, mutate, seeds
from table_bytes import rows_of


def test_hostile_files_give_rows_or_typed_errors() -> None:
    main(["--runs", "300", "--seed", "7"])


def test_seeds_are_valid_and_mutations_are_reproducible() -> None:
    for data in seeds():
        assert len(list(rows_of(FORMATS[data[0]], data[HEAD_NBYTES:]))) == ROWS
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second


def test_target_notices_a_foreign_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz_hdf5.rows_of", lambda *_: iter([1 // 0]))
    with pytest.raises(ZeroDivisionError):
        check(seeds()[0])


def test_target_notices_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz_hdf5.rows_of", lambda *_: iter([{"n": 1}]))
    with pytest.raises(AssertionError):
        check(seeds()[1])
