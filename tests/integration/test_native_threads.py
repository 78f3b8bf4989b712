"""``open(native_threads=)``: a limit on the threads of BLAS and OpenMP libraries in user functions."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import threadpoolctl

from aiostream_data import Dataset, MissingExtraError, PlanError
from aiostream_data._engine.calls.cpu_count import cpu_count
from aiostream_data.executors.native_threads import limited_environment

BEFORE = 3
"""Threads of each BLAS library before a loader is opened, also on machines with fewer cores."""


def blas_threads(*element: Any) -> int:
    """Return the largest number of threads of any BLAS library."""
    libraries = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    return max(int(library.num_threads) for library in libraries)


def listed(number: Any) -> list[int]:
    return [blas_threads()]


def product(number: Any) -> float:
    return float((np.ones((64, 64)) @ np.ones((64, 64)))[0, 0])


def set_blas_threads(threads: int) -> None:
    for library in threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers:
        library.set_num_threads(threads)
        getattr(library, "clear_controlling_thread", int)()


@pytest.fixture(autouse=True)
def _several_threads() -> Iterator[None]:
    usual = blas_threads()
    set_blas_threads(BEFORE)
    try:
        yield
        assert blas_threads() == BEFORE
    finally:
        set_blas_threads(usual)


DATASETS = {
    "thread": Dataset.range(4).map(blas_threads),
    "inline": Dataset.range(4).map(blas_threads, executor="inline"),
    "flat_map": Dataset.range(4).flat_map(listed),
    "collate": Dataset.range(4).batch(1, collate=blas_threads),
    "process": Dataset.range(4).map(blas_threads, executor="process", concurrency=1),
    "flat_map in processes": Dataset.range(4).flat_map(listed, executor="process"),
    "subprocess": Dataset.range(4).map(blas_threads).in_subprocess(),
}


@pytest.mark.parametrize("name", DATASETS)
def test_functions_get_no_more_threads(name: str) -> None:
    with DATASETS[name].open(native_threads=1) as loader:
        assert list(loader) == [1, 1, 1, 1]
    assert blas_threads() == BEFORE


def test_the_limit_is_an_option_of_a_dataset() -> None:
    dataset = Dataset.range(2).map(blas_threads).with_options(native_threads=2)
    assert list(dataset) == [2, 2]
    assert list(dataset.open(native_threads=1)) == [1, 1]
    assert list(dataset.open(native_threads=None)) == [BEFORE, BEFORE]


def test_a_limit_never_raises_the_number_of_threads() -> None:
    assert list(Dataset.range(2).map(blas_threads).open(native_threads=64)) == [BEFORE, BEFORE]


@pytest.mark.parametrize("first_to_close", [0, 1])
def test_the_lowest_limit_of_several_loaders_holds(first_to_close: int) -> None:
    dataset = Dataset.range(10).map(blas_threads, executor="inline").prefetch(1)
    loaders = [dataset.open(native_threads=most) for most in (1, 2)]
    assert next(loaders[0]) == 1
    next(loaders[1])
    assert blas_threads() == 1
    loaders[first_to_close].close()
    assert blas_threads() == [2, 1][first_to_close]
    loaders[1 - first_to_close].close()
    assert blas_threads() == BEFORE


def declared_threads(number: Any) -> list[int]:
    return [int(os.environ["OMP_NUM_THREADS"])]


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(2).map(declared_threads, executor="process", concurrency=1).map(lambda found: found[0]),
        Dataset.range(2).flat_map(declared_threads, executor="process"),
        Dataset.range(2).flat_map(declared_threads).in_subprocess(),
    ],
    ids=["map", "flat_map", "subprocess"],
)
def test_new_processes_get_no_more_threads_than_cpus(dataset: Dataset[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert list(dataset.open(native_threads=1 << 20)) == [cpu_count()] * 2


def test_an_error_restores_the_number_of_threads() -> None:
    def fails(number: Any) -> Any:
        raise ValueError(f"with {blas_threads()} threads")

    with pytest.raises(ValueError, match="with 1 threads"):
        list(Dataset.range(4).map(fails).open(native_threads=1))
    assert blas_threads() == BEFORE


def test_a_loader_that_is_left_early_restores_the_number_of_threads() -> None:
    with Dataset.range(1000).map(blas_threads).open(native_threads=1) as loader:
        assert next(loader) == 1
    assert blas_threads() == BEFORE


def test_results_and_order_do_not_depend_on_the_limit() -> None:
    products = Dataset.range(20).map(product, concurrency=2)
    assert list(products.open(native_threads=1)) == list(products) == [64.0] * 20


def test_a_limit_that_the_program_holds_itself_has_precedence() -> None:
    with threadpoolctl.threadpool_limits(2, "blas"):
        assert list(Dataset.range(2).map(blas_threads).open(native_threads=1)) == [2, 2]
        assert blas_threads() == 2


def test_the_program_can_set_a_limit_while_a_loader_runs() -> None:
    with Dataset.range(1000).map(blas_threads).open(native_threads=2) as loader:
        assert next(loader) == 2
        with threadpoolctl.threadpool_limits(1, "blas"):
            assert blas_threads() == 1
        assert blas_threads() == 2


def test_debug_mode_does_not_limit_the_thread_of_the_consumer() -> None:
    assert list(Dataset.range(2).map(blas_threads).debug(native_threads=1)) == [BEFORE, BEFORE]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True, 2**70], ids=str)
def test_a_wrong_limit_is_refused(wrong: Any) -> None:
    with pytest.raises(PlanError, match="native_threads must be"):
        Dataset.range(2).open(native_threads=wrong)
    with pytest.raises(PlanError, match="native_threads must be"):
        Dataset.range(2).with_options(native_threads=wrong)


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = threading.active_count()
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[threads\]"):
        Dataset.range(2).open(native_threads=1)
    assert threading.active_count() == threads


def test_new_processes_keep_lower_limits_of_their_environment() -> None:
    given = {"OMP_NUM_THREADS": "1,2", "MKL_NUM_THREADS": "9", "OPENBLAS_NUM_THREADS": "", "PATH": "/bin"}
    found = limited_environment(1, given)
    assert found is not None
    assert found["OMP_NUM_THREADS"] == "1,2"
    assert {found[name] for name in ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")} == {"1"}
    assert found["PATH"] == "/bin"
    assert limited_environment(None, given) is None
