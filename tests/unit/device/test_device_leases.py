"""Leases of device slots: used where they are, given back behind all who used them, found when they were let go."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aiostream_data.device.backend import StreamRef
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.handover import HandOver
from aiostream_data.device.host import HostBackend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import (
    BatchReleasedError,
    DeviceError,
    DeviceTargetError,
    ForkedPipelineError,
    GraphCaptureError,
    LoaderClosedError,
)
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.testing.adversarial import AdversarialBackend

LEASE = HandOver(handoff="lease")


def numbered(number: int, rows: int = 4) -> dict[str, Any]:
    ragged = RaggedArray(np.full(rows, number), np.array([0, 1, rows]))
    return {"x": np.full((rows, 2), number, np.int32), "ragged": ragged, "n": number, "name": [f"{number}"]}


def lent(stage: DeviceStage, number: int) -> DeviceBatch:
    batch = stage.put(numbered(number), timeout_s=5)
    assert batch is not None
    given: object = batch.hand_over()
    assert given is batch
    return batch


def has_room(stage: DeviceStage) -> bool:
    batch = stage.put(numbered(-1), timeout_s=0)
    if batch is not None:
        batch.discard()
    return batch is not None


def join_all(stage: DeviceStage) -> None:
    while stage._ring.join_oldest():
        pass


def looking_for(number: int, torn: list[int]) -> Callable[[Any], None]:
    """Return a kernel that notes when it does not find what belongs there."""

    def kernel(found: Any) -> None:
        if not (found == number).all():
            torn.append(number)

    return kernel


def leaked(stage: DeviceStage) -> int:
    stage.reclaim()
    return stage.stats().ring.leaked_leases


@pytest.fixture
def stage() -> Iterator[DeviceStage]:
    with DeviceStage(HostBackend(), host_slots=2, device_slots=1, hand_over=LEASE) as one:
        yield one


def test_a_leased_batch_has_its_values_and_lies_in_the_slot(stage: DeviceStage) -> None:
    batch = lent(stage, 3)
    arrays = batch.arrays()
    assert (arrays["x"] == 3).all()
    assert arrays["x"].shape == (4, 2)
    assert [row.tolist() for row in arrays["ragged"]] == [[3], [3, 3, 3]]
    assert arrays["n"] == 3
    assert arrays["name"] == ["3"]
    assert np.shares_memory(arrays["x"], batch.arrays()["x"]), "nothing is copied"
    batch.release()
    again = lent(stage, 4)
    assert (again.arrays()["x"] == 4).all()
    assert np.shares_memory(arrays["x"], again.arrays()["x"]), "the slot is written again"
    again.release()


def test_a_batch_says_what_and_where_it_is(stage: DeviceStage) -> None:
    batch = stage.put({"x": np.zeros((4, 2), np.int32)})
    assert repr(batch) == "<DeviceBatch on cpu, ahead: x: int32 (4, 2)>"
    assert batch is not None
    batch.lend()
    assert "on cpu, leased: " in repr(batch)
    batch.release()
    assert "on cpu, released: " in repr(batch)


def test_a_slot_is_not_written_again_before_its_lease_has_ended(stage: DeviceStage) -> None:
    batch = lent(stage, 0)
    assert not has_room(stage)
    assert stage.all_leased
    batch.release()
    assert has_room(stage)
    assert not stage.all_leased


def test_a_with_block_gives_the_batch_back_also_when_it_fails_or_has_given_it_back_itself(stage: DeviceStage) -> None:
    with lent(stage, 0):
        assert not has_room(stage)
    assert has_room(stage)
    with pytest.raises(ZeroDivisionError), lent(stage, 1):
        raise ZeroDivisionError
    assert has_room(stage)
    with lent(stage, 2) as batch:
        batch.release()
        kept = lent(stage, 3)
    assert not has_room(stage), "the slot is the next batch's: it is not given back a second time"
    kept.release()
    assert leaked(stage) == 0


USES: dict[str, Callable[[DeviceBatch], object]] = {
    "arrays": lambda batch: batch.arrays(),
    "dlpack": lambda batch: batch.dlpack(),
    "into": lambda batch: batch.into({}),
    "jax": lambda batch: batch.jax(),
    "release": lambda batch: batch.release(),
    "materialise": lambda batch: batch.materialise(),
    "lend": lambda batch: batch.lend(),
    "with": lambda batch: batch.__enter__(),
}


@pytest.mark.parametrize("use", USES)
def test_i13_using_a_batch_after_it_was_given_back_raises(stage: DeviceStage, use: str) -> None:
    batch = lent(stage, 0)
    exported = batch.dlpack()["x"]
    batch.release()
    with pytest.raises(BatchReleasedError):
        USES[use](batch)
    with pytest.raises(BatchReleasedError):
        exported.__dlpack__()
    batch.discard()
    assert has_room(stage)


def test_a_batch_that_was_not_lent_is_not_the_consumers(stage: DeviceStage) -> None:
    batch = stage.put(numbered(0))
    assert batch is not None
    for use in (batch.arrays, batch.dlpack, batch.release):
        with pytest.raises(BatchReleasedError, match="leased"):
            use()
    batch.discard()
    with pytest.raises(BatchReleasedError):
        batch.lend()


def test_another_thread_may_give_a_batch_back_and_so_wakes_who_waits_for_the_slot(stage: DeviceStage) -> None:
    batch = lent(stage, 0)
    releasing = threading.Thread(target=batch.release)
    releasing.start()
    following = lent(stage, 1)
    releasing.join()
    assert (following.arrays()["x"] == 1).all()
    following.release()


def test_the_next_copy_waits_for_every_stream_on_which_a_batch_was_used() -> None:
    for seed in range(60):
        backend = AdversarialBackend(seed)
        torn: list[int] = []
        with DeviceStage(backend, device_slots=1, hand_over=LEASE) as stage:
            for number in range(8):
                batch = stage.put({"x": np.full(64, number)}, timeout_s=5)
                assert batch is not None
                batch.lend()
                for stream in backend.consumers:
                    backend.current = stream
                    backend.launch(stream, looking_for(number, torn), batch.arrays()["x"], turns=3)
                batch.release()
            backend.settle()
        assert torn == []
        assert backend.violations == []


def test_an_importer_of_dlpack_is_ordered_after_the_arrival_on_the_stream_that_it_names() -> None:
    for seed in range(60):
        backend = AdversarialBackend(seed, haste=0.0)
        torn: list[int] = []
        with DeviceStage(backend, device_slots=1, hand_over=LEASE) as stage:
            for number in range(4):
                batch = stage.put({"x": np.full(64, number)}, timeout_s=5)
                assert batch is not None
                batch.lend()
                theirs = backend.consumers[number % 2]
                exported = batch.dlpack()["x"]
                exported.__dlpack__(stream=theirs.ptr)
                backend.launch(theirs, looking_for(number, torn), exported._native)
                batch.release()
            backend.settle()
        assert torn == []


@pytest.mark.parametrize(("named", "ordered"), [(None, 1), (0, 1), (1, 1), (2, 2), (77, 77)])
def test_streams_of_importers_are_taken_as_dlpack_names_them(named: int | None, ordered: int) -> None:
    streams: list[int] = []

    class Noting(HostBackend):
        def order_after(self, stream: StreamRef, mark: Any) -> None:
            streams.append(stream.ptr)

    with DeviceStage(Noting(), hand_over=LEASE) as stage:
        batch = lent(stage, 0)
        batch.dlpack()["x"].__dlpack__(stream=named)
        assert streams == [ordered]
        batch.release()


def test_an_importer_that_names_no_stream_finds_the_batch_there() -> None:
    backend = AdversarialBackend(0, haste=0.0)
    with DeviceStage(backend, hand_over=LEASE) as stage:
        batch = stage.put({"x": np.full(64, 5)})
        assert batch is not None
        batch.lend()
        exported = batch.dlpack()["x"]
        exported.__dlpack__(stream=-1)
        assert (exported._native == 5).all()
        batch.release()


def test_an_exported_array_has_no_interface_without_order(stage: DeviceStage) -> None:
    with lent(stage, 0) as batch:
        exported = batch.dlpack()["x"]
        assert not hasattr(exported, "__cuda_array_interface__")
        assert not hasattr(exported, "__array__")
        assert (exported.shape, exported.dtype) == ((4, 2), np.dtype(np.int32))
        imported = np.from_dlpack(exported)
        assert np.shares_memory(imported, batch.arrays()["x"])


def test_a_batch_that_is_let_go_is_found_and_counted(stage: DeviceStage) -> None:
    batch = lent(stage, 0)
    del batch
    gc.collect()
    assert leaked(stage) == 1
    assert has_room(stage)


@pytest.mark.parametrize("kept", ["view", "slice of it", "imported"])
def test_what_lies_over_the_slot_keeps_the_lease_when_the_batch_is_let_go(stage: DeviceStage, kept: str) -> None:
    batch = lent(stage, 7)
    view: Any = np.from_dlpack(batch.dlpack()["x"]) if kept == "imported" else batch.arrays()["x"]
    if kept == "slice of it":
        view = view[1:, 0].reshape(-1, 1)
    del batch
    gc.collect()
    assert leaked(stage) == 0
    assert not has_room(stage)
    assert (view == 7).all()
    del view
    gc.collect()
    assert leaked(stage) == 1
    assert has_room(stage)


def test_letting_go_calls_no_device_and_takes_no_lock() -> None:
    backend = AdversarialBackend(0)
    with DeviceStage(backend, device_slots=1, hand_over=LEASE) as stage:
        held = [stage.put({"x": np.zeros(8)})]
        assert held[0] is not None
        held[0].lend()
        held[0].arrays()
        calls = backend.calls
        with stage.state.lock:
            letting_go = threading.Thread(target=held.clear)
            letting_go.start()
            letting_go.join(5)
            assert not letting_go.is_alive()
        gc.collect()
        assert backend.calls == calls
        assert leaked(stage) == 1
        assert backend.calls > calls, "the stream's end is marked by who comes next"


def test_a_batch_let_go_is_waited_for_on_its_streams_as_any_other() -> None:
    for seed in range(40):
        backend = AdversarialBackend(seed)
        torn: list[int] = []
        with DeviceStage(backend, device_slots=1, hand_over=LEASE) as stage:
            for number in range(6):
                stage.reclaim()
                batch = stage.put({"x": np.full(64, number)}, timeout_s=5)
                assert batch is not None
                batch.lend()
                backend.current = backend.consumers[number % 2]
                backend.launch(backend.current, looking_for(number, torn), batch.arrays()["x"], turns=2)
                del batch
                gc.collect(0)
            backend.settle()
        assert torn == []
        assert stage.stats().ring.leaked_leases >= 5


def test_a_lease_outlives_its_stage(stage: DeviceStage) -> None:
    batch = lent(stage, 9)
    view = batch.arrays()["x"]
    stage.close()
    assert (batch.arrays()["x"] == 9).all()
    target = {**numbered(0), "x": np.zeros((4, 2), np.int32)}
    with pytest.raises(DeviceTargetError, match="not an array"):
        batch.into(target)
    batch.release()
    assert (view == 9).all()
    with pytest.raises(BatchReleasedError):
        batch.release()
    with pytest.raises(LoaderClosedError):
        stage.put(numbered(1))


def test_behind_closing_giving_back_waits_for_the_streams_whose_memory_goes() -> None:
    for seed in range(20):
        backend = AdversarialBackend(seed, haste=0.0)
        torn: list[int] = []
        stage = DeviceStage(backend, device_slots=1, hand_over=LEASE)
        batch = stage.put({"x": np.full(64, 1)})
        assert batch is not None
        batch.lend()
        backend.launch(backend.current, looking_for(1, torn), batch.arrays()["x"], turns=4)
        stage.close()
        batch.release()
        del batch
        backend.settle()
        assert torn == []
        assert backend.violations == []


@pytest.mark.filterwarnings("ignore:device stage on adversarial:ResourceWarning")
def test_when_the_device_has_failed_a_lease_cannot_be_used_and_can_be_given_back() -> None:
    backend = AdversarialBackend(0)
    stage = DeviceStage(backend, device_slots=2, hand_over=LEASE)
    first, second = (stage.put({"x": np.zeros(8)}) for _ in range(2))
    assert first is not None
    assert second is not None
    first.lend()
    second.lend()
    backend._fail_at_call = backend.calls
    with pytest.raises(DeviceError, match="719"):
        first.arrays()
    with pytest.raises(DeviceError, match="failed earlier"):
        second.arrays()
    first.release()
    second.release()
    stage.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that fork and threads do not mix: the point
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX says it too, where it is loaded
def test_a_forked_child_cannot_use_a_lease_and_can_let_go_of_it(stage: DeviceStage) -> None:
    batch = lent(stage, 0)
    with stage.state.lock:  # held by a thread that does not exist in the child
        child = os.fork()
        if child == 0:
            outcome = 1
            try:
                for use in (batch.arrays, batch.dlpack):
                    with pytest.raises(ForkedPipelineError):
                        use()
                batch.release()
                stage.reclaim()
                outcome = 0
            finally:
                os._exit(outcome)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (batch.arrays()["x"] == 0).all()
    batch.release()


def test_a_batch_that_jax_copies_is_given_back_by_who_waits_for_copies(stage: DeviceStage) -> None:
    batch = lent(stage, 0)
    waited: list[bool] = []
    leases, lease = stage._ring._device.leases, batch._lease
    assert lease is not None
    leases.end_when(lease, lambda: waited.append(stage.all_leased))
    with pytest.raises(BatchReleasedError):
        batch.arrays()
    assert not stage.all_leased, "the consumer has it no more"
    assert not has_room(stage) or waited, "and it is not free before it was waited for"
    join_all(stage)
    assert waited == [False]
    assert has_room(stage)
    assert leaked(stage) == 0


@pytest.mark.filterwarnings("ignore:device stage on cpu:ResourceWarning")
def test_a_copy_of_jax_that_fails_ends_the_stage_with_its_error(stage: DeviceStage) -> None:
    def fail() -> None:
        raise DeviceError("JAX could not copy")

    batch = lent(stage, 0)
    assert batch._lease is not None
    stage._ring._device.leases.end_when(batch._lease, fail)
    with pytest.raises(DeviceError, match="JAX could not copy"):
        join_all(stage)
    with pytest.raises(DeviceError, match="failed earlier: JAX could not copy"):
        stage.put(numbered(1))


def test_on_a_stream_that_is_captured_a_batch_is_refused_and_still_there() -> None:
    backend = AdversarialBackend(0)
    with DeviceStage(backend, hand_over=LEASE) as stage:
        batch = stage.put({"x": np.full(8, 2.0)})
        assert batch is not None
        batch.lend()
        batch.arrays()
        target = {"x": np.zeros(8)}
        backend.captured = [backend.current]
        for use in (batch.arrays, batch.release, lambda: batch.into(target)):
            with pytest.raises(GraphCaptureError):
                use()
        backend.captured = []
        batch.into(target)
        backend.settle()
        assert (target["x"] == 2).all()
        with pytest.raises(BatchReleasedError):
            batch.release()


def test_a_batch_let_go_is_not_marked_while_its_stream_is_captured() -> None:
    backend = AdversarialBackend(0)
    with DeviceStage(backend, device_slots=1, hand_over=LEASE) as stage:
        batch = stage.put({"x": np.zeros(8)})
        assert batch is not None
        batch.lend()
        batch.arrays()
        backend.captured = [backend.current]
        del batch
        gc.collect()
        assert leaked(stage) == 0
        backend.captured = []
        assert leaked(stage) == 1


def test_a_warm_stage_makes_no_memory_and_no_events_for_leases() -> None:
    backend = AdversarialBackend(3)
    made = []
    with DeviceStage(backend, host_slots=2, device_slots=2, hand_over=LEASE) as stage:
        for number in range(30):
            batch = stage.put({"x": np.full(64, number)}, timeout_s=5)
            assert batch is not None
            batch.lend()
            for stream in backend.consumers:
                backend.current = stream
                batch.arrays()
            batch.release()
            made.append((backend.blocks_made, backend.events_made))
    assert made[-1] == made[10]
