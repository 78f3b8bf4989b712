"""Ranks of another number that keep the global batch size may have batches of another size."""

from __future__ import annotations

from typing import Any

import pytest

from aiostream_data import Dataset, StateMismatchError
from aiostream_data.plan.difference import difference
from aiostream_data.plan.fingerprint import Fingerprint, describe_plan
from aiostream_data.plan.global_batch import keeps_global_batch
from aiostream_data.plan.stored import stored


def dataset(batch_size: int) -> Dataset[Any]:
    return Dataset.range(96).shuffle(10).batch(batch_size)


@pytest.mark.parametrize(("ranks", "batch_size"), [(1, 8), (4, 2), (8, 1)])
def test_the_same_global_batches_go_on_on_other_ranks(ranks: int, batch_size: int) -> None:
    with dataset(4).open(seed=1, rank=0, world_size=2) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with dataset(batch_size).open(state, rank=0, world_size=ranks) as loader:
        assert len(next(iter(loader))) == batch_size


def test_another_global_batch_size_is_refused() -> None:
    with dataset(4).open(seed=1, rank=0, world_size=2) as loader:
        state = loader.state_dict()
    with pytest.raises(StateMismatchError, match="batch_size was 4, is 3"):
        dataset(3).open(state, rank=0, world_size=2)
    with dataset(3).open(state, rank=0, world_size=2, allow=["batch.batch_size"]) as loader:
        assert len(next(iter(loader))) == 3


def long_plan(batch_size: int, rows: int = 3) -> Dataset[Any]:
    numbers = Dataset.range(rows)
    for _ in range(6):
        numbers = numbers.concatenate(numbers)
    return numbers.batch(batch_size)


def test_the_same_global_batches_of_a_plan_too_long_for_a_state_go_on_on_other_ranks() -> None:
    with long_plan(4).open(seed=1, rank=0, world_size=2) as loader:
        next(iter(loader))
        state = loader.state_dict()
    assert "digest" in state["pipeline"]["plan"]
    with long_plan(8).open(state, rank=0, world_size=1) as loader:
        assert len(next(iter(loader))) == 8


def test_another_plan_too_long_for_a_state_is_refused_on_other_ranks() -> None:
    with long_plan(4).open(seed=1, rank=0, world_size=2) as loader:
        state = loader.state_dict()
    with pytest.raises(StateMismatchError, match="batch_size was 4, is 3"):
        long_plan(3).open(state, rank=0, world_size=2)
    with pytest.raises(StateMismatchError, match="only its hash"):
        long_plan(8, rows=4).open(state, rank=0, world_size=1)
    with pytest.raises(StateMismatchError, match="only its hash"):
        long_plan(8).batch(2).open(state, rank=0, world_size=1)


def test_the_global_batch_is_known_however_little_a_state_says_of_its_plan() -> None:
    def fingerprint(batch_size: int, ranks: int) -> Fingerprint:
        plan = Dataset.range(96).shuffle(10).batch(batch_size, drop_remainder=True).prefetch(2)
        return Fingerprint(plan=describe_plan(plan.plan), world_size=ranks)

    for limit in range(40, 1000, 20):
        state = stored(fingerprint(4, 2), limit)
        assert keeps_global_batch(state, fingerprint(8, 1))
        assert not keeps_global_batch(state, fingerprint(8, 2))
        found = [one.name for one in difference(state, fingerprint(8, 1))]
        assert found == ["batch.batch_size", "world_size"]
