"""Casting over a device that is as late as allowed: no schedule tears a batch, and a missing wait is seen."""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import Any

import numpy as np
import pytest

from aiostream_data.device.backend import Mark, StreamRef
from aiostream_data.device.cast_plan import with_cast
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.handover import HandOver
from aiostream_data.device.image_cast import ImageCast
from aiostream_data.device.stage import DeviceStage
from aiostream_data.testing.adversarial import AdversarialBackend

BATCHES = 30
CAST = ImageCast(dtype="float16", scale=1.0, flip=True, crop=(2, 4))


def batch_of(number: int) -> dict[str, Any]:
    return {"before": number, "image": np.full((5, 4, 4, 3), number, np.uint8), "after": np.full(3, number)}


def is_right(batch: dict[str, Any], number: int) -> bool:
    return bool(
        batch["image"].shape == (5, 3, 2, 4)
        and (batch["image"] == number).all()
        and batch["before"] == number
        and (batch["after"] == number).all()
    )


def targets() -> dict[str, Any]:
    """Return arrays that a batch fits into."""
    image, numbers = np.zeros((5, 3, 2, 4), np.float16), np.zeros(3, np.int64)
    return {"before": np.zeros((), np.int64), "image": image, "after": numbers}


def taken_out(batch: DeviceBatch) -> Any:
    """Return the arrays that a batch is on its way to, on the terms that it was sent on."""
    given = batch.hand_over()
    return given.into(targets()) if given is batch else given


def wrong_batches(backend: AdversarialBackend, seed: int, terms: HandOver | None = None) -> list[int]:
    """Send batches through a stage that casts, and look at each on the consumer's stream; return the torn ones."""
    order = random.Random(seed)
    wrong: list[int] = []
    held: deque[tuple[int, DeviceBatch]] = deque()

    def look(batch: dict[str, Any], number: int) -> bool:
        if not is_right(batch, number):
            wrong.append(number)
        return True

    with DeviceStage(backend, host_slots=2, device_slots=3, hand_over=terms) as stage:
        sent = 0
        while sent < BATCHES or held:
            if sent < BATCHES and order.random() < 0.6:
                prepare = partial(with_cast, cast=CAST, keys=None)
                batch = stage.put(batch_of(sent), timeout_s=0, prepare=prepare)
                if batch is not None:
                    held.append((sent, batch))
                    sent += 1
            elif held:
                number, batch = held.popleft()
                backend.current = order.choice(backend.consumers)
                backend.enqueue(backend.current, partial(look, taken_out(batch), number))
        backend.settle()
    return wrong


class ConsumerDoesNotWait(AdversarialBackend):
    """A batch is cast before it has arrived."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        if stream not in self.consumers:
            super().order_after(stream, mark)


class CopyDoesNotWait(AdversarialBackend):
    """A slot is written again while a cast still reads it."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        if stream in self.consumers:
            super().order_after(stream, mark)


def test_no_schedule_tears_a_batch_that_is_cast() -> None:
    for seed in range(80):
        backend = AdversarialBackend(seed)
        assert wrong_batches(backend, seed) == [], f"seed {seed}"
        assert backend.violations == [], f"seed {seed}"


def test_no_schedule_tears_a_batch_that_is_cast_into_arrays_that_stay() -> None:
    for seed in range(40):
        backend = AdversarialBackend(seed)
        assert wrong_batches(backend, seed, HandOver(handoff="into")) == [], f"seed {seed}"
        assert backend.violations == [], f"seed {seed}"


@pytest.mark.parametrize("broken", [ConsumerDoesNotWait, CopyDoesNotWait])
def test_casting_without_one_of_the_waits_is_seen(broken: type[AdversarialBackend]) -> None:
    caught = 0
    for seed in range(40):
        backend = broken(seed)
        caught += bool(wrong_batches(backend, seed) or backend.violations)
    assert caught >= 10


def test_casting_allocates_nothing_but_the_consumers_block_once_warm() -> None:
    backend = AdversarialBackend(0)
    made = []
    with DeviceStage(backend, host_slots=2, device_slots=2) as stage:
        for number in range(20):
            batch = stage.put(batch_of(number), prepare=partial(with_cast, cast=CAST, keys=None))
            assert batch is not None
            batch.materialise()
            made.append((backend.blocks_made, backend.events_made))
    assert made[-1] == made[5]
