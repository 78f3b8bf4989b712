"""Streams of consumers that CUDA knows otherwise than by a lasting handle, and exports that must wait for one."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCuda, Misuse, install
from fake_integration import use_library
from fake_jax import fake_jax
from fake_torch import fake_torch

import aiostream_data as asd
from aiostream_data.device.cuda_captures import exchange_mode
from aiostream_data.device.cuda_events import record_event
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.handover import FrameworkName, HandOff, HandOver
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import DeviceMemoryError, PlanError

IMAGES = np.arange(8 * 4 * 4 * 3, dtype=np.uint8).reshape(8, 4, 4, 3)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install(monkeypatch, FakeCuda(devices=2))


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = fake_jax(gpus=2)
    use_library(monkeypatch, "jax", module)
    return module


def stage_of(handoff: HandOff, framework: FrameworkName | None = None, device: str = "cuda:1") -> DeviceStage:
    return DeviceStage(open_backend(device), device_slots=2, hand_over=HandOver(handoff=handoff, framework=framework))


def handed_over(stage: DeviceStage, number: int) -> Any:
    batch = stage.put({"x": np.full(4, number)}, timeout_s=5)
    assert batch is not None
    return batch.hand_over()


def join_all(stage: DeviceStage) -> None:
    while stage._ring.join_oldest():
        pass


# -- the default stream of a thread


def test_a_batch_is_not_lent_to_a_stream_that_only_its_thread_can_name(fake: FakeCuda) -> None:
    fake.own_streams = True
    with stage_of("lease") as stage:
        batch = handed_over(stage, 5)
        for use in (batch.arrays, batch.cupy, lambda: batch.dlpack()["x"].__dlpack__(stream=2)):
            with pytest.raises(PlanError, match="per-thread default stream"):
                use()
        giving = threading.Thread(target=batch.release)  # where a mark on "stream 2" is one on another stream
        giving.start()
        giving.join()
        assert stage.has_device_slot()


def test_a_batch_is_copied_on_a_stream_that_only_its_thread_can_name(fake: FakeCuda) -> None:
    fake.own_streams = True
    with stage_of("copy") as stage:
        for number in range(5):
            assert (handed_over(stage, number)["x"] == number).all()
    assert ("memcpyAsync", 32, 3, 2) in fake.log


def test_the_stand_in_tells_of_a_mark_on_the_stream_of_another_thread(fake: FakeCuda) -> None:
    event = sys.modules["cupy.cuda"].Event(block=True, disable_timing=True)
    with pytest.raises(Misuse, match="enqueued nothing"):
        fake.record(event.ptr, 2)


# -- streams that are destroyed


def test_the_stream_of_a_lease_lives_until_the_batch_is_given_back(fake: FakeCuda) -> None:
    cuda: Any = sys.modules["cupy.cuda"]
    with stage_of("lease", device="cuda:0") as stage:
        for use in ("arrays", "import"):
            batch = handed_over(stage, 5)
            with cuda.Stream() as stream:
                if use == "arrays":
                    batch.arrays()
                else:
                    batch.dlpack()["x"].__dlpack__(stream=stream.ptr)
            handle = stream.ptr
            del stream
            gc.collect()
            assert handle not in fake.destroyed
            batch.release()
            gc.collect()
            assert handle in fake.destroyed


def test_a_stream_of_pytorch_that_an_importer_names_lives_as_long_as_the_lease(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = fake_torch(gpus=2)
    torch.cuda.is_initialized = lambda: True
    monkeypatch.setitem(sys.modules, "torch", torch)
    with stage_of("lease") as stage:
        batch = handed_over(stage, 5)
        batch.dlpack()["x"].__dlpack__(stream=21)
        assert isinstance(batch, DeviceBatch)
        assert batch._lease is not None
        assert batch._lease.streams[21].owner.cuda_stream == 21
        batch.release()


def test_the_stand_in_tells_of_a_stream_that_is_no_more(fake: FakeCuda) -> None:
    cuda: Any = sys.modules["cupy.cuda"]
    stream, event = cuda.Stream(), cuda.Event(block=True, disable_timing=True)
    handle = stream.ptr
    del stream
    gc.collect()
    with pytest.raises(Misuse, match="was destroyed"):
        fake.record(event.ptr, handle)


# -- what JAX gets


def test_what_was_cast_for_jax_is_exported_behind_the_stream_that_casts_it(fake: FakeCuda, jax: Any) -> None:
    cast = asd.ImageCast(dtype="float32", scale=1, layout="NHWC")
    dataset = asd.Dataset.from_tensor_slices({"image": IMAGES}).batch(4)
    with dataset.to_device("cuda:1", framework="jax", transform=cast).open() as loader:
        found = [batch["image"] for batch in loader]
    assert fake.current_device == 0
    np.testing.assert_array_equal(np.concatenate(found), IMAGES.astype(np.float32))
    waits = [entry[1] for entry in fake.log if entry[0] == "streamWaitEvent"]
    assert waits.count(jax.stream) == 2
    assert {entry[1] for entry in fake.log if entry[0] == "dlpack"} == {-1}, "CuPy orders nothing"


def test_the_stand_in_tells_of_an_importer_that_waits_for_another_gpu(fake: FakeCuda, jax: Any) -> None:
    backend = open_backend("cuda:1")
    array = backend.view(backend.consumer_block(32), 0, (4,), np.dtype(np.int64))
    with pytest.raises(Misuse, match="a stream of GPU 0, not 1"):
        jax.dlpack.from_dlpack(array)


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_jax_is_refused_a_batch_that_is_lent_and_pointed_to_a_copy(fake: FakeCuda, jax: Any, device: str) -> None:
    with stage_of("lease", device=device) as stage:
        batch = handed_over(stage, 5)
        with pytest.raises(PlanError, match=r"cannot import a leased batch into JAX.*batch\.jax\(\)"):
            jax.dlpack.from_dlpack(batch.dlpack()["x"])
        assert (batch.jax()["x"] == 5).all()


def test_a_copy_of_jax_without_room_loses_its_batch_and_no_other(fake: FakeCuda, jax: Any) -> None:
    with stage_of("copy", "jax") as stage:
        handed_over(stage, 0)
        jax.broken = RuntimeError("RESOURCE_EXHAUSTED: out of memory")
        with pytest.warns(RuntimeWarning, match="a batch was lost after its hand-over: JAX could not copy"):
            join_all(stage)
        jax.broken = False
        for number in range(1, 5):
            assert (handed_over(stage, number)["x"] == number).all()
            join_all(stage)


def test_a_cast_for_which_jax_has_no_room_comes_next_time(fake: FakeCuda, jax: Any) -> None:
    cast = asd.ImageCast(dtype="float32", scale=1, layout="NHWC")
    dataset = asd.Dataset.from_tensor_slices({"image": IMAGES}).batch(4)
    with dataset.to_device("cuda:1", framework="jax", transform=cast).open() as loader:
        jax.broken = RuntimeError("RESOURCE_EXHAUSTED: out of memory")
        with pytest.raises(DeviceMemoryError, match="JAX could not copy a batch"):
            next(iter(loader))
        jax.broken = False
        found = [batch["image"] for batch in loader]
    np.testing.assert_array_equal(np.concatenate(found), IMAGES.astype(np.float32))


def test_every_copy_of_jax_has_ended_when_one_has_failed(fake: FakeCuda, jax: Any) -> None:
    with stage_of("lease") as stage:
        batch = stage.put({"x": np.zeros(4), "y": np.zeros(4)}, timeout_s=5)
        assert batch is not None
        batch.lend()
        batch.jax()
        waited = jax.block_until_ready
        asked: list[int] = []

        def fails_once(arrays: list[Any]) -> list[Any]:
            asked.append(len(arrays))
            if len(asked) == 1:
                raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")
            return list(waited(arrays))

        jax.block_until_ready = fails_once
        with pytest.warns(RuntimeWarning, match="was lost"):
            join_all(stage)
        assert asked == [1, 1]


# -- the GIL

DRIVER = """
#include <time.h>
static volatile int gone_on = 0, entered = 0;
int is_entered(void) { return entered; }
void go_on(void) { gone_on = 1; }
int cuEventRecord(void *event, void *stream) {
    struct timespec pause = {0, 1000000};
    entered = 1;
    for (int turn = 0; turn < 10000 && !gone_on; ++turn) nanosleep(&pause, 0);
    return gone_on ? (int)(long)stream : 999;
}
static __thread int of_this_thread = 0;
int cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = of_this_thread;
    if (*mode > 2) return 1;
    of_this_thread = *mode;
    *mode = before;
    return 0;
}
"""


@pytest.fixture
def driver(tmp_path: Path) -> str:
    """A driver whose call that records an event comes back when a thread of Python's has gone on."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text(DRIVER)
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", str(source), "-o", str(library)], check=True, timeout=60)
    return str(library)


