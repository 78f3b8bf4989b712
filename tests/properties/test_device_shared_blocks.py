"""Batches copied from blocks that another process writes again, over a device that is as late as allowed.

The other process is the far end of a real link, which writes every block again as soon as it comes back.
"""

from __future__ import annotations

import random
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from thread_child import ThreadChild

from aiostream_data import Dataset
from aiostream_data._engine.processes import process_handle as hosting_process
from aiostream_data._engine.stages.to_device import device_opening
from aiostream_data.device import stage as device_stage
from aiostream_data.device.backend import Mark
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.layout import TakenApart
from aiostream_data.device.shared_slots import IN_PLACE_NBYTES, SharedSlots, Transfer
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import DeviceError
from aiostream_data.executors.exchange import linked
from aiostream_data.executors.mapping import mapping_of
from aiostream_data.testing.adversarial import AdversarialBackend

BATCHES = 30
MIB = 1 << 20


def batch_of(number: int, growing: bool) -> dict[str, Any]:
    rows = IN_PLACE_NBYTES // 4 + (growing * (number % 5) << 13)
    return {
        "x": np.full((rows, 2), number, np.int32),
        "small": np.full(8, number, np.int16),
        "y": np.full(rows, number, np.float32),
        "n": number,
    }


def is_right(batch: dict[str, Any], number: int) -> bool:
    return all(bool((batch[name] == number).all()) for name in ("x", "small", "y", "n"))


class Source:
    """Sends numbered batches over a link whose blocks are few, and written again at once."""

    def __init__(self, growing: bool) -> None:
        self._growing = growing
        self.here, self.there = linked(2 * MIB)
        self.sent = 0

    def next(self) -> dict[str, Any]:
        self.here.send(batch_of(self.sent, self._growing))
        self.sent += 1
        received = self.there.receive()
        received.lease.release()
        message: dict[str, Any] = received.message
        return message

    def close(self) -> None:
        self.here.close()
        self.there.close()


def wrong_batches(
    backend: AdversarialBackend, seed: int, *, growing: bool = False, ends_at: int = BATCHES
) -> tuple[list[int], DeviceStage]:
    """Send batches through a stage and look at each on the consumer's stream; return the torn ones, and the stage.

    Args:
        ends_at: The link ends behind that batch, and what follows is made in this process.
    """
    order = random.Random(seed)
    wrong: list[int] = []
    held: deque[tuple[int, DeviceBatch]] = deque()

    def look(batch: dict[str, Any], number: int) -> bool:
        if not is_right(batch, number):
            wrong.append(number)
        return True  # the step is done

    with ExitStack() as opened:
        source = Source(growing)
        opened.callback(source.close)
        stage = DeviceStage(backend, host_slots=2, device_slots=3, find_shared=mapping_of)
        opened.callback(stage.close)
        waiting: dict[str, Any] | None = None
        number = 0
        while number < BATCHES or held:
            if number < BATCHES and order.random() < 0.6:
                if waiting is None and number == ends_at:
                    source.close()
                if waiting is None:
                    waiting = source.next() if number < ends_at else batch_of(number, growing)
                sent = stage.put(waiting, timeout_s=0)
                if sent is not None:
                    held.append((number, sent))
                    waiting, number = None, number + 1
            elif held:
                taken_number, batch = held.popleft()
                backend.current = order.choice(backend.consumers)
                if order.random() < 0.1:
                    batch.discard()
                    continue
                backend.enqueue(backend.current, partial(look, batch.materialise(), taken_number))
        backend.settle()
    return wrong, stage


class JoinsNothing(AdversarialBackend):
    """A block goes back while it is still read."""

    def join(self, mark: Mark) -> None:
        return


class ReturnsAtOnce(SharedSlots):
    """The batch's arrays are let go of as soon as its copies are enqueued."""

    def transfer(self, parts: TakenApart, lease: object = None) -> Transfer:
        transfer = super().transfer(parts, lease)
        if transfer.lent is not None:
            transfer.lent.end()
        return replace(transfer, lent=None)


class DisownsAtOnce(SharedSlots):
    """Blocks whose owner has gone are given up whoever reads them."""

    def _give_up_retired(self) -> None:
        for key, adopted in list(self._adopted.items()):
            if adopted.memory.retired:
                self._give_up(key)

    def transfer(self, parts: TakenApart, lease: object = None) -> Transfer:
        self._give_up_retired()
        return super().transfer(parts, lease)


@pytest.mark.parametrize("growing", [False, True])
def test_no_schedule_of_the_device_tears_a_batch_that_is_copied_from_where_it_was_written(growing: bool) -> None:
    for seed in range(40):
        backend = AdversarialBackend(seed)
        wrong, stage = wrong_batches(backend, seed, growing=growing)
        assert wrong == [], f"seed {seed}"
        assert backend.violations == [], f"seed {seed}"
        stats = stage.stats().ring.shared
        assert stats.in_place_nbytes > 0
        assert stats.host_copies == 0
        assert stats.adopted < BATCHES, "blocks were used again, or the test would test nothing"


def image(number: int) -> NDArray[Any]:
    return np.full((64, 64, 3), number, np.uint8)


def test_no_batch_of_a_whole_loader_whose_process_fills_the_blocks_is_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting_process, "Child", ThreadChild)
    rows, size = 120, 8
    for seed in range(4):
        backend = AdversarialBackend(seed)
        monkeypatch.setattr(device_opening, "open_backend", lambda *_, backend=backend, **__: backend)
        wrong: list[int] = []

        def look(first: int, images: NDArray[Any], wrong: list[int] = wrong) -> None:
            if not (images == np.arange(first, first + len(images))[:, None, None, None]).all():
                wrong.append(first)

        dataset = Dataset.range(rows).map(image).batch(size).in_subprocess().to_device("cpu", depth=2)
        with dataset.open() as loader:
            for number, batch in enumerate(loader):
                backend.launch(backend.current, partial(look, number * size), batch, turns=2)
            (copies,) = loader.stats().devices
        backend.settle()
        assert wrong == []
        assert backend.violations == []
        assert copies.in_place_nbytes == rows * 64 * 64 * 3


@pytest.mark.parametrize("ends_at", [1, 7])
def test_a_process_that_ends_while_its_blocks_are_read_tears_nothing(ends_at: int) -> None:
    for seed in range(20):
        backend = AdversarialBackend(seed)
        wrong, _ = wrong_batches(backend, seed, ends_at=ends_at)
        assert wrong == [], f"seed {seed}"
        assert backend.violations == [], f"seed {seed}"


def test_giving_a_block_back_before_its_copy_was_joined_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_stage, "SharedSlots", ReturnsAtOnce)
    caught = sum(bool(wrong_batches(AdversarialBackend(seed), seed)[0]) for seed in range(15))
    assert caught >= 10


def test_joining_nothing_is_caught() -> None:
    caught = sum(bool(wrong_batches(JoinsNothing(seed), seed)[0]) for seed in range(15))
    assert caught >= 10


def test_disowning_a_block_that_a_copy_reads_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_stage, "SharedSlots", DisownsAtOnce)
    caught = 0
    for seed in range(20):
        backend = AdversarialBackend(seed)
        wrong_batches(backend, seed, ends_at=7)
        caught += bool(backend.violations)
    assert caught >= 4


@pytest.mark.filterwarnings("ignore:device stage on adversarial:ResourceWarning")
def test_a_device_failing_at_any_call_raises_and_never_hangs() -> None:
    for call in range(0, 90, 3):
        backend = AdversarialBackend(1, fail_at_call=call)
        with pytest.raises(DeviceError):
            wrong_batches(backend, 1)
