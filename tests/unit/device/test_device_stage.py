from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from aiostream_data.device.backend import Mark
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.host import HostBackend
from aiostream_data.device.ring import SlotRing
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import (
    BatchReleasedError,
    DeviceMemoryError,
    ForkedPipelineError,
    LoaderClosedError,
    PlanError,
    SlotTooSmallError,
)
from aiostream_data.testing.adversarial import AdversarialBackend


def numbered(number: int, rows: int = 4) -> dict[str, Any]:
    return {"x": np.full((rows, 2), number), "name": [f"{number}"]}


def put(stage: DeviceStage, number: int, rows: int = 4) -> DeviceBatch:
    batch = stage.put(numbered(number, rows))
    assert batch is not None
    return batch


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def wait_for_a_waiter(stage: DeviceStage) -> None:
    """Return once a thread waits inside the stage: its lock has a waiter."""
    lock = stage._ring.state.lock
    while True:
        with lock:
            if lock._waiters:  # type: ignore[attr-defined]
                return


def test_batches_arrive_equal_in_order_and_owned_by_the_consumer() -> None:
    with DeviceStage(HostBackend(), host_slots=2, device_slots=2) as stage:
        taken = [put(stage, number).materialise() for number in range(10)]
    for number, batch in enumerate(taken):
        assert (batch["x"] == number).all()
        assert batch["name"] == [f"{number}"]
        batch["x"][:] = -1
    assert stage.stats().ring.batches == 10


def test_the_source_may_be_changed_as_soon_as_put_returns() -> None:
    source = numbered(1)
    with DeviceStage(HostBackend()) as stage:
        batch = stage.put(source)
        source["x"][:] = 99
        assert batch is not None
        assert (batch.materialise()["x"] == 1).all()


def test_no_more_batches_are_held_than_there_are_device_slots() -> None:
    with DeviceStage(HostBackend(), host_slots=2, device_slots=2) as stage:
        held = [put(stage, 0), put(stage, 1)]
        assert stage.put(numbered(2), timeout_s=0) is None
        held[0].materialise()
        assert stage.put(numbered(2), timeout_s=0) is not None


def test_a_put_that_waits_goes_on_when_a_batch_is_taken_out() -> None:
    with DeviceStage(HostBackend(), device_slots=1) as stage:
        first, later = put(stage, 0), []
        thread, raised = in_thread(lambda: later.append(put(stage, 1)))
        wait_for_a_waiter(stage)
        first.materialise()
        thread.join()
        assert not raised
        assert (later[0].materialise()["x"] == 1).all()
        waits = stage.stats().device_waits
        assert waits.count == 1
        assert waits.seconds > 0


def test_close_wakes_a_put_that_waits() -> None:
    stage = DeviceStage(HostBackend(), device_slots=1)
    put(stage, 0)
    thread, raised = in_thread(lambda: put(stage, 1))
    wait_for_a_waiter(stage)
    stage.close()
    thread.join()
    assert [type(error) for error in raised] == [LoaderClosedError]


def test_several_producers_and_a_consumer_lose_and_tear_nothing() -> None:
    producers, each = 3, 60
    arrived: list[DeviceBatch] = []
    ready = threading.Semaphore(0)

    with DeviceStage(HostBackend(), host_slots=2, device_slots=2) as stage:

        def produce(first: int) -> None:
            for number in range(first, first + each):
                arrived.append(put(stage, number, rows=500))
                ready.release()

        started = [in_thread(partial(produce, first * each)) for first in range(producers)]
        seen = []
        for _ in range(producers * each):
            assert ready.acquire(timeout=30)
            batch = arrived.pop(0).materialise()
            number = int(batch["name"][0])
            assert (batch["x"] == number).all()
            seen.append(number)
        for thread, raised in started:
            thread.join()
            assert not raised
    assert sorted(seen) == list(range(producers * each))


def test_a_batch_is_taken_out_once() -> None:
    with DeviceStage(HostBackend()) as stage:
        batch = put(stage, 0)
        batch.materialise()
        with pytest.raises(BatchReleasedError):
            batch.materialise()
        batch.discard()
        again = put(stage, 1)
        again.discard()
        again.discard()
        with pytest.raises(BatchReleasedError):
            again.materialise()
        assert len([put(stage, number) for number in range(3)]) == 3, "every slot is free again"


def test_a_batch_that_cannot_be_written_costs_no_slot() -> None:
    with DeviceStage(HostBackend(), host_slots=1, slot_nbytes=64) as stage:
        for _ in range(3):
            with pytest.raises(SlotTooSmallError, match="80 bytes does not fit into device slots of 64 bytes"):
                stage.put(np.zeros(10))
        batch = stage.put(np.ones(8))
        assert batch is not None
        assert batch.materialise().sum() == 8


