"""A short run of the fuzz target, so that it cannot rot."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

from fuzz_lake import check, main, mutate, rows_in, seeds


def test_hostile_metadata_give_rows_or_typed_errors() -> None:
    main(["--runs", "100", "--seed", "7"])


def test_seeds_are_valid_and_mutations_are_reproducible() -> None:
    assert [len(rows_in(json.loads(data))) for data in seeds()] == [18, 18, 12, 10, 10]
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second


def test_target_notices_a_foreign_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz_lake.rows_of", lambda *_: iter([1 // 0]))
    with pytest.raises(ZeroDivisionError):
        check(seeds()[0])
