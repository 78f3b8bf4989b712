"""A short run of the fuzz target, so that it cannot rot."""

from __future__ import annotations

import random

import pytest
from fuzz_csv import check, main, mutate, seeds

from aiostream_data import _native
from aiostream_data._native import csv_rows_py


def test_hostile_records_give_the_same_from_both_parsers() -> None:
    main(["--runs", "3000", "--seed", "11"])


def test_mutations_of_csv_are_reproducible() -> None:
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second


def test_target_notices_a_parser_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "parse_csv", lambda *asked: csv_rows_py.parse_csv(*(*asked[:-1], [])))
    with pytest.raises(AssertionError):
        check(bytes([8, 8, 0, 0, 1, 1]) + b"1,\n")
