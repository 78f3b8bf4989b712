"""Whole loaders over the adversarial device: every hand-off, on streams of the consumer, by the engine's threads."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data import Dataset, ImageCast
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.testing.adversarial import AdversarialBackend

HandOff = Literal["copy", "lease", "into"]
ROWS, BATCH = 120, 4
SEEDS = range(15)


def numbered(number: int) -> dict[str, Any]:
    return {"x": np.full((3, 5), number, np.int32), "image": np.full((4, 4, 3), number, np.uint8)}


class Consumer:
    """Uses batches as a training loop does, on a stream per step, and has kernels note which were wrong.

    Attributes:
        wrong: Numbers of the batches that a kernel found torn.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.backend = AdversarialBackend(seed)
        self.wrong: list[int] = []
        self._chance = random.Random(seed)
        self._targets: dict[int, dict[str, Any]] = {}
        monkeypatch.setattr(
            "aiostream_data._engine.stages.to_device.device_opening.open_backend", lambda *_, **__: self.backend
        )

    def run(self, dataset: Dataset[Any], use: Callable[[int, Any], None]) -> None:
        with dataset.open() as loader:
            for number, batch in enumerate(loader):
                use(number, batch)
                del batch
                # Copies are taken out on the stream that is current when a batch is asked for.
                self.backend.current = self._chance.choice(self.backend.consumers)
        self.backend.settle()
        assert self.wrong == []
        assert self.backend.violations == []

    def look(self, number: int, arrays: dict[str, Any]) -> None:
        """Have a kernel compare what is at the addresses of a batch with what was sent."""
        rows = np.arange(number * BATCH, number * BATCH + BATCH)

        def kernel(x: NDArray[Any], image: NDArray[Any]) -> None:
            right = (x == rows[:, None, None]).all() and (image == rows[:, None, None, None]).all()
            self.wrong.extend([] if right else [number])

        turns = self._chance.randint(1, 4)
        self.backend.launch(self.backend.current, kernel, arrays["x"], arrays["image"], turns=turns)

    def take(self, number: int, batch: Any) -> None:
        self.look(number, batch)

    def lease(self, number: int, batch: DeviceBatch) -> None:
        with batch:
            self.look(number, batch.arrays())

    def forget(self, number: int, batch: DeviceBatch) -> None:
        """Use a batch and do not give it back, except the last, which outlives the loader's device stage."""
        self.look(number, batch.arrays())
        if number == ROWS // BATCH - 1:
            batch.release()

    def write(self, number: int, batch: DeviceBatch) -> None:
        stream = self.backend.current.ptr
        if stream not in self._targets:
            arrays = numbered(0)
            self._targets[stream] = {
                name: self._fixed((BATCH, *array.shape), array.dtype) for name, array in arrays.items()
            }
        self.look(number, batch.into(self._targets[stream]))

    def _fixed(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        nbytes = int(np.prod(shape)) * dtype.itemsize
        return self.backend.view(self.backend.consumer_block(nbytes), 0, shape, dtype)


def numbers(handoff: HandOff, **options: Any) -> Dataset[Any]:
    return Dataset.range(ROWS).map(numbered).batch(BATCH).to_device("cpu", depth=2, handoff=handoff, **options)


@pytest.mark.parametrize(
    ("handoff", "use"),
    [("copy", "take"), ("lease", "lease"), ("lease", "forget"), ("into", "write")],
)
def test_no_hand_off_tears_a_batch(monkeypatch: pytest.MonkeyPatch, handoff: HandOff, use: str) -> None:
    for seed in SEEDS:
        consumer = Consumer(monkeypatch, seed)
        consumer.run(numbers(handoff), getattr(consumer, use))


def test_casts_are_made_behind_the_arrival_of_their_images(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS:
        consumer = Consumer(monkeypatch, seed)
        consumer.run(numbers("copy", transform=ImageCast(scale=1, layout="NHWC", flip="random")), consumer.take)


def test_a_batch_may_be_used_when_its_loader_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS:
        consumer = Consumer(monkeypatch, seed)
        with numbers("lease").open() as loader:
            batch = next(iter(loader))
            consumer.look(0, batch.arrays())
        consumer.look(0, batch.arrays())
        batch.release()
        del batch
        consumer.backend.settle()
        assert consumer.wrong == []
        assert consumer.backend.violations == []
