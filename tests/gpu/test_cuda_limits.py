"""What a GPU stage does at its limits: full memory, capture, fork, closing, several at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.device.layout import take_apart
from aiostream_data.device.ring import SlotRing
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import DeviceMemoryError, ForkedPipelineError, GraphCaptureError, LoaderClosedError

Scaled = Callable[[Any, Any], Any]
MIB = 1 << 20


def send(stage: DeviceStage, values: Any) -> Any:
    batch = stage.put(values)
    assert batch is not None
    return batch.materialise()


def test_r38_pinned_memory_is_slots_times_bytes_from_the_third_step_on(cupy: Any, scaled: Scaled) -> None:
    nbytes = 3_000_064  # no power of two, nor near one
    held, source = set(), np.zeros(nbytes, np.uint8)
    with DeviceStage(open_backend("cuda:0"), host_slots=3, device_slots=3) as stage:
        for step in range(scaled(10_000, 20)):
            send(stage, source)
            if step >= 3:
                held.add(stage.stats().ring.host_nbytes)
    (pinned_nbytes,) = held
    assert pinned_nbytes % nbytes == 0
    assert pinned_nbytes <= 3 * nbytes


def test_r41_copies_hide_behind_work_that_takes_longer(cupy: Any, on_gpu: bool, scaled: Scaled) -> None:
    nbytes, steps = scaled(512 * MIB, 1 << 12), scaled(20, 3)
    matrix = cupy.asarray(np.random.default_rng(0).standard_normal((4096 if on_gpu else 8,) * 2, np.float32))
    product = cupy.empty(matrix.shape, np.float32)

    def work(count: int) -> None:
        for _ in range(count):
            cupy.dot(matrix, matrix, out=product)

    def seconds(step: Callable[[], object], times: int) -> float:
        cupy.cuda.runtime.deviceSynchronize()
        started = time.perf_counter()
        for _ in range(times):
            step()
        cupy.cuda.runtime.deviceSynchronize()
        return (time.perf_counter() - started) / times

    work(3)
    products = max(1, round(scaled(0.02, 1e-6) / seconds(lambda: work(1), 10)))
    alone_s = seconds(lambda: work(products), 5)
    backend = open_backend("cuda:0")
    ring = SlotRing(backend, host_slots=2, device_slots=2)
    layout = take_apart(np.empty(nbytes, np.uint8), "cuda:0", keeps_objects=False).layout

    def step() -> None:
        slot = ring.acquire()
        while slot is None:
            ring.join_oldest()
            slot = ring.acquire()
        ring.arrays(slot, layout)[0][:8] = 1  # the rest stays as it is, or filling would take longer than all else
        batch = ring.submit(slot, layout, [])
        assert batch is not None
        batch.materialise()
        work(products)

    for _ in range(3):
        step()
    together_s = seconds(step, steps)
    alone_s = max(alone_s, seconds(lambda: work(products), 5))  # the GPU may have become slower meanwhile
    assert ring.stats().device_nbytes == 2 * nbytes
    ring.close()
    backend.close()
    if on_gpu:
        assert together_s <= alone_s * 1.05


def test_a_device_that_is_nearly_full_gets_fewer_slots_and_a_full_one_an_error(
    cupy: Any, scaled: Scaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbytes = scaled(256 * MIB, 1 << 12)
    room = [0]
    real_memory = cupy.cuda.Memory

    def memory(asked: int) -> Any:
        if asked > room[0]:
            raise cupy.cuda.memory.OutOfMemoryError(asked, 0, 0)
        room[0] -= asked
        return real_memory(asked)

    monkeypatch.setattr(cupy.cuda, "Memory", memory)
    room[0] = 2 * nbytes + nbytes // 2
    with DeviceStage(open_backend("cuda:0"), device_slots=4) as stage:
        with pytest.warns(RuntimeWarning, match="for 4 device slots"):
            values = [send(stage, np.full(nbytes // 8, number)) for number in range(6)]
        assert all((array.get() == number).all() for number, array in enumerate(values))
        assert stage.stats().ring.device_slots == 2
    room[0] = nbytes // 2
    with DeviceStage(open_backend("cuda:0"), device_slots=4) as stage, pytest.raises(DeviceMemoryError):
        stage.put(np.zeros(nbytes, np.uint8))


def test_batches_arrive_while_another_thread_captures_a_graph(cupy: Any, scaled: Scaled) -> None:
    capturing = cupy.cuda.Stream(non_blocking=True)
    source, target = cupy.asarray(np.arange(1000)), cupy.empty((1000,), np.int64)
    runtime = cupy.cuda.runtime
    with DeviceStage(open_backend("cuda:0")) as stage:
        for number in range(6):
            send(stage, np.full(1000, number))
        taken: list[Any] = []

        def prefetch() -> None:
            own = cupy.cuda.Stream(non_blocking=True)
            with own:
                for number in range(scaled(200, 5)):
                    taken.append((number, send(stage, np.full(1000, number))))
                own.synchronize()

        thread = threading.Thread(target=prefetch)
        with capturing:
            capturing.begin_capture(runtime.streamCaptureModeThreadLocal)
            thread.start()
            kind = runtime.memcpyDeviceToDevice
            runtime.memcpyAsync(int(target.data.ptr), int(source.data.ptr), source.nbytes, kind, capturing.ptr)
            thread.join()
            graph = capturing.end_capture()
            graph.launch(capturing)
        capturing.synchronize()
        assert len(taken) == scaled(200, 5)
        assert all((values.get() == number).all() for number, values in taken)


@pytest.mark.parametrize("turns", [1, 20])
def test_a_loader_delivers_from_its_first_allocation_on_while_another_thread_captures_in_global_mode(
    cupy: Any, turns: int
) -> None:
    capturing, own = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    source, target = cupy.asarray(np.arange(1000)), cupy.zeros((1000,), np.int64)
    runtime = cupy.cuda.runtime
    taken: list[Any] = []

    def consume() -> None:
        dataset = asd.Dataset.range(1000 * turns).batch(1000).to_device("cuda:0", depth=2)
        with own, dataset.open() as loader:
            taken.extend(loader)

    thread = threading.Thread(target=consume)
    capturing.begin_capture(runtime.streamCaptureModeGlobal)
    thread.start()
    thread.join()
    kind = runtime.memcpyDeviceToDevice
    runtime.memcpyAsync(int(target.data.ptr), int(source.data.ptr), source.nbytes, kind, capturing.ptr)
    graph = capturing.end_capture()
    graph.launch(capturing)
    capturing.synchronize()
    own.synchronize()
    np.testing.assert_array_equal(target.get(), np.arange(1000))
    np.testing.assert_array_equal(np.concatenate([values.get() for values in taken]), np.arange(1000 * turns))


def test_a_graph_that_was_captured_once_works_on_every_batch_that_is_put_into_its_array(cupy: Any) -> None:
    runtime, stream = cupy.cuda.runtime, cupy.cuda.Stream(non_blocking=True)
    target, result = cupy.zeros((100,), np.int64), cupy.zeros((100,), np.int64)
    stream.begin_capture(runtime.streamCaptureModeThreadLocal)
    kind = runtime.memcpyDeviceToDevice
    runtime.memcpyAsync(int(result.data.ptr), int(target.data.ptr), target.nbytes, kind, stream.ptr)
    graph = stream.end_capture()
    batches = asd.Dataset.range(1000).batch(100).to_device("cuda:0", depth=2, handoff="into")
    seen = []
    with batches.open() as loader, stream:
        for batch in loader:
            batch.into(target)
            graph.launch(stream)
            stream.synchronize()
            seen.append(result.get())
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(1000))


def test_a_batch_is_not_taken_out_on_a_stream_that_is_captured_and_is_there_afterwards(cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with DeviceStage(open_backend("cuda:0")) as stage:
        batch = stage.put(np.arange(10))
        assert batch is not None
        with stream:
            stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
            with pytest.raises(GraphCaptureError):
                batch.materialise()
            stream.end_capture()
            taken = batch.materialise()
            stream.synchronize()
        assert taken.get().tolist() == list(range(10))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that fork and threads do not mix: the point
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX says so too
def test_a_forked_child_is_told_so_and_its_parent_goes_on(cupy: Any) -> None:
    with DeviceStage(open_backend("cuda:0")) as stage:
        batch = stage.put(np.arange(10))
        assert batch is not None
        child = os.fork()
        if child == 0:
            outcome = 1
            try:
                for call in (batch.materialise, lambda: stage.put(np.arange(10))):
                    with pytest.raises(ForkedPipelineError):
                        call()
                stage.close()
                outcome = 0
            finally:
                os._exit(outcome)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert batch.materialise().get().tolist() == list(range(10))


def test_closing_under_load_ends_every_put_within_seconds(cupy: Any, scaled: Scaled) -> None:
    stage = DeviceStage(open_backend("cuda:0"), host_slots=2, device_slots=2)
    ended: list[BaseException] = []
    taken: list[Any] = []
    going = threading.Event()

    def produce() -> None:
        try:
            for number in range(1_000_000):
                send(stage, np.full(scaled(1 << 20, 16), number))
                if number == 3:
                    going.set()
        except LoaderClosedError as error:
            ended.append(error)

    threads = [threading.Thread(target=produce) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert going.wait(30)
    taken.append(send(stage, np.full(100, 7)))
    started = time.monotonic()
    stage.close()
    for thread in threads:
        thread.join(10)
    assert time.monotonic() - started < 5
    assert len(ended) == 3
    assert (taken[0].get() == 7).all(), "what was taken out stays"


def test_two_stages_on_one_device_do_not_mix_their_batches(cupy: Any, scaled: Scaled) -> None:
    wrong: list[int] = []
    seen: list[int] = []

    def consume(first: int) -> None:
        with cupy.cuda.Stream(non_blocking=True) as own, DeviceStage(open_backend("cuda:0"), device_slots=2) as stage:
            taken = [(number, send(stage, np.full(1 << 12, number))) for number in range(first, first + scaled(200, 5))]
            own.synchronize()
            wrong.extend(number for number, values in taken if not (values.get() == number).all())
            seen.append(len(taken))

    threads = [threading.Thread(target=consume, args=(first,)) for first in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert seen == [scaled(200, 5)] * 2


STICKY = """
import sys, time, warnings
import cupy, numpy as np
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import DeviceError
warnings.simplefilter("ignore", ResourceWarning)
stage = DeviceStage(open_backend("cuda:0"))
stage.put(np.arange(10)).materialise()
kernel = cupy.RawKernel('extern "C" __global__ void spoil(long long* at) { at[threadIdx.x] = 1; }', "spoil")
kernel((1,), (32,), (np.uint64(8),))
raised = 0
for _ in range(20):
    try:
        stage.put(np.arange(10)).materialise()
    except DeviceError:
        raised += 1
    time.sleep(0.01)
started = time.monotonic()
stage.close()
took = time.monotonic() - started
print(raised, took)
sys.exit(0 if raised >= 15 and took < 5 else 1)
"""
"""A program that spoils its context, which it cannot get rid of, and goes on."""


def test_a_spoilt_device_raises_at_every_batch_and_closes_in_time(cupy: Any, on_gpu: bool) -> None:
    compile(STICKY, "sticky", "exec")
    if on_gpu:
        done = subprocess.run([sys.executable, "-c", STICKY], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
