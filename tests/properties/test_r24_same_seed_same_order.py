"""R24: the elements and their order depend on seed and epoch, not on workers, executors, delays or chunks.

``ASD_EXAMPLES=10`` in the environment draws ten times as many plans.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import plan_functions as fn
import pytest
from drawn import Drawn
from drawn_cases import CASE_S, cases, ends_within, in_time
from hypothesis import given
from hypothesis import strategies as st
from plan_files import pattern
from plans import plans
from small_chunks import Recut, small_chunks

from aiostream_data import Dataset
from aiostream_data.plan.base import ExecutorName
from aiostream_data.testing.comparing import same


def augmented(delay_s: float, record: bytes, rng: np.random.Generator) -> dict[str, Any]:
    """Draw numbers for a record, after a random time that no seed knows of."""
    time.sleep(random.SystemRandom().random() * delay_s)
    return {"record": record, "draws": rng.normal(size=3), "crop": int(rng.integers(1 << 40))}


def augmenting(workers: int, executor: ExecutorName, delay_s: float) -> Dataset[Any]:
    function = partial(augmented, delay_s)
    records = Dataset.from_tfrecord(pattern(".tfrecord"), cycle_length=2, shuffle_shards=True)
    rows: Dataset[Any] = records.repeat(3).shuffle(16).map(function, concurrency=workers, executor=executor)
    batches: Dataset[Any] = rows.filter(fn.is_kept).interleave(fn.few_shuffled, cycle_length=3).zip(rows).batch(4)
    return batches


def elements(dataset: Any, seed: int, epoch: int = 0) -> list[Any]:
    with dataset.open(seed=seed, epoch=epoch) as loader:
        return list(loader)


@pytest.fixture(scope="module")
def reference() -> list[Any]:
    return elements(augmenting(1, "inline", 0.0), seed=11)


THREADS = [("thread", workers, delay_s) for workers in (1, 2, 7) for delay_s in (0.0, 0.003)]
PROCESSES = [("process", 1, 0.003), ("process", 2, 0.0), ("process", 7, 0.003)]
"""Fewer, as each of them takes half a second to start."""


@pytest.mark.parametrize(("executor", "workers", "delay_s"), [*THREADS, *PROCESSES])
def test_workers_executors_and_delays_change_nothing(
    reference: list[Any], executor: ExecutorName, workers: int, delay_s: float
) -> None:
    assert same(elements(augmenting(workers, executor, delay_s), seed=11), reference)


def test_another_seed_or_epoch_gives_another_order_and_other_draws(reference: list[Any]) -> None:
    dataset = augmenting(2, "thread", 0.0)
    others = [elements(dataset, seed=12), elements(dataset, seed=11, epoch=1), elements(dataset, seed=11, epoch=2)]
    for one, other in itertools.combinations([reference, *others], 2):
        assert leaves(one, "record") != leaves(other, "record")
        assert not set(leaves(one, "crop")) & set(leaves(other, "crop"))


def leaves(batches: list[Any], name: str) -> list[Any]:
    return [value for _, rows in batches for value in rows[name].tolist()]


ORDERS: dict[str, Callable[[Dataset[int]], Dataset[int]]] = {
    "shuffle": lambda numbers: numbers.shuffle(20),
    "shuffle with a seed": lambda numbers: numbers.shuffle(20, seed=5),
    "shuffle of batches": lambda numbers: numbers.batch(2).shuffle(20).unbatch(),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_epochs_of_repeat_differ_and_are_those_of_open(name: str) -> None:
    dataset = ORDERS[name](Dataset.range(40))
    epochs = [elements(dataset, seed=3, epoch=epoch) for epoch in range(3)]
    assert all(sorted(epoch) == list(range(40)) for epoch in epochs)
    assert all(one != other for one, other in itertools.combinations(epochs, 2))
    assert elements(dataset.repeat(3), seed=3) == [*epochs[0], *epochs[1], *epochs[2]]


def test_without_reshuffling_the_epochs_are_alike() -> None:
    dataset = Dataset.range(40).shuffle(20, reshuffle_each_iteration=False)
    assert elements(dataset.repeat(2), seed=3) == 2 * elements(dataset, seed=3, epoch=1)


@in_time
@cases(80)
@given(plans(), st.lists(st.tuples(st.integers(1, 12), st.integers(5, 300)), min_size=2, max_size=3), st.integers(0, 2))
def test_a_drawn_plan_gives_the_same_elements_however_the_work_is_cut(
    plan: Drawn, sizes: list[tuple[int, int]], epoch: int
) -> None:
    with ends_within(CASE_S, plan, sizes, epoch), small_chunks() as cut:
        runs = [elements(Recut(plan.dataset, cut, iter([size])), seed=4, epoch=epoch) for size in sizes]
    if plan.ordered:
        assert all(same(run, runs[0]) for run in runs)
    else:
        assert all(sorted(map(fn.number, run)) == sorted(map(fn.number, runs[0])) for run in runs)
