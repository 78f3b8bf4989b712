"""A stream that is captured into a CUDA graph gets nothing of a batch, and gives none back: on reordered streams."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.handover import HandOver
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import GraphCaptureError
from aiostream_data.testing.adversarial import AdversarialBackend

VALUES = np.arange(64)


@pytest.fixture
def backend() -> Iterator[AdversarialBackend]:
    backend = AdversarialBackend(0)
    yield backend
    backend.captured.clear()
    backend.settle()
    assert backend.violations == []


def lent(stage: DeviceStage) -> DeviceBatch:
    batch = stage.put({"x": VALUES}, timeout_s=5)
    assert batch is not None
    batch.lend()
    return batch


def stage_over(backend: AdversarialBackend, device_slots: int = 1) -> DeviceStage:
    return DeviceStage(backend, device_slots=device_slots, hand_over=HandOver(handoff="lease"))


def has_room(stage: DeviceStage) -> bool:
    stage.reclaim()
    batch = stage.put({"x": VALUES}, timeout_s=0)
    if batch is not None:
        batch.discard()
    return batch is not None


def test_a_batch_whose_other_stream_is_captured_is_given_back_when_that_is_over(backend: AdversarialBackend) -> None:
    with stage_over(backend) as stage:
        batch = lent(stage)
        for stream in backend.consumers:
            backend.current = stream
            batch.arrays()
        backend.captured.append(backend.consumers[0])
        backend.current = backend.consumers[1]
        with pytest.raises(GraphCaptureError):
            batch.release()
        backend.captured.clear()
        batch.release()
        assert has_room(stage)


def test_batches_for_other_streams_come_during_a_capture(backend: AdversarialBackend) -> None:
    with stage_over(backend, device_slots=2) as stage:
        backend.captured.append(backend.consumers[0])
        backend.current = backend.consumers[1]
        for _ in range(6):
            batch = lent(stage)
            found = batch.arrays()["x"]
            backend.settle()
            assert (found == VALUES).all()
            batch.release()
