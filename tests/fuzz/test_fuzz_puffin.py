"""A short run of the fuzz target, so that it cannot rot."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("pyiceberg")

from fuzz_puffin import check, main, mutate, seeds


def test_hostile_vectors_give_rows_or_typed_errors() -> None:
    main(["--runs", "2000", "--seed", "7"])


def test_mutations_are_reproducible() -> None:
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second


def test_target_notices_a_foreign_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz_puffin.rows_of_vector", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        check(seeds()[1])
