"""The ring on real streams, with late consumers; then with one wait removed at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from late_consumers import BROKEN, NO_NUMBER, LateConsumers, Watched, torn_batches

from aiostream_data.device.cuda import CupyBackend
from aiostream_data.device.stage import DeviceStage

Scaled = Callable[[Any, Any], Any]

LATE_MS = 20.0
"""How late consumers of large batches are at most: 3 ms on average, several times what a host takes to fill a slot."""


def test_r39_no_batch_of_20_000_is_torn_by_consumers_that_are_late(cupy: Any, scaled: Scaled) -> None:
    assert torn_batches(cupy, CupyBackend(cupy, 0), scaled(20_000, 50)) == []


@pytest.mark.parametrize("seed", range(4))
def test_r39_nor_are_large_ones(cupy: Any, scaled: Scaled, seed: int) -> None:
    nbytes = scaled(16 << 20, 1 << 12)
    assert torn_batches(cupy, CupyBackend(cupy, 0), scaled(400, 10), nbytes=nbytes, seed=seed, late_ms=LATE_MS) == []


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: str(broken.__name__))
def test_removing_a_wait_tears_batches(cupy: Any, scaled: Scaled, on_gpu: bool, broken: type[Watched]) -> None:
    torn: list[int] = []
    for seed in range(8):
        nbytes = scaled(4 << 20, 1 << 12)
        torn = torn_batches(cupy, broken(cupy, 0), scaled(200, 10), nbytes=nbytes, seed=seed, late_ms=LATE_MS)
        if torn or not on_gpu:
            break
    assert bool(torn) is on_gpu, "the stand-in runs everything at once, and so forgives everything"


def test_a_batch_that_is_not_one_number_is_found_torn(cupy: Any) -> None:
    consumers = LateConsumers(cupy, 3, seed=0)
    with DeviceStage(CupyBackend(cupy, 0)) as stage:
        for number in (0, 1):
            values = cupy.asnumpy(cupy.arange(1000)) * number
            batch = stage.put(values)
            assert batch is not None
            consumers.look(number, batch)
        assert consumers.torn() == [1]
    assert consumers._found.get()[2].tolist() == [NO_NUMBER, -NO_NUMBER], "nobody looked at the third"
