"""The real ring over a device that is as late as allowed; then with one wait removed at a time."""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import Any

import numpy as np
import pytest

from aiostream_data.device.backend import Mark, StreamRef
from aiostream_data.device.device_slots import DeviceBatch
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import DeviceError
from aiostream_data.ragged import RaggedArray
from aiostream_data.testing.adversarial import AdversarialBackend

BATCHES = 40
SEEDS = range(200)


def batch_of(number: int, rows: int) -> dict[str, Any]:
    ragged = RaggedArray(np.full(rows, number, np.int64), np.array([0, rows // 2, rows]))
    return {"x": np.full((rows, 3), number, np.int32), "ragged": ragged, "n": number}


def is_right(batch: dict[str, Any], number: int) -> bool:
    return bool((batch["x"] == number).all() and (batch["ragged"].values == number).all() and batch["n"] == number)


def wrong_batches(backend: AdversarialBackend, seed: int, *, growing: bool = False) -> list[int]:
    """Send batches through a stage and look at each on the consumer's stream; return the torn ones."""
    order = random.Random(seed)
    wrong: list[int] = []
    held: deque[tuple[int, DeviceBatch]] = deque()

    def look(batch: dict[str, Any], number: int) -> bool:
        if not is_right(batch, number):
            wrong.append(number)
        return True  # the step is done

    with DeviceStage(backend, host_slots=2, device_slots=3) as stage:
        sent = 0
        while sent < BATCHES or held:
            if sent < BATCHES and order.random() < 0.6:
                batch = stage.put(batch_of(sent, 8 + 2 * sent * growing), timeout_s=0)
                if batch is not None:
                    held.append((sent, batch))
                    sent += 1
            elif held:
                number, batch = held.popleft()
                backend.current = order.choice(backend.consumers)
                if order.random() < 0.1:
                    batch.discard()
                    continue
                taken = batch.materialise()
                backend.enqueue(backend.current, partial(look, taken, number))
        backend.settle()
    return wrong


class JoinsNothing(AdversarialBackend):
    """A host slot is written again while it is still read."""

    def join(self, mark: Mark) -> None:
        return


class ConsumerDoesNotWait(AdversarialBackend):
    """A batch is taken out before it has arrived."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        if stream not in self.consumers:
            super().order_after(stream, mark)


class CopyDoesNotWait(AdversarialBackend):
    """A device slot is written again while a consumer still reads it."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        if stream in self.consumers:
            super().order_after(stream, mark)


class MarksTheWrongStream(AdversarialBackend):
    """The end of a consumer's reading is marked on a stream that it does not use."""

    def mark(self, stream: StreamRef) -> Mark:
        first, second = self.consumers
        return super().mark({first: second, second: first}.get(stream, stream))


class ForgetsToRecord(AdversarialBackend):
    """Waiting for a consumer's mark is waiting for nothing."""

    def mark(self, stream: StreamRef) -> Mark:
        mark = super().mark(stream)
        mark.event.latest.passed |= stream in self.consumers
        return mark


class RetiresEarly(AdversarialBackend):
    """An event is recorded anew while somebody is still to wait for it."""

    def mark(self, stream: StreamRef) -> Mark:
        mark = super().mark(stream)
        self.retire(mark)
        return mark


@pytest.mark.parametrize("growing", [False, True])
def test_no_schedule_of_the_device_tears_a_batch(growing: bool) -> None:
    for seed in SEEDS:
        backend = AdversarialBackend(seed)
        assert wrong_batches(backend, seed, growing=growing) == [], f"seed {seed}"
        assert backend.violations == [], f"seed {seed}"


@pytest.mark.parametrize(
    ("broken", "least_seeds_caught"),
    [
        (JoinsNothing, 50),
        (ConsumerDoesNotWait, 50),
        (CopyDoesNotWait, 40),
        (MarksTheWrongStream, 10),
        (ForgetsToRecord, 40),
    ],
)
def test_removing_any_wait_tears_batches(broken: type[AdversarialBackend], least_seeds_caught: int) -> None:
    caught = sum(bool(wrong_batches(broken(seed), seed)) for seed in range(60))
    assert caught >= least_seeds_caught


def test_letting_outgrown_memory_go_without_joining_is_caught() -> None:
    caught = 0
    for seed in range(50):
        backend = JoinsNothing(seed)
        wrong_batches(backend, seed, growing=True)
        caught += any("freed" in violation for violation in backend.violations)
    assert caught >= 10


def test_marks_that_are_given_back_while_in_use_are_caught() -> None:
    backend = RetiresEarly(0)
    wrong_batches(backend, 0)
    assert "a mark was retired twice" in backend.violations


def test_the_device_sees_no_new_memory_and_no_new_events_once_the_ring_is_warm() -> None:
    for seed in range(20):
        backend = AdversarialBackend(seed)
        with DeviceStage(backend, host_slots=2, device_slots=2) as stage:
            made = []
            for number in range(20):
                batch = stage.put(batch_of(number, 8))
                assert batch is not None
                batch.materialise()
                made.append((backend.blocks_made, backend.events_made))
        assert made[-1] == made[5]


@pytest.mark.filterwarnings("ignore:device stage on adversarial:ResourceWarning")
@pytest.mark.parametrize("seed", range(4))
def test_a_device_failing_at_any_call_raises_and_never_hangs(seed: int) -> None:
    for call in range(120):
        backend = AdversarialBackend(seed, fail_at_call=call)
        with pytest.raises(DeviceError):
            wrong_batches(backend, seed)
        assert call <= backend.calls <= call + 20, "a failed device is asked for nothing but its end"


def send_and_take(stage: DeviceStage, batches: int) -> None:
    """Take every batch out one behind its sending."""
    held: deque[DeviceBatch] = deque()
    for number in range(batches):
        sent = stage.put(batch_of(number, 8))
        assert sent is not None
        held.append(sent)
        if len(held) == 2:
            held.popleft().materialise()


def test_memory_under_a_failed_copy_is_kept_and_said() -> None:
    for call in range(10, 40):
        backend = AdversarialBackend(0, fail_at_call=call)
        stage = DeviceStage(backend)
        with pytest.raises(DeviceError):
            send_and_take(stage, 40)
        with pytest.raises(DeviceError):
            stage.put(batch_of(0, 8))
        with pytest.warns(ResourceWarning, match="bytes are not freed"):
            stage.close()
        backend.settle()
        assert backend.violations == []
        assert stage.stats().ring.abandoned_nbytes > 0
