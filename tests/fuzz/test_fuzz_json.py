"""A short run of the fuzz target, so that it cannot rot."""

from __future__ import annotations

import random

import numpy as np
import pytest
from fuzz_json import check, main, mutate, seeds

from aiostream_data import _native
from aiostream_data._native import json_rows_py


def test_hostile_records_give_the_same_from_all_parsers() -> None:
    main(["--runs", "600", "--seed", "11"])


def test_mutations_of_json_are_reproducible() -> None:
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second


def test_target_notices_a_parser_that_accepts_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    none = np.zeros(0, np.int64)
    no_records = np.zeros(0, np.uint8), none, none
    monkeypatch.setattr(_native, "parse_json", lambda *asked: json_rows_py.parse_json(*no_records, asked[-1]))
    with pytest.raises(AssertionError):
        check(bytes(5) + b'{"a": "x"}')
