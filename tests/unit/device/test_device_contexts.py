"""On which GPUs contexts are made, and what is current in a thread afterwards: over a stand-in for CUDA."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeDriverError
from fake_cupy import FakeCuda, install
from fake_integration import use_library
from fake_jax import fake_jax
from fake_torch import fake_torch

import aiostream_data as asd
from aiostream_data.device.select import open_backend
from aiostream_data.errors import DeviceError, DeviceUnavailableError

IMAGES = np.arange(16 * 4 * 4 * 3, dtype=np.uint8).reshape(16, 4, 4, 3)
CAST = asd.ImageCast(dtype="float32")


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install(monkeypatch, FakeCuda(devices=3))


def in_a_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a new thread, which has used no GPU yet."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(work).result()


def consume(device: str, **options: Any) -> None:
    """Take all batches of a loader, and close it."""
    dataset = asd.Dataset.from_tensor_slices({"image": IMAGES}).batch(4).to_device(device, depth=2, **options)
    with dataset.open() as loader:
        for batch in loader:
            if isinstance(batch, asd.DeviceBatch):
                with batch:
                    batch.arrays()
    gc.collect()


OPTIONS: dict[str, dict[str, Any]] = {
    "copies": {},
    "leases": {"handoff": "lease"},
    "casts": {"transform": CAST},
    "tensors": {"framework": "torch"},
    "JAX": {"framework": "jax"},
    "casts for JAX": {"framework": "jax", "transform": CAST},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_loader_makes_a_context_on_its_own_gpu_and_on_no_other(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    use_library(monkeypatch, "torch", fake_torch(gpus=3))
    use_library(monkeypatch, "jax", fake_jax(gpus=3))
    fake.exclusive = {0, 2}
    in_a_thread(lambda: consume("cuda:1", **options))
    assert fake.contexts == {1}
    assert {device for _, device in fake.freed_on} == {1}


def test_what_a_consumer_drops_late_is_freed_on_its_own_gpu(fake: FakeCuda) -> None:
    kept: list[Any] = []

    def keep() -> None:
        dataset = asd.Dataset.from_tensor_slices({"image": IMAGES}).batch(4).to_device("cuda:1", handoff="lease")
        with dataset.open() as loader:
            batch = next(iter(loader))
            kept.append(batch.arrays()["image"])

    in_a_thread(keep)
    freed = len(fake.freed_on)
    in_a_thread(kept.clear)
    gc.collect()
    assert ("Memory", 1) in fake.freed_on[freed:]
    assert fake.contexts == {1}


def test_a_thread_without_a_context_has_none_afterwards_where_its_gpu_is_another(fake: FakeCuda) -> None:
    def use() -> None:
        consume("cuda:1")
        assert fake.context_handle() == 0
        assert fake.current_device == 0

    in_a_thread(use)


def test_a_thread_without_a_context_keeps_the_one_of_its_own_gpu(fake: FakeCuda) -> None:
    def use() -> None:
        consume("cuda:0")
        assert fake.current_device == 0
        assert fake.context_handle() == 0x1000, "or CuPy, which notes that it was made, launches kernels without one"

    in_a_thread(use)
    assert fake.contexts == {0}


def test_a_thread_that_uses_another_gpu_uses_it_afterwards(fake: FakeCuda) -> None:
    def use() -> None:
        fake.current_device = 2
        consume("cuda:1")
        assert fake.current_device == 2

    in_a_thread(use)
    assert fake.contexts == {1, 2}


def test_a_failed_call_leaves_the_thread_as_it_was(fake: FakeCuda) -> None:
    backend = open_backend("cuda:1")
    stream = backend.stream()
    fake.current_device = 2
    fake.failing["memcpyAsync"] = 719
    with pytest.raises(DeviceError, match="cudaError719"):
        backend.h2d(backend.device_block(8), backend.host_block(8), 8, stream)
    assert fake.current_device == 2


def test_a_gpu_that_another_process_has_for_itself_is_told(fake: FakeCuda) -> None:
    fake.exclusive = {1}
    with pytest.raises(DeviceUnavailableError, match="in use by another program") as raised:
        open_backend("cuda:1")
    assert raised.value.status == 46
    assert fake.contexts == set()


def test_a_context_that_cannot_be_made_current_is_told_as_a_failure_of_the_device(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_backend("cuda:1")
    stream = backend.stream()

    def destroyed(handle: int) -> None:
        raise FakeDriverError(709)

    monkeypatch.setattr(sys.modules["cupy.cuda"].driver, "ctxSetCurrent", destroyed)
    with pytest.raises(DeviceError, match="reset the GPU or destroyed its context") as raised:
        backend.mark(stream)
    assert raised.value.status == 709