def test_larger_batches_make_slots_grow_and_that_is_counted() -> None:
    with DeviceStage(HostBackend(), host_slots=1, device_slots=1) as stage:
        for rows in (2, 8, 9, 1):
            batch = stage.put(np.full(rows, rows))
            assert batch is not None
            assert (batch.materialise() == rows).all()
        stats = stage.stats().ring
    assert stats.regrows == 4  # the host slot and the device slot: to 8 rows, then to 12
    assert stats.host_nbytes == stats.device_nbytes == 96


def test_a_device_without_room_for_all_slots_works_with_fewer() -> None:
    backend = AdversarialBackend(0, capacity_nbytes=1500)
    with DeviceStage(backend, device_slots=4) as stage:
        held = [stage.put(np.full(64, number)) for number in range(2)]
        with pytest.warns(RuntimeWarning, match="not enough memory on adversarial for 4 device slots of 512 bytes"):
            assert stage.put(np.zeros(64), timeout_s=0) is None
        for number in range(2, 12):
            oldest = held.pop(0)
            assert oldest is not None
            oldest.materialise()
            held.append(stage.put(np.full(64, number)))
        assert stage.stats().ring.device_slots == 2


def test_a_device_without_room_for_one_slot_says_so() -> None:
    with DeviceStage(AdversarialBackend(0, capacity_nbytes=100)) as stage:
        with pytest.raises(DeviceMemoryError, match="adversarial for one device slot of 800 bytes"):
            stage.put(np.zeros(100))
        assert stage.put(np.zeros(10)) is not None


def test_a_consumer_without_memory_keeps_its_batch() -> None:
    class Full(HostBackend):
        full = True

        def consumer_block(self, nbytes: int) -> Any:
            if self.full:
                raise DeviceMemoryError("full")
            return super().consumer_block(nbytes)

    backend = Full()
    with DeviceStage(backend) as stage:
        batch = put(stage, 7)
        with pytest.raises(DeviceMemoryError):
            batch.materialise()
        backend.full = False
        assert (batch.materialise()["x"] == 7).all()


def test_closing_is_idempotent_and_final() -> None:
    stage = DeviceStage(HostBackend())
    batch, taken = put(stage, 0), put(stage, 1).materialise()
    stage.close()
    stage.close()
    batch.discard()
    with pytest.raises(LoaderClosedError):
        batch.materialise()
    with pytest.raises(LoaderClosedError):
        stage.put(numbered(1))
    assert (taken["x"] == 1).all()


def test_closing_waits_no_longer_than_told_and_keeps_the_memory() -> None:
    class Never(HostBackend):
        def finished(self, mark: Mark) -> bool:
            return False

    stage = DeviceStage(Never())
    put(stage, 0)
    with pytest.warns(ResourceWarning, match="unfinished or failed copies: 128 bytes were not freed"):
        stage.close(timeout_s=0.01)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that fork and threads do not mix: the point
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX says it too, where it is loaded
def test_a_forked_child_is_told_so_and_can_close() -> None:
    stage = DeviceStage(HostBackend())
    batch = put(stage, 0)
    with stage._ring.state.lock:  # held by a thread that does not exist in the child
        child = os.fork()
        if child == 0:
            outcome = 1
            try:
                for call in (lambda: stage.put(numbered(1)), batch.materialise, stage._ring.acquire):
                    with pytest.raises(ForkedPipelineError):
                        call()
                batch.discard()
                stage.close()
                outcome = 0
            finally:
                os._exit(outcome)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stage.close()


@pytest.mark.parametrize("numbers", [{"host_slots": 0}, {"device_slots": 0}, {"slot_nbytes": 0}])
def test_slot_numbers_below_one_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=f"{next(iter(numbers))} must be at least 1, got 0"):
        SlotRing(HostBackend(), **numbers)


def test_r42_cpu_only_pipeline_parts_never_import_cupy() -> None:
    code = (
        "import sys, numpy as np\n"
        "from aiostream_data.device.select import open_backend\n"
        "from aiostream_data.device.stage import DeviceStage\n"
        "with DeviceStage(open_backend('cpu')) as stage:\n"
        "    assert stage.put(np.ones(3)).materialise().sum() == 3\n"
        "loaded = [name for name in sys.modules if name.partition('.')[0] in ('cupy', 'cupyx', 'torch', 'jax')]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
