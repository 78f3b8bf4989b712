"""A short run of the fuzz target, so that it cannot rot."""

from __future__ import annotations

import random

import pytest
from fuzz_sql import check, main, mutate, seeds


def test_hostile_databases_give_rows_or_typed_errors() -> None:
    main(["--runs", "2000", "--seed", "7"])


def test_mutations_are_reproducible() -> None:
    first, second = ([mutate(data, random.Random(5)) for data in seeds()] for _ in range(2))
    assert first == second


def test_target_notices_a_foreign_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz_sql.collate", lambda *_: 1 // 0)
    for data in seeds():
        with pytest.raises(ZeroDivisionError):
            check(data)


@pytest.mark.parametrize("number", range(3))
def test_target_notices_lost_rows(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr("fuzz_sql.FIRST_ROWS", 10_000)
    check(seeds()[number])
    monkeypatch.setattr("hostile_driver.HostileConnection.fetchall", lambda self: self._found[1:])
    with pytest.raises(AssertionError, match="1 rows are lost"):
        check(seeds()[number])