def with_version(version: str) -> Any:
    class CUDADriverError(RuntimeError):
        def __init__(self, status: int) -> None:
            super().__init__(f"status {status}")
            self.status = status

    calls = SimpleNamespace(eventRecord="CuPy's own")
    driver = SimpleNamespace(CUDADriverError=CUDADriverError)
    return SimpleNamespace(__version__=version, cuda=SimpleNamespace(runtime=calls, driver=driver))


def test_with_cupy_13_an_event_is_recorded_while_other_threads_of_python_go_on(driver: str) -> None:
    cupy: Any = with_version("13.6.0")
    library = ctypes.CDLL(driver)

    def callback() -> None:  # of the user's, which the driver runs while it holds a lock that recording needs
        while not library.is_entered():
            pass
        library.go_on()

    running = threading.Thread(target=callback)
    running.start()
    record_event(cupy, driver)(1, 0)
    running.join()
    with pytest.raises(RuntimeError, match="status 7"):
        record_event(cupy, driver)(1, 7)


@pytest.mark.parametrize(("version", "library"), [("14.0.0", "libc.so.6"), ("13.6.0", "no-such-driver.so")])
def test_elsewhere_cupys_own_call_records_events(version: str, library: str) -> None:
    cupy: Any = with_version(version)
    record: object = record_event(cupy, library)
    assert record == "CuPy's own"


def test_the_driver_keeps_for_each_thread_what_captures_of_others_mean_for_it(driver: str) -> None:
    exchange = exchange_mode(driver)
    assert [exchange(1), exchange(2), exchange(0)] == [0, 1, 2]
    exchange(1)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(exchange, 1).result() == 0
    assert exchange(7) == 7, "a call that fails changes nothing"
    assert exchange(0) == 1


@pytest.mark.parametrize("library", ["libc.so.6", "no-such-driver.so"])
def test_without_the_drivers_function_the_setting_stays(library: str) -> None:
    assert exchange_mode(library)(1) == 1
