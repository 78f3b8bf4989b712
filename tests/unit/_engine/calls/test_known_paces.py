"""A run of an operator with costly rows begins with the pace of an earlier run of the same code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aiostream_data._engine.calls.pacing import Pace, Paces


def function_of(file: str) -> Callable[[str], tuple[str, str]]:
    return lambda row: (file, row)


def other(row: str) -> str:
    return row


def measured(pace: Pace, row_s: float) -> None:
    for _ in range(3):
        pace.observe(4, 4 * row_s, 4 * row_s)


def test_costly_rows_are_known_to_later_runs_and_closures_of_the_same_code() -> None:
    paces = Paces()
    measured(paces.begun("0/1", [function_of("a")], 4), 0.01)
    second = paces.begun("0/1", [function_of("b")], 4)
    assert second.workers(4) == 4
    assert second.row_s == 0.01


def test_runs_at_the_same_time_measure_for_themselves() -> None:
    paces = Paces()
    first = paces.begun("0/1", [other], 4)
    measured(first, 0.01)
    second = paces.begun("0/1", [other], 4)
    measured(second, 0.02)
    assert first.row_s == 0.01 < second.row_s


def test_cheap_rows_start_with_one_row_again() -> None:
    paces = Paces()
    measured(paces.begun("0/1", [other], 4), 1e-6)
    assert paces.begun("0/1", [other], 4) == Pace()


def test_another_place_or_function_is_measured_anew() -> None:
    paces = Paces()
    functions = [function_of("a"), other]
    measured(paces.begun("0/1", functions, 4), 0.01)
    assert paces.begun("0/2", functions, 4) == Pace()
    assert paces.begun("0/1", functions[:1], 4) == Pace()
    assert paces.begun("0/1", functions, 4) == Pace()  # the run before was of another function
    measured(paces.begun("0/2", [partial(other)], 4), 0.01)
    assert paces.begun("0/2", [partial(other)], 4) == Pace()
