"""Functions with hidden state are reported when a plan is built, and refused by ``open`` on request."""

from __future__ import annotations

import asyncio
import io
import itertools
import math
import multiprocessing
import random
import socket
import sys
import threading
import timeit
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial, wraps
from pathlib import Path
from random import shuffle
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset, HiddenStateWarning, StageBuildError
from aiostream_data.plan.hidden_state import hidden_state

NUMBERS = itertools.count()
GENERATOR = np.random.default_rng(1)
TABLE = np.arange(3)
TEXT = io.StringIO("text")


class Owner:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def method(self, element: Any) -> Any:
        return element

    def __call__(self, element: Any) -> Any:
        return element


def with_variable(value: Any) -> Callable[[Any], Any]:
    return lambda element: (element, value)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(*given: Any) -> Any:
        return function(*given)

    return called


def with_default(value: Any) -> Callable[..., Any]:
    def called(element: Any, more: Any = value, *, rest: Any = None) -> Any:
        return element, more, rest

    return called


def with_keyword(value: Any) -> Callable[..., Any]:
    def called(element: Any, *, more: Any = value) -> Any:
        return element, more

    return called


def numbered(element: Any) -> Any:
    return element, next(NUMBERS)


def augmented(element: Any) -> Any:
    return element + GENERATOR.normal()


CASES: list[tuple[Any, str, str]] = [
    (lambda element: random.random(), "random.random() draws from the global random state", "parameter rng"),
    (lambda element: shuffle(element), "shuffle() draws from the global random state", "parameter rng"),
    (lambda element: np.random.rand(3), "np.random.rand() draws from the global random state", "parameter rng"),
    (lambda element: [np.random.randint(3) for _ in element], "np.random.randint()", "parameter rng"),
    (random.choice, "the function draws from the global random state", "parameter rng"),
    (np.random.permutation, "the function draws from the global random state", "parameter rng"),
    (numbered, "the global variable 'NUMBERS' is an iterator", "inside the function"),
    (augmented, "the global variable 'GENERATOR' is a random generator", "parameter rng"),
    (GENERATOR.permutation, "its owner is a random generator", "parameter rng"),
    (with_variable(random.Random(1)), "its variable 'value' is a random generator", "parameter rng"),
    (with_variable(random.SystemRandom()), "its variable 'value' is a random generator", "parameter rng"),
    (with_variable(np.random.RandomState(1)), "its variable 'value' is a random generator", "parameter rng"),
    (with_variable(number for number in range(3)), "its variable 'value' is an iterator", "inside the function"),
    (with_variable(TEXT), "its variable 'value' is an open file", "init="),
    (with_variable(threading.Lock()), "its variable 'value' is a lock", "Return values"),
    (with_variable(threading.RLock()), "its variable 'value' is a lock", "Return values"),
    (with_default(GENERATOR), "the default of 'more' is a random generator", "parameter rng"),
    (with_keyword(iter([1])), "the default of 'more' is an iterator", "inside the function"),
    (partial(with_default(1), more=GENERATOR), "its argument 'more' is a random generator", "parameter rng"),
    (partial(max, iter([1])), "its argument 0 is an iterator", "inside the function"),
    (partial(with_variable(iter([1]))), "its variable 'value' is an iterator", "inside the function"),
    (Owner(rows=iter([1])), "its attribute 'rows' is an iterator", "inside the function"),
    (Owner(source=GENERATOR).method, "its attribute 'source' is a random generator", "parameter rng"),
    (decorated(numbered), "the global variable 'NUMBERS' is an iterator", "inside the function"),
    (lru_cache(numbered), "the global variable 'NUMBERS' is an iterator", "inside the function"),
]

PURE: list[Callable[..., Any]] = [
    int,
    math.sqrt,
    str.upper,
    "a".join,
    np.asarray,
    Owner(table=TABLE, names=["a"]),
    Owner(scale=2).method,
    with_variable(TABLE),
    with_variable(sys.stderr),
    with_variable(threading.Event()),
    with_variable(asyncio.Semaphore(1)),
    with_variable(range(3)),
    with_variable(Dataset.range(3)),
    lambda element: TABLE[element],
    lambda element: np.random.default_rng(element).choice(3),
    lambda element: random.Random(element).random(),
    lambda element, rng: rng.normal(),
    lambda element, rng=GENERATOR: rng.normal(),
    lambda element: element.NUMBERS,
    partial(lambda element, rng=GENERATOR: element),
    decorated(abs),
]


