"""R38: page-locked memory is what the slots need, to the byte, and stays so for 10,000 steps."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCuda, install

from aiostream_data.device.backend import HostBlock
from aiostream_data.device.host import HostBackend, aligned_bytes
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage

SLOTS = 3
BATCH_NBYTES = 7 * 1001 * 4  # far from any power of two


def batch_of(number: int) -> dict[str, Any]:
    return {"x": np.full((7, 1001), number, np.float32)}


class Pins(HostBackend):
    """Counts page-locked bytes as a system does: what was allocated and has not died."""

    def __init__(self) -> None:
        self.pinned_nbytes = 0

    def host_block(self, nbytes: int) -> HostBlock:
        return self._pinned(nbytes, nbytes)

    def _pinned(self, nbytes: int, taken: int) -> HostBlock:
        content = aligned_bytes(nbytes)
        self.pinned_nbytes += taken
        weakref.finalize(content, self._unpin, taken)
        return HostBlock(content)

    def _unpin(self, nbytes: int) -> None:
        self.pinned_nbytes -= nbytes


class PinsFromAPool(Pins):
    """Rounds up to a power of two, as CuPy's pool does."""

    def host_block(self, nbytes: int) -> HostBlock:
        return self._pinned(nbytes, 1 << (nbytes - 1).bit_length())


class PinsForEveryBatch(Pins):
    """Has one more block page-locked at every copy, and keeps it."""

    def h2d(self, *args: Any, **options: Any) -> None:
        super().h2d(*args, **options)
        self.pinned_nbytes += BATCH_NBYTES


def pinned_over(backend: Pins, steps: int) -> list[int]:
    """Return the page-locked bytes behind every step."""
    found = []
    with DeviceStage(backend, host_slots=SLOTS, device_slots=2) as stage:
        for number in range(steps):
            batch = stage.put(batch_of(number))
            assert batch is not None
            assert batch.materialise()["x"][3, 7] == number
            found.append(backend.pinned_nbytes)
        assert stage.stats().ring.host_nbytes == SLOTS * BATCH_NBYTES
    return found


def is_constant(found: list[int]) -> bool:
    return set(found[SLOTS:]) == {SLOTS * BATCH_NBYTES}


def test_r38_pinned_memory_is_slots_times_bytes_from_the_third_step_to_the_ten_thousandth() -> None:
    backend = Pins()
    assert is_constant(pinned_over(backend, 10_000))
    assert backend.pinned_nbytes == 0, "nothing stays page-locked behind the stage"


@pytest.mark.parametrize("wasteful", [PinsFromAPool, PinsForEveryBatch])
def test_r38_a_pool_or_a_leak_of_pinned_memory_would_be_noticed(wasteful: type[Pins]) -> None:
    assert not is_constant(pinned_over(wasteful(), 50))


def test_r38_what_cuda_is_asked_to_page_lock_is_just_that(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, FakeCuda())
    with DeviceStage(open_backend("cuda:0"), host_slots=SLOTS, device_slots=2) as stage:
        for number in range(200):
            batch = stage.put(batch_of(number))
            assert batch is not None
            batch.materialise()
    assert [entry[1] for entry in fake.log if entry[0] == "PinnedMemory"] == [BATCH_NBYTES] * SLOTS
    assert [entry[1] for entry in fake.log if entry[0] == "Memory"] == [BATCH_NBYTES] * 2
