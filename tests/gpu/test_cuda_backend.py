"""The CUDA backend: batches arrive bit for bit, and nothing is allocated once it is warm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aiostream_data.device.backend import DeviceBackend
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.rows.ragged import RaggedArray


@pytest.fixture
def backend(cupy: Any) -> Iterator[DeviceBackend]:
    opened = open_backend("cuda:0")
    yield opened
    opened.close()


def batch_of(number: int, rows: int = 64) -> dict[str, Any]:
    random_bits = np.random.default_rng(number)
    return {
        "image": random_bits.integers(0, 256, (rows, 32, 32, 3), np.uint8),
        "label": random_bits.integers(0, 1000, rows),
        "score": random_bits.standard_normal(rows).astype(np.float16),
        "words": RaggedArray(random_bits.integers(0, 9, rows), np.array([0, rows // 3, rows])),
        "none": np.zeros((0, 4), np.float32),
        "number": number,
    }


def assert_same(on_device: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in ("image", "label", "score", "none", "number"):
        np.testing.assert_array_equal(on_device[name].get(), expected[name], err_msg=name)
    np.testing.assert_array_equal(on_device["words"].values.get(), expected["words"].values)
    np.testing.assert_array_equal(on_device["words"].row_splits.get(), expected["words"].row_splits)


def test_batches_reach_the_gpu_bit_for_bit_as_cupy_arrays(cupy: Any, backend: DeviceBackend) -> None:
    with DeviceStage(backend) as stage:
        for number in range(8):
            batch = stage.put(batch_of(number))
            assert batch is not None
            taken = batch.materialise()
            assert all(isinstance(taken[name], cupy.ndarray) for name in ("image", "label", "number"))
            assert_same(taken, batch_of(number))


def test_a_warm_stage_allocates_nothing(cupy: Any, backend: DeviceBackend) -> None:
    with DeviceStage(backend, slot_nbytes=1 << 20) as stage:

        def send() -> None:
            batch = stage.put(np.zeros(1 << 10))
            assert batch is not None
            batch.materialise()

        for _ in range(6):
            send()
        cupy.cuda.Device(0).synchronize()
        free_before = cupy.cuda.runtime.memGetInfo()[0]
        for _ in range(50):
            send()
        cupy.cuda.Device(0).synchronize()
        assert cupy.cuda.runtime.memGetInfo()[0] == free_before
        assert stage.stats().ring.regrows == 0


def test_growing_batches_and_an_early_close_leave_taken_arrays_intact(backend: DeviceBackend) -> None:
    stage = DeviceStage(backend, device_slots=2)
    taken = []
    for number in range(1, 8):
        batch = stage.put(np.full(number << 16, number))
        assert batch is not None
        taken.append(batch.materialise())
    assert stage.put(np.zeros(8)) is not None, "left in its slot"
    stage.close()
    for number, array in enumerate(taken, start=1):
        assert (array.get() == number).all()
