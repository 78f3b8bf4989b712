"""What a profile says of copies: as many as there were, in no less time than the bus takes, and nothing without one."""

from __future__ import annotations

from typing import Any

import numpy as np

from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage

NBYTES = 8 << 20
FASTEST_GBPS = 500.0
"""No bus to a GPU is so fast; a figure above it means that the copy was not between the two events."""


def test_copies_are_timed_by_the_device_in_a_profile(cupy: Any, on_gpu: bool) -> None:
    with DeviceStage(open_backend("cuda:0"), host_slots=1, slot_nbytes=NBYTES, profile=True) as stage:
        for _ in range(5):
            batch = stage.put(np.zeros(NBYTES, np.uint8))
            assert batch is not None
            batch.materialise()
        copies = stage.copies()
    assert copies.timed_nbytes == 4 * NBYTES, "those whose slot was needed again"
    assert copies.copy_s is not None
    if on_gpu:
        assert copies.h2d_gbps is not None
        assert 0.1 < copies.h2d_gbps < FASTEST_GBPS
        assert copies.pinned


def test_without_a_profile_no_copy_is_timed(cupy: Any) -> None:
    with DeviceStage(open_backend("cuda:0")) as stage:
        for _ in range(5):
            batch = stage.put(np.zeros(1 << 10))
            assert batch is not None
            batch.materialise()
        assert (stage.copies().copy_s, stage.copies().timed_nbytes) == (None, 0)
