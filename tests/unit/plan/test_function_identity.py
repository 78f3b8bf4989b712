"""Functions are known by name, meaning of their source and the values they carry."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from aiostream_data.plan.functions import BYTECODE, FunctionIdentity, identify, parse_identity


def double(row: int, factor: int = 2) -> int:
    return row * factor


def loud(function: Callable[[int], int]) -> Callable[[int], int]:
    @functools.wraps(function)
    def wrapped(row: int) -> int:
        return function(row)

    return wrapped


@loud
def loud_double(row: int) -> int:
    return row * 2


@loud
def loud_triple(row: int) -> int:
    return row * 3


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.calls = 0

    def __call__(self, row: int) -> int:
        self.calls += 1
        return row * self.factor

    def method(self, row: int) -> int:
        return row + self.factor


@dataclass(frozen=True)
class Options:
    size: int


def compiled(source: str) -> Any:
    return eval(source)


def adder(number: Any) -> Callable[[int], Any]:
    return lambda row: row + number


def same_but_name(first: Any, second: Any) -> bool:
    return identify(first)[1:] == identify(second)[1:]


# fmt: off
LAMBDAS: list[Any] = [lambda row: row + 1, lambda row: row + 2, lambda row: (lambda x: x + row)(3), lambda row: row]
# fmt: on

DIFFERENT: list[Any] = [
    double, loud_double, loud_triple, *LAMBDAS, Scale(2), Scale(3), Scale(2).method, Scale(3).method, Scale,
    functools.partial(double, factor=3), functools.partial(double, factor=4), functools.partial(double, 3),
    adder(1), adder(2), adder("x"), adder((1, 2)), adder(Options(3)), adder(Options(4)), adder(double),
    adder(LAMBDAS[0]), adder(LAMBDAS[1]), adder(np.arange(3)), str, len, np.sin, np.cos, str.upper, operator.neg,
    operator.itemgetter(1), operator.itemgetter(2), compiled("lambda row: row + 1"), compiled("lambda row: row + 2"),
    compiled("lambda row: row in {1, 2}"), compiled("lambda row: row.a"), compiled("lambda row: row.b"),
]  # fmt: skip


def test_different_functions_have_different_identities() -> None:
    identities = [str(identify(function)) for function in DIFFERENT]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("function", DIFFERENT, ids=lambda function: type(function).__name__)
def test_an_identity_reads_back(function: Any) -> None:
    assert parse_identity(str(identify(function))) == identify(function)
    assert "0x" not in str(identify(function))


def test_what_no_identity_is_does_not_read() -> None:
    assert parse_identity("a b c") is None
    assert parse_identity("") is None


def test_a_name_says_where_the_function_is() -> None:
    assert identify(double).name == f"{__name__}.double"
    assert identify(functools.partial(double, 3)).name == f"{__name__}.double"
    assert identify(Scale(2)).name == f"{__name__}.Scale"
    assert identify(Scale(2).method).name == f"{__name__}.Scale.method"
    assert identify(len).name == "len"


def test_layout_comments_annotations_and_docstrings_do_not_count() -> None:
    def first(row: int) -> int:
        """Say something."""
        # and something else
        return (row +
                1)  # fmt: skip

    def second(row):  # type: ignore[no-untyped-def]
        return row + 1

    assert same_but_name(first, second)


def test_what_surrounds_a_lambda_does_not_count() -> None:
    first: list[Any] = [1, (lambda row: row * 7), 2]
    second: tuple[Any, list[Any]] = ((lambda row: row * 7), [lambda row: row * 8])
    assert same_but_name(first[1], second[0])
    assert not same_but_name(first[1], second[1][0])


def test_functions_without_source_are_known_by_bytecode_and_this_is_said() -> None:
    assert identify(compiled("lambda row: row + 1")).how == BYTECODE
    assert identify(compiled("lambda row: row + 1")) == identify(compiled("(\n\nlambda row: row + 1)"))
    assert identify(double).how == "src"
    assert identify(adder(compiled("lambda row: row"))).how == BYTECODE


def test_what_lasts_of_bytecode_is_name_and_values() -> None:
    identity = FunctionIdentity("m.f", "py3.11", "01234567", "89abcdef")
    assert identity.lasting == "m.f - - 89abcdef"
    assert identity._replace(how="src").lasting == "m.f src 01234567 89abcdef"


def test_counting_calls_changes_nothing() -> None:
    calls = 0

    def count(row: int) -> int:
        nonlocal calls
        calls += 1
        return row

    scale = Scale(3)
    before = identify(count), identify(scale), identify(scale.method)
    count(1)
    scale(1)
    assert (identify(count), identify(scale), identify(scale.method)) == before


def test_filling_a_list_in_the_closure_changes_nothing() -> None:
    seen: list[int] = []
    table = np.zeros(3)
    before = identify(adder(seen)), identify(adder(table))
    seen.append(1)
    table[0] = 1
    assert (identify(adder(seen)), identify(adder(table))) == before


def test_read_only_arrays_in_the_closure_count_by_content() -> None:
    first, second = np.zeros(3), np.ones(3)
    first.flags.writeable = second.flags.writeable = False
    assert identify(adder(first)) != identify(adder(second))


def test_a_function_that_calls_itself_through_its_closure_has_an_identity() -> None:
    def factorial(row: int) -> int:
        return row * factorial(row - 1) if row else 1

    assert identify(factorial).how == "src"


def test_a_cached_function_is_known_by_what_it_caches() -> None:
    assert same_but_name(functools.lru_cache(double), double)
