"""Functions that a worker process could not import are refused where the chain is written."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import aiostream_data as asd
from aiostream_data.errors import StageBuildError

THOUSAND = asd.Dataset.range(1000)


def module_level_lambda() -> Any:
    return lambda x: x


def test_r10_a_lambda_to_a_process_stage_is_refused_where_it_is_written_and_named() -> None:
    with pytest.raises(StageBuildError, match=r"<lambda> .*test_r10_\w+\.py:\d+.*executor='thread'"):
        THOUSAND.map(lambda x: x, executor="process")
    with pytest.raises(StageBuildError, match="local function"):
        THOUSAND.map(module_level_lambda(), executor="process")


def test_r10_a_function_of_main_to_a_process_stage_is_refused() -> None:
    def stands_in(number: int) -> int:
        return number

    stands_in.__module__, stands_in.__qualname__, stands_in.__name__ = "__main__", "stands_in", "stands_in"
    with pytest.raises(StageBuildError, match=r"stands_in .*__main__"):
        THOUSAND.map(stands_in, executor="process")


def test_r10_threads_accept_what_processes_cannot() -> None:
    assert list(THOUSAND.take(2).map(lambda x: x + 1, executor="thread")) == [1, 2]


def test_r10_an_object_that_does_not_pickle_is_refused_for_a_process() -> None:
    class Holder:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __call__(self, number: int) -> int:
            return number

    with pytest.raises(StageBuildError, match="Holder"):
        THOUSAND.map(Holder(), executor="process")
