"""A short run of the fuzz target, so that it cannot rot."""

from __future__ import annotations

import random

import pytest
from fuzz_array_record import HEAD_NBYTES, RECORDS, check, file_of, main, mutate, seeds
from table_bytes import rows_of

from aiostream_data.formats.array_record import ArrayRecordFormat


def test_hostile_files_give_records_or_typed_errors() -> None:
    main(["--runs", "300", "--seed", "7"])


def test_seeds_are_valid_and_mutations_are_reproducible() -> None:
    for data in seeds():
        file = file_of(data[0], data[2], int.from_bytes(data[3:HEAD_NBYTES], "little"), data[HEAD_NBYTES:])
        assert list(rows_of(ArrayRecordFormat(), file)) == RECORDS
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second


def test_target_notices_a_foreign_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz_array_record.rows_of", lambda *_: iter([1 // 0]))
    with pytest.raises(ZeroDivisionError):
        check(seeds()[0])
