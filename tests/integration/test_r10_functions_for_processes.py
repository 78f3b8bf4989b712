"""Lambdas and functions of a program reach worker processes, or are refused where the chain is written."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import StageBuildError
from aiostream_data.plan import reaching

THOUSAND = asd.Dataset.range(1000)
_CURE = (
    "install aiostream-data\\[process\\], move it to the top level of an importable module, or use executor='thread'"
)


def adding(more: Any) -> Callable[[int], Any]:
    return lambda number: number + more


@pytest.fixture
def without_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> Any:
        return None if name == "cloudpickle" else find_spec(name)

    monkeypatch.setattr(reaching, "find_spec", found)


def stands_in(number: int) -> int:
    return number + 1


# -- with cloudpickle


def test_r10_a_lambda_reaches_worker_processes_with_what_it_has_seen() -> None:
    dataset = asd.Dataset.range(4).map(adding(np.array([1, 10])), executor="process", concurrency=1)
    assert [row.tolist() for row in dataset] == [[1, 10], [2, 11], [3, 12], [4, 13]]


def test_r10_functions_and_classes_of_main_reach_worker_processes_without_a_guard(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import dataclasses, aiostream_data as asd\n"
        "@dataclasses.dataclass\n"
        "class Point:\n    x: int\n"
        "OFFSET = 40\n"
        "class OwnError(Exception): pass\n"
        "def make(number): return Point(number + OFFSET)\n"
        "def fail(point): raise OwnError(point.x)\n"
        "made = asd.Dataset.range(3).map(make, executor='process', concurrency=1)\n"
        "print([type(point) is Point and point.x for point in made])\n"
        "try: list(asd.Dataset.from_iterable([Point(1)]).map(fail, executor='process', concurrency=1))\n"
        "except OwnError as error: print(type(error.__cause__) is OwnError)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[40, 41, 42]\nTrue\n", "")


class Holder:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, number: int) -> int:
        return number

    def method(self, number: int) -> int:
        return number


def uses_lock(lock: Any, number: int) -> int:
    return number


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (adding(threading.Lock()), "its variable 'more' is a _thread.lock"),
        (Holder(), "Holder .*its attribute 'lock' is a _thread.lock"),
        (Holder().method, "its attribute 'lock' is a _thread.lock"),
        (partial(uses_lock, threading.Lock()), "argument 0 is a _thread.lock"),
        (partial(uses_lock, lock=threading.Lock()), "argument 'lock' is a _thread.lock"),
        (lambda number, lock=threading.Lock(): number, "the default of 'lock' is a _thread.lock"),  # noqa: B008
    ],
)
def test_r10_what_never_pickles_is_refused_where_it_is_written_and_named(function: Any, said: str) -> None:
    with pytest.raises(StageBuildError, match=f"{said}.*init=, or use executor='thread'"):
        THOUSAND.map(function, executor="process")


def test_r10_a_large_array_of_a_closure_is_not_copied_to_check_the_function() -> None:
    pickled, error = reaching._tried(__import__("cloudpickle").dumps, adding(np.zeros(1 << 24, np.uint8)))
    assert error is None
    assert len(pickled) < 1 << 16


def test_r10_what_functions_print_in_workers_is_written_before_their_results_are_there(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import aiostream_data as asd\n"
        "seen = asd.Dataset.range(2).map(lambda n: print('seen', n), executor='process', concurrency=1)\n"
        "print(list(seen), flush=True)\n"
        "import os; os._exit(0)"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "seen 0\nseen 1\n[None, None]\n"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python has them")
def test_r10_interpreters_are_refused_where_python_has_none() -> None:
    with pytest.raises(StageBuildError, match=r"needs Python 3\.14 .*executor='process'"):
        THOUSAND.map(stands_in, executor="interpreter")


# -- without


@pytest.mark.usefixtures("without_cloudpickle")
def test_r10_a_lambda_is_refused_where_it_is_written_and_named() -> None:
    with pytest.raises(StageBuildError, match=rf"<lambda> .*test_r10_\w+\.py:\d+.*{_CURE}"):
        THOUSAND.map(lambda x: x, executor="process")
    with pytest.raises(StageBuildError, match="local function"):
        THOUSAND.map(adding(1), executor="process")
    with pytest.raises(StageBuildError, match="local function"):
        THOUSAND.map(partial(adding(1)), executor="process")


@pytest.mark.usefixtures("without_cloudpickle")
def test_r10_a_function_of_main_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stands_in, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "stands_in", stands_in, raising=False)
    for function in (stands_in, partial(stands_in)):
        with pytest.raises(StageBuildError, match=rf"__main__, .*{_CURE}"):
            THOUSAND.map(function, executor="process")


@pytest.mark.usefixtures("without_cloudpickle")
def test_r10_threads_accept_what_processes_cannot() -> None:
    assert list(THOUSAND.take(2).map(lambda x: x + 1, executor="thread")) == [1, 2]


@pytest.mark.usefixtures("without_cloudpickle")
def test_r10_an_object_that_does_not_pickle_is_refused() -> None:
    with pytest.raises(StageBuildError, match=r"Holder .*'lock'"):
        THOUSAND.map(Holder(), executor="process")
