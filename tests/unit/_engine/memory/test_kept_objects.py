"""Objects that a user function keeps are measured before they can outgrow the memory limit."""

from __future__ import annotations

from typing import Any

import pytest

from aiostream_data import MemoryBudgetError
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.memory.kept_objects import MOST_ROWS, KeptObjects

LIMIT = 1 << 20


@pytest.fixture
def budget() -> Budget:
    return Budget(LIMIT)


@pytest.fixture
def kept(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> KeptObjects:
    monkeypatch.setattr("aiostream_data._engine.memory.kept_objects.SHARE_OF_TIME", 1e9)  # measured whenever due
    return KeptObjects(budget, "scan", "state", "Return a smaller state")


def rows_until_refused(kept: KeptObjects, of_a_row: int, most: int = 100_000) -> int:
    state: list[Any] = []
    for row in range(most):
        try:
            kept.check(state)
        except MemoryBudgetError:
            return row
        kept.rows_left -= 1
        state.append(bytes(of_a_row))
    return most


@pytest.mark.parametrize("of_a_row", [1_000, 30_000, 300_000])
def test_steady_growth_is_refused_soon_after_the_limit(kept: KeptObjects, of_a_row: int) -> None:
    fits = LIMIT // of_a_row
    assert fits < rows_until_refused(kept, of_a_row) <= max(fits + 2, 1.3 * fits)


@pytest.mark.parametrize("of_a_row", [10, 1_000, 30_000, 300_000, 2_000_000])
def test_growth_is_refused_at_the_limit_even_if_each_measurement_takes_an_hour(
    budget: Budget, monkeypatch: pytest.MonkeyPatch, of_a_row: int
) -> None:
    measured: list[int] = []

    def slow(value: int) -> int:
        measured.append(value)
        return value

    monkeypatch.setattr("aiostream_data._engine.memory.kept_objects.kept_nbytes", slow)
    monkeypatch.setattr("aiostream_data._engine.memory.kept_objects.thread_time", lambda: 3600.0 * len(measured))
    kept = KeptObjects(budget, "scan", "state", "Return a smaller state")
    row = 0

    def use_up_the_limit() -> None:
        nonlocal row
        while True:
            kept.check(row * of_a_row)
            kept.rows_left -= 1
            row += 1

    with pytest.raises(MemoryBudgetError):
        use_up_the_limit()
    assert LIMIT < row * of_a_row <= LIMIT + 2 * of_a_row
    assert len(measured) < 80


def test_a_state_that_stays_is_measured_rarely(kept: KeptObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Any] = []

    def size(value: Any) -> int:
        measured.append(value)
        return 8

    monkeypatch.setattr("aiostream_data._engine.memory.kept_objects.kept_nbytes", size)
    for _ in range(100 * MOST_ROWS):
        kept.check(1)
        kept.rows_left -= 1
    assert len(measured) < 120


def test_measurements_that_take_long_are_rare(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def slow(value: Any) -> int:
        clock[0] += 1.0
        return 8

    monkeypatch.setattr("aiostream_data._engine.memory.kept_objects.kept_nbytes", slow)
    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(f"aiostream_data._engine.memory.kept_objects.{name}", lambda: clock[0])
    kept, began = KeptObjects(budget, "scan", "state", "Return a smaller state"), 0
    for _ in range(200):
        clock[0] += 0.5  # of a row
        before = clock[0]
        kept.rows_left = 0
        kept.check(1)
        began += clock[0] > before
    assert 0 < began <= 12


def test_the_budget_counts_growth_until_the_end(kept: KeptObjects, budget: Budget) -> None:
    kept.check([bytes(5_000_000)])  # before the first row
    assert budget.used == 0
    kept.rows_left = 0
    kept.check([bytes(5_001_000)])
    assert budget.used == 1_000
    kept.close()
    assert budget.used == 0
