"""What a plan declares of slots, held against what its stage takes: where the device is the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset

ROWS = 50
COLUMNS = {
    "image": np.zeros((ROWS, 9, 7, 3), np.uint8),
    "label": np.zeros(ROWS, np.int64),
    "weight": np.zeros(ROWS, np.float32),
    "mask": np.zeros((ROWS, 13), np.bool_),
}
BATCHES = Dataset.from_tensor_slices(COLUMNS).batch(8)

PLANS: dict[str, Dataset[Any]] = {
    "one leaf": Dataset.range(ROWS).batch(8).to_device("cpu"),
    "many leaves, the last batch smaller": BATCHES.to_device("cpu", depth=2),
    "no smaller batch": Dataset.from_tensor_slices(COLUMNS).batch(8, drop_remainder=True).to_device("cpu", depth=1),
    "cast": BATCHES.to_device("cpu", transform=asd.ImageCast(dtype="float16", mean=0.5, std=0.25)),
    "cast, cut and mirrored": BATCHES.to_device("cpu", transform=asd.ImageCast(crop=(5, 5), flip="random")),
    "leased": BATCHES.to_device("cpu", handoff="lease"),
}


@pytest.mark.parametrize("plan", PLANS)
def test_r50_slots_take_no_more_than_was_declared_and_not_much_less(plan: str) -> None:
    dataset = PLANS[plan]
    bound = dataset.memory_bound()
    assert bound.slot_nbytes is not None
    assert bound.device_nbytes is not None
    with dataset.open(seed=1) as loader:
        for batch in loader:
            if not isinstance(batch, (dict, np.ndarray)):
                batch.release()
        (taken,) = loader.stats().devices
    declared = bound.device_slots * bound.slot_nbytes
    assert declared / 2 < taken.host_nbytes <= declared
    assert declared / 2 < taken.device_nbytes <= declared == bound.device_nbytes


@pytest.mark.parametrize("plan", ["many leaves, the last batch smaller", "cast", "cast, cut and mirrored"])
def test_r50_a_batch_takes_no_more_than_was_declared_and_not_much_less(plan: str) -> None:
    dataset = PLANS[plan]
    declared = dataset.memory_bound().taken_nbytes
    assert declared is not None
    with dataset.open(seed=1) as loader:
        largest = max(sum(leaf.nbytes for leaf in batch.values()) for batch in loader)
    assert declared / 2 < largest <= declared


def test_a_lease_takes_nothing_beside_the_slots() -> None:
    assert PLANS["leased"].memory_bound().taken_nbytes == 0
