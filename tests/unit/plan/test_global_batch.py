"""Ranks of another number that keep the global batch size may have batches of another size."""

from __future__ import annotations

from typing import Any

import pytest

from aiostream_data import Dataset, StateMismatchError


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
