"""A run of an operator with costly rows begins with the pace of an earlier run of the same code."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

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


def test_runs_that_are_not_measured_yet_do_not_hide_one_that_was() -> None:
    paces = Paces()
    measured(paces.begun("0/1", [other], 4), 0.01)
    assert [paces.begun("0/1", [other], 4).workers(4) for _ in range(3)] == [4, 4, 4]


class Parser:
    def __init__(self, file: str) -> None:
        self.file = file

    def parse(self, row: str) -> str:
        return row

    def __call__(self, row: str) -> str:
        return row


@pytest.mark.parametrize(
    "made_of",
    [lambda file: partial(other, file), Parser, lambda file: Parser(file).parse, lambda file: file.upper],
    ids=["partial", "object", "method", "builtin"],
)
def test_functions_that_are_made_of_each_file_are_known_and_not_kept(made_of: Callable[[str], Any]) -> None:
    paces = Paces()
    first = made_of("a")
    measured(paces.begun("0/1", [first], 4), 0.01)
    assert paces.begun("0/1", [made_of("b")], 4).workers(4) == 4
    assert not any(referrer is paces._runs or isinstance(referrer, list) for referrer in gc.get_referrers(first))