@pytest.mark.parametrize(("function", "place", "remedy"), CASES, ids=[place for _, place, _ in CASES])
def test_map_reports_the_function_the_captured_name_and_the_remedy(function: Any, place: str, remedy: str) -> None:
    with pytest.warns(HiddenStateWarning) as found:
        Dataset.range(3).map(function)
    text = str(found[0].message)
    assert text.startswith("map(): ")
    assert place in text
    assert remedy in text
    assert len(found) == 1
    assert found[0].filename == __file__


@pytest.mark.parametrize("function", PURE)
def test_functions_without_hidden_state_are_not_reported(function: Callable[..., Any]) -> None:
    Dataset.range(3).map(function)


def test_the_message_names_the_file_and_line_of_the_function() -> None:
    with pytest.warns(HiddenStateWarning, match=r"numbered \(.*test_hidden_state.py:\d+\)"):
        Dataset.range(3).filter(numbered)


def test_open_files_sockets_and_locks_of_processes_are_reported(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as file, socket.socket() as connection:
        for state, kind in ((file, "an open file"), (connection, "a socket"), (multiprocessing.Lock(), "a lock")):
            with pytest.warns(HiddenStateWarning, match=f"'value' is {kind}"):
                Dataset.range(3).map(with_variable(state))
    Dataset.range(3).map(with_variable(file))  # it is closed


def generated(rows: Iterator[int]) -> Iterator[int]:
    yield from rows


@pytest.mark.parametrize(
    ("build", "operator"),
    [
        (lambda: Dataset.range(3).filter(numbered), "filter"),
        (lambda: Dataset.range(3).flat_map(numbered), "flat_map"),
        (lambda: Dataset.range(3).interleave(numbered), "interleave"),
        (lambda: Dataset.range(3).take_while(numbered), "take_while"),
        (lambda: Dataset.range(3).unique(key=numbered), "unique"),
        (lambda: Dataset.range(3).scan(with_default(iter([1])), 0), "scan"),
        (lambda: Dataset.range(3).batch(max_cost=3, cost=numbered), "batch"),
        (lambda: Dataset.range(3).bucket_by_sequence_length(numbered, [2], [1, 1]), "bucket_by_sequence_length"),
        (lambda: Dataset.from_generator(with_default(iter([1])), args=(1,)), "from_generator"),
        (lambda: Dataset.from_generator(generated, args=(iter([1]),)), "from_generator"),
        (lambda: Dataset.sample_from([Dataset.range(3)], lambda row: [1 + random.random()]), "sample_from"),
    ],
)
def test_every_operator_with_a_function_reports_hidden_state(build: Callable[[], Any], operator: str) -> None:
    with pytest.warns(HiddenStateWarning, match=rf"^{operator}\(\): "):
        build()


def test_open_raises_on_request() -> None:
    with pytest.warns(HiddenStateWarning):
        dataset = Dataset.range(3).map(numbered).batch(2)
    with pytest.raises(StageBuildError, match="'NUMBERS' is an iterator"):
        dataset.open(hidden_state="raise")
    dataset.open().close()
    Dataset.range(3).map(int).open(hidden_state="raise").close()
    with pytest.raises(asd.PlanError, match="hidden_state"):
        dataset.open(hidden_state="ignore")  # type: ignore[arg-type]


def test_a_filter_of_warnings_silences_or_raises() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HiddenStateWarning)
        Dataset.range(3).map(numbered)
        warnings.simplefilter("error", HiddenStateWarning)
        with pytest.raises(HiddenStateWarning):
            Dataset.range(3).map(numbered)


def test_the_search_of_a_usual_function_takes_less_than_20_microseconds() -> None:
    scale, names = 2.0, ("a", "b")

    def usual(row: dict[str, Any], dtype: str = "float32") -> dict[str, Any]:
        return {name: np.asarray(row[name], dtype) * scale + math.pi for name in names}

    assert hidden_state(usual) is None
    assert min(timeit.repeat(lambda: hidden_state(usual), number=100, repeat=20)) / 100 < 20e-6
