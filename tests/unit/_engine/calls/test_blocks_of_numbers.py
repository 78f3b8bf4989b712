"""A function of numbers is called for many rows at once, whatever it returns for some of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiostream_data import Dataset

ROWS = 20_000


def same(number: int) -> int:
    return number


def text_at_last(number: int) -> Any:
    return str(number) if number > 15_000 else number


def one_fraction(number: int) -> Any:
    return number / 2 if number == 9_000 else number


def pairs_first(number: int) -> Any:
    return (number, number) if number < 5_000 else number


def fractions(number: int) -> float:
    return number / 2


@pytest.mark.parametrize("function", [same, text_at_last, one_fraction, pairs_first, fractions])
def test_results_are_those_of_a_plain_loop(function: Callable[[int], Any]) -> None:
    found = list(Dataset.range(ROWS).map(function))
    expected = [function(number) for number in range(ROWS)]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.parametrize("failing", [0, 4_095, 4_096, 4_097, 12_000, ROWS - 1])
def test_all_rows_before_a_failure_are_delivered(failing: int) -> None:
    def limited(number: int) -> int:
        if number == failing:
            raise ValueError(f"number {number}")
        return number

    rows: list[int] = []
    with pytest.raises(ValueError, match=f"number {failing}"):
        rows.extend(Dataset.range(ROWS).map(limited))
    assert rows == list(range(failing))


@pytest.mark.parametrize("failing", [{1}, {4_096, 4_097}, {100, 9_000, ROWS - 1}])
def test_only_failing_rows_are_skipped(failing: set[int]) -> None:
    def limited(number: int) -> int:
        if number in failing:
            raise ValueError(f"number {number}")
        return number

    rows = list(Dataset.range(ROWS).map(limited, on_error="skip"))
    assert rows == [number for number in range(ROWS) if number not in failing]
