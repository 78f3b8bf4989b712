"""R41: copies of 10 ms behind kernels of 20 ms cost no time, with two slots on the device; on a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data.device.backend import StreamRef
from aiostream_data.device.stage import DeviceStage
from aiostream_data.testing.clocked_device import ClockedBackend

COPY_S, KERNEL_S = 0.010, 0.020
STEPS, WARM = 60, 5
BATCH = np.zeros(1000, np.int16)


def take_out(backend: ClockedBackend, batch: Any) -> None:
    batch.materialise()
    backend.launch(backend.current, KERNEL_S)


def lease(backend: ClockedBackend, batch: Any) -> None:
    batch.lend()
    with batch:
        batch.arrays()
        backend.launch(backend.current, KERNEL_S)


def write_into(backend: ClockedBackend, batch: Any) -> None:
    batch.lend()
    batch.into(np.zeros_like(BATCH))
    backend.launch(backend.current, KERNEL_S)


def step_s(backend: ClockedBackend, consume: Callable[[ClockedBackend, Any], None], device_slots: int = 2) -> float:
    """Return how long a step takes on the consumer's stream once the first have passed."""
    ends = []
    with DeviceStage(backend, host_slots=2, device_slots=device_slots) as stage:
        ahead = [stage.put(BATCH)]
        for _ in range(STEPS):
            if device_slots > 1:
                ahead.append(stage.put(BATCH, timeout_s=0))
            consume(backend, ahead.pop(0))
            if not ahead:
                ahead.append(stage.put(BATCH, timeout_s=0))
            ends.append(backend.over_at(backend.current))
    assert backend.device_nbytes == device_slots * BATCH.nbytes
    return (ends[-1] - ends[WARM]) / (STEPS - 1 - WARM)


@pytest.mark.parametrize("consume", [take_out, lease, write_into])
def test_r41_copies_hide_behind_kernels_with_two_slots(consume: Callable[[ClockedBackend, Any], None]) -> None:
    backend = ClockedBackend(h2d_s=COPY_S, d2d_s=0.0001, capacity_nbytes=2 * BATCH.nbytes)
    assert step_s(backend, consume) <= 0.021


def test_r41_one_slot_that_is_used_where_it_is_cannot_hide_a_copy() -> None:
    """The red control: the clock does tell."""
    assert step_s(ClockedBackend(h2d_s=COPY_S), lease, device_slots=1) == pytest.approx(COPY_S + KERNEL_S)


def test_r41_copies_on_the_consumers_stream_would_not_be_hidden() -> None:
    class OneStream(ClockedBackend):
        def stream(self) -> StreamRef:
            return self.current

    assert step_s(OneStream(h2d_s=COPY_S), take_out) == pytest.approx(COPY_S + KERNEL_S)


def test_r41_a_step_takes_as_long_as_a_copy_where_that_is_longer() -> None:
    assert step_s(ClockedBackend(h2d_s=0.050), take_out) == pytest.approx(0.050)
