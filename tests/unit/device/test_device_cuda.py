"""The CUDA backend over a fake CuPy: which calls it makes, and how it tells failures."""

from __future__ import annotations

import numpy as np
import pytest
from fake_cupy import FakeCuda, install

from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import DeviceError, DeviceLeafError, DeviceMemoryError, PinningError


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install(monkeypatch, FakeCuda())


def test_a_batch_goes_through_the_cupy_calls_and_comes_back_equal(fake: FakeCuda) -> None:
    with DeviceStage(open_backend("cuda:1"), host_slots=2, device_slots=2) as stage:
        for number in range(6):
            batch = stage.put({"x": np.full((5, 3), number, np.int16), "y": np.arange(number)})
            assert batch is not None
            taken = batch.materialise()
            assert (taken["x"] == number).all()
            assert taken["y"].tolist() == list(range(number))
        with pytest.raises(DeviceLeafError, match="cuda:1"):
            stage.put({"name": ["a"]})
    assert ("Stream", True) in fake.log
    assert {entry[2] for entry in fake.log if entry[0] in ("Memory", "PinnedMemory", "alloc")} == {1}
    assert fake.current_device == 0, "the caller's current device is left as it was"
    copies = [entry[2:] for entry in fake.log if entry[0] == "memcpyAsync"]
    assert copies[:2] == [(1, 77), (3, 0)], "to the device on our stream, out of the slot on the consumer's"
    assert [entry[1] for entry in fake.log if entry[0] == "streamWaitEvent"][:2] == [0, 0]


def test_events_are_recorded_anew_instead_of_made_anew(fake: FakeCuda) -> None:
    backend = open_backend("cuda:0")
    stream = backend.stream()
    for _ in range(5):
        backend.retire(backend.mark(stream))
    assert fake.names().count("Event") == 1
    assert fake.names().count("eventRecord") == 5


def test_full_device_memory_is_tried_again_after_the_pool_let_go(fake: FakeCuda) -> None:
    backend = open_backend("cuda:0")
    fake.failing["Memory"] = 2
    with pytest.raises(DeviceMemoryError, match="cuda:0: could not allocate 100 bytes for a device slot") as raised:
        backend.device_block(100)
    assert [name for name in fake.names() if name != "memGetInfo"][-3:] == ["Memory", "free_all_blocks", "Memory"]
    assert (raised.value.need, raised.value.free) == (100, 1 << 30)


def test_failures_of_the_device_are_told_as_ours_with_what_was_attempted(fake: FakeCuda) -> None:
    backend = open_backend("cuda:0")
    stream = backend.stream()
    mark = backend.mark(stream)
    fake.failing.update(synchronize=700, PinnedMemory=2)
    with pytest.raises(PinningError, match="page-lock 8 bytes"):
        backend.host_block(8)
    with pytest.raises(DeviceError, match="cuda:0: could not wait for an event: cudaError700: a kernel") as raised:
        backend.join(mark)
    assert raised.value.status == 700


@pytest.mark.parametrize(("status", "expected"), [(0, True), (600, False)])
def test_a_query_tells_done_from_not_ready(fake: FakeCuda, status: int, expected: bool) -> None:
    backend = open_backend("cuda:0")
    mark = backend.mark(backend.stream())
    fake.event_status = status
    assert backend.finished(mark) is expected


def test_a_query_never_takes_a_device_error_for_not_ready(fake: FakeCuda) -> None:
    backend = open_backend("cuda:0")
    mark = backend.mark(backend.stream())
    fake.event_status = 700
    with pytest.raises(DeviceError, match="CUDA status 700"):
        backend.finished(mark)
