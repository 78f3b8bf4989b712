"""Blocks of other processes that a device copies from: adopted once, kept while read, disowned before they go."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import fake_cupy
import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data.device.backend import HostBlock, Mark
from aiostream_data.device.copies import whole
from aiostream_data.device.cuda import CupyBackend
from aiostream_data.device.cuda_opening import open_cuda
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.host import HostBackend
from aiostream_data.device.layout import take_apart
from aiostream_data.device.shared_slots import IN_PLACE_NBYTES, SharedSlots, Transfer
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import DeviceError, LoaderClosedError, PinningError
from aiostream_data.executors.exchange import Exchange, linked
from aiostream_data.executors.mapping import mapping_of

LARGE = IN_PLACE_NBYTES
MIB = 1 << 20


class Recording(HostBackend):
    """Notes what is adopted and disowned, and refuses to when told to."""

    def __init__(self) -> None:
        self.adopted: list[int] = []
        self.disowned: list[int] = []
        self.copied: list[int] = []
        self.refuses: Exception | None = None

    def adopt_shared(self, memory: NDArray[np.uint8]) -> HostBlock:
        if self.refuses is not None:
            raise self.refuses
        self.adopted.append(memory.nbytes)
        return super().adopt_shared(memory)

    def disown_shared(self, block: HostBlock) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.disowned.append(block.nbytes)

    def h2d(self, *args: Any, **options: Any) -> None:
        self.copied.append(args[2])
        super().h2d(*args, **options)


@pytest.fixture
def ends() -> Iterator[tuple[Exchange, Exchange]]:
    here, there = linked(4 * MIB)
    with closing(here), closing(there):
        yield here, there


def numbered(number: int, nbytes: int = LARGE) -> dict[str, Any]:
    return {"image": np.full(2 * nbytes, number, np.uint8), "mask": np.full(nbytes, number, np.int8), "n": number}


def through(ends: tuple[Exchange, Exchange], message: Any) -> Any:
    """Return a message as it arrives in shared memory that is the receiver's."""
    here, there = ends
    here.send(message)
    received = there.receive()
    received.lease.release()
    return received.message


def transfer_of(shared: SharedSlots, batch: Any) -> Transfer:
    return shared.transfer(take_apart(batch, "cpu", keeps_objects=True))


def put(stage: DeviceStage, batch: Any) -> DeviceBatch:
    sent = stage.put(batch)
    assert sent is not None
    return sent


def opened(backend: HostBackend, **options: Any) -> DeviceStage:
    return DeviceStage(backend, find_shared=mapping_of, **options)


def test_large_arrays_are_copied_from_where_they_were_written_and_the_rest_through_the_slot(
    ends: tuple[Exchange, Exchange],
) -> None:
    backend = Recording()
    with opened(backend) as stage:
        for number in range(20):
            found = put(stage, through(ends, numbered(number))).materialise()
            assert (found["image"] == number).all()
            assert (found["mask"] == number).all()
            assert found["n"] == number
        stats = stage.stats()
        assert stats.ring.shared.in_place_nbytes == 20 * 3 * LARGE
        assert stats.ring.shared.host_copies == 0
        assert stats.ring.host_nbytes <= 3 * 256, "slots are as large as what goes through them"
        assert len(backend.adopted) == stats.ring.shared.blocks < 6, "blocks are used again, and adopted once"
        assert len(backend.copied) == 40, "the two large arrays stand together, and go in one copy"
    assert sorted(backend.disowned) == sorted(backend.adopted)


def test_what_needs_no_slot_makes_none(ends: tuple[Exchange, Exchange]) -> None:
    with opened(HostBackend()) as stage:
        found = put(stage, through(ends, np.arange(MIB, dtype=np.int32))).materialise()
        np.testing.assert_array_equal(found, np.arange(MIB, dtype=np.int32))
        assert stage.stats().ring.host_nbytes == 0


def test_a_batch_of_the_own_process_is_one_copy_through_a_slot_as_ever() -> None:
    shared = SharedSlots(HostBackend(), mapping_of)
    parts = take_apart(numbered(1), "cpu", keeps_objects=True)
    transfer = shared.transfer(parts)
    assert transfer.copies == whole(parts.layout)
    assert transfer.staged is parts.layout
    assert transfer.lent is None
    assert shared.stats().host_copies == 0, "they stand nowhere else"


def test_arrays_that_do_not_lie_in_one_piece_are_copied_into_the_slot_and_counted(
    ends: tuple[Exchange, Exchange],
) -> None:
    with opened(HostBackend()) as stage:
        image = through(ends, np.arange(MIB, dtype=np.int32).reshape(512, 2, 1024))
        found = put(stage, {"flipped": image[:, ::-1], "part": image[:, 0]}).materialise()
        np.testing.assert_array_equal(found["flipped"], image[:, ::-1])
        np.testing.assert_array_equal(found["part"], image[:, 0])
        assert stage.stats().ring.shared.host_copies == 2


def test_a_view_into_the_middle_of_a_block_is_copied_from_there(ends: tuple[Exchange, Exchange]) -> None:
    with opened(HostBackend()) as stage:
        image = through(ends, np.arange(MIB, dtype=np.int32))
        found = put(stage, image[1000:-1000].reshape(-1, 8)).materialise()
        np.testing.assert_array_equal(found.reshape(-1), image[1000:-1000])
        assert stage.stats().ring.shared.in_place_nbytes == 4 * (MIB - 2000)


def test_two_blocks_may_make_one_batch(ends: tuple[Exchange, Exchange]) -> None:
    with opened(HostBackend()) as stage:
        pair = {"left": through(ends, np.full(MIB, 3, np.uint8)), "right": through(ends, np.full(MIB, 4, np.uint8))}
        found = put(stage, pair).materialise()
        assert (found["left"] == 3).all()
        assert (found["right"] == 4).all()
        assert stage.stats().ring.shared.blocks == 2


# -- a block goes back when its copy was joined, and not before


def test_a_block_goes_back_only_when_the_copy_that_reads_it_was_joined(ends: tuple[Exchange, Exchange]) -> None:
    shared = SharedSlots(HostBackend(), mapping_of)
    batch = through(ends, numbered(1))
    gone = weakref.ref(batch["image"])
    transfer = transfer_of(shared, batch)
    assert transfer.lent is not None
    assert transfer.lent.nbytes == 3 * LARGE
    lent = transfer.lent
    del batch, transfer
    gc.collect()
    assert gone() is not None, "the copies read it"
    lent.end()
    lent.end()
    assert gone() is None
    assert lent.nbytes == 0
    assert shared.close() == []


def test_closing_while_a_copy_reads_a_block_keeps_it_mapped_locked_and_unreturned(
    ends: tuple[Exchange, Exchange],
) -> None:
    class Never(Recording):
        def finished(self, mark: Mark) -> bool:
            return False

        def join(self, mark: Mark) -> None:
            raise AssertionError("nobody waits for what never ends")

    backend = Never()
    stage = opened(backend)
    batch = through(ends, numbered(7))
    image = weakref.ref(batch["image"])
    put(stage, batch)
    del batch
    with pytest.warns(ResourceWarning, match="bytes were not freed"):
        stage.close(timeout_s=0.05)
    gc.collect()
    array = image()
    assert array is not None
    assert (array == 7).all()
    assert backend.disowned == []
    assert stage.stats().ring.abandoned_nbytes >= 3 * LARGE


def test_closing_while_a_block_is_adopted_waits_for_that_and_disowns_it(ends: tuple[Exchange, Exchange]) -> None:
    class Slow(Recording):
        begun, may_end = threading.Event(), threading.Event()

        def adopt_shared(self, memory: NDArray[np.uint8]) -> HostBlock:
            self.begun.set()
            assert self.may_end.wait(10)
            return super().adopt_shared(memory)

    backend = Slow()
    stage = opened(backend)
    batch = through(ends, numbered(1))
    with ThreadPoolExecutor(2) as threads:
        putting = threads.submit(put, stage, batch)
        assert backend.begun.wait(10)
        closing_it = threads.submit(stage.close)
        while not stage.state.closed:
            threading.Event().wait(0.001)
        backend.may_end.set()
        closing_it.result()  # with no warning of memory that is not freed
        with pytest.raises(LoaderClosedError):
            putting.result()
    assert backend.disowned == backend.adopted


def test_nothing_is_lent_any_more_once_it_was_stopped(ends: tuple[Exchange, Exchange]) -> None:
    shared = SharedSlots(HostBackend(), mapping_of)
    first, second = (through(ends, numbered(number)) for number in range(2))
    lent = transfer_of(shared, first).lent
    assert lent is not None
    lent.end()
    assert shared.stop(timeout_s=1.0)
    assert transfer_of(shared, first).lent is None
    assert transfer_of(shared, second).lent is None
    assert shared.close() == []


def test_a_device_that_has_failed_is_not_asked_to_disown_anything(ends: tuple[Exchange, Exchange]) -> None:
    class Fails(Recording):
        def h2d(self, *args: Any, **options: Any) -> None:
            if len(self.adopted) > 1:
                raise DeviceError("a copy failed", status=700)
            super().h2d(*args, **options)

    backend = Fails()
    stage = opened(backend)
    batches = [through(ends, numbered(number)) for number in range(2)]
    put(stage, batches[0]).discard()
    assert stage._ring.join_oldest()
    with pytest.raises(DeviceError):
        put(stage, batches[1])
    with pytest.warns(ResourceWarning, match="bytes were not freed"):
        stage.close()
    assert backend.disowned == []


def test_a_block_of_a_link_that_has_ended_stays_adopted_while_a_copy_reads_it(
    ends: tuple[Exchange, Exchange],
) -> None:
    backend = Recording()
    with opened(backend) as stage:
        here, there = linked(4 * MIB)
        put(stage, through((here, there), numbered(1)))
        here.close()
        there.close()
        put(stage, through(ends, numbered(2)))  # adopts another block, and looks for those that are done with
        assert (len(backend.adopted), backend.disowned) == (2, [])
        assert stage._ring.join_oldest()
        put(stage, through(ends, numbered(3, 2 * LARGE)))
        assert (len(backend.adopted), len(backend.disowned)) == (3, 1)


def test_a_batch_that_is_not_sent_gives_its_block_back(ends: tuple[Exchange, Exchange]) -> None:
    with opened(HostBackend(), device_slots=1) as stage:
        put(stage, through(ends, numbered(1)))
        batch = through(ends, numbered(2))
        image = weakref.ref(batch["image"])
        assert stage.put(batch, timeout_s=0) is None
        del batch
        gc.collect()
        assert image() is None


def test_a_block_that_is_not_lent_again_is_disowned_when_another_comes() -> None:
    backend = Recording()
    here, there = linked(MIB)  # not enough for blocks of all the sizes that follow
    with closing(here), closing(there), opened(backend, host_slots=1) as stage:
        for nbytes in (MIB - LARGE, MIB // 4, 5 * MIB // 8) * 3:
            put(stage, through((here, there), np.full(nbytes, 1, np.uint8))).materialise()
        shared = stage.stats().ring.shared
        assert shared.adopted == len(backend.adopted) > shared.blocks
        assert len(backend.disowned) == shared.adopted - shared.blocks
    assert sorted(backend.disowned) == sorted(backend.adopted)


def test_the_blocks_of_a_link_that_has_ended_are_disowned() -> None:
    backend = Recording()
    with opened(backend) as stage:
        here, there = linked(4 * MIB)
        last = through((here, there), numbered(1))
        put(stage, last).materialise()
        there.close()
        here.close()
        found = put(stage, last).materialise()
        assert (found["image"] == 1).all(), "what has arrived stays good"
        del last
        here, there = linked(4 * MIB)
        with closing(here), closing(there):
            for number in range(8):  # as many as it takes for the slots that read the old block
                put(stage, through((here, there), numbered(number, MIB // 4))).materialise()
    assert len(backend.disowned) == len(backend.adopted)


def test_closing_between_writing_a_batch_and_submitting_it_gives_its_block_back(
    ends: tuple[Exchange, Exchange],
) -> None:
    backend = Recording()
    stage = opened(backend)
    filling = stage.try_fill(through(ends, numbered(1)))
    assert filling is not None
    filling.write()
    stage.close()
    with pytest.raises(LoaderClosedError):
        filling.submit()
    assert backend.disowned == backend.adopted


class Counted:
    """What counts the bytes of a batch against a limit, for as long as it lives."""


def test_a_batch_is_counted_against_the_limit_until_its_copy_was_joined(ends: tuple[Exchange, Exchange]) -> None:
    with opened(HostBackend(), host_slots=1) as stage:
        for batch, is_kept in ((through(ends, numbered(1)), True), (numbered(2), False)):
            lease = Counted()
            counted = weakref.ref(lease)
            filling = stage.try_fill(batch, lease)
            assert filling is not None
            del batch, lease
            filling.write()
            assert (counted() is not None) == is_kept
            assert filling.submit()
            filling.take().discard()
            if is_kept:
                assert stage._ring.join_oldest()
            assert counted() is None


# -- what cannot be adopted


def test_no_more_blocks_are_adopted_than_allowed(ends: tuple[Exchange, Exchange]) -> None:
    shared = SharedSlots(HostBackend(), mapping_of, max_blocks=2)
    batches = [through(ends, np.full(MIB // 4, number, np.uint8)) for number in range(4)]
    transfers = [transfer_of(shared, batch) for batch in batches]
    assert [transfer.lent is not None for transfer in transfers] == [True, True, False, False]
    assert transfer_of(shared, batches[0]).lent is not None, "those that are adopted stay so"
    stats = shared.stats()
    assert (stats.blocks, stats.host_copies, stats.refused) == (2, 2, False)


def test_no_more_bytes_are_adopted_than_allowed(ends: tuple[Exchange, Exchange]) -> None:
    shared = SharedSlots(HostBackend(), mapping_of, max_nbytes=MIB)
    batches = [through(ends, np.full(nbytes, 1, np.uint8)) for nbytes in (MIB // 2, MIB, MIB // 4)]
    assert [transfer_of(shared, batch).lent is not None for batch in batches] == [True, False, True]
    assert shared.stats().nbytes <= MIB


def test_a_refusal_is_told_once_and_batches_go_through_slots(ends: tuple[Exchange, Exchange]) -> None:
    backend = Recording()
    backend.refuses = PinningError("no more pages")
    with opened(backend) as stage:
        with pytest.warns(RuntimeWarning, match=r"could not page-lock .*copied into slots first"):
            put(stage, through(ends, numbered(9))).discard()
        for number in range(5):  # a second warning would be an error
            found = put(stage, through(ends, numbered(number))).materialise()
            assert (found["image"] == number).all()
        stats = stage.stats().ring.shared
        assert stats.refused
        assert (stats.blocks, stats.in_place_nbytes, stats.host_copies) == (0, 0, 12)


def test_a_device_that_fails_while_it_adopts_a_block_says_so_and_keeps_none(ends: tuple[Exchange, Exchange]) -> None:
    class FailsOnce(Recording):
        def adopt_shared(self, memory: NDArray[np.uint8]) -> HostBlock:
            if len(self.adopted) == 1:
                self.adopted.append(0)
                raise DeviceError("an earlier kernel failed", status=700)
            return super().adopt_shared(memory)

    backend = FailsOnce()
    shared = SharedSlots(backend, mapping_of)
    pair = [through(ends, numbered(number)) for number in range(2)]
    with pytest.raises(DeviceError, match="an earlier kernel failed"):
        transfer_of(shared, tuple(pair))
    assert shared.idle, "the first of them is not lent any more"
    assert not shared.stats().refused
    assert shared.stop(timeout_s=1.0)
    assert shared.close() == []


def test_a_device_that_fails_while_it_adopts_a_block_is_used_no_more(ends: tuple[Exchange, Exchange]) -> None:
    backend = Recording()
    backend.refuses = DeviceError("an earlier kernel failed", status=700)
    with opened(backend) as stage:
        with pytest.raises(DeviceError, match="an earlier kernel failed"):
            put(stage, through(ends, numbered(1)))
        with pytest.raises(DeviceError, match="failed earlier: an earlier kernel failed"):
            put(stage, numbered(2))


def test_a_block_that_cannot_be_disowned_at_the_end_is_kept(ends: tuple[Exchange, Exchange]) -> None:
    backend = Recording()
    stage = opened(backend)
    put(stage, through(ends, numbered(1))).materialise()
    backend.refuses = DeviceError("it does not answer")
    with pytest.warns(ResourceWarning, match="bytes were not freed"):
        stage.close()


# -- with CUDA, as far as a fake tells


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> fake_cupy.FakeCuda:
    return fake_cupy.install(monkeypatch, fake_cupy.FakeCuda())


class Mapped:
    """Shared memory that notes when it is unmapped."""

    retired = False

    def __init__(self, nbytes: int, log: list[tuple[Any, ...]]) -> None:
        self.nbytes = nbytes
        self._memory = np.zeros(nbytes, np.uint8)
        self._log = log
        self.address = self._memory.ctypes.data

    def view(self, start: int, stop: int) -> NDArray[np.uint8]:
        view = np.asarray(_Window(self, self.address + start, stop - start))
        assert isinstance(view, np.ndarray)
        return view

    def __del__(self) -> None:
        self._log.append(("unmapped", self.address))


class _Window:
    def __init__(self, memory: Mapped, address: int, nbytes: int) -> None:
        self._memory = memory
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, False)}


def calls_of(fake: fake_cupy.FakeCuda) -> list[tuple[Any, ...]]:
    return [call for call in fake.log if call[0] in ("hostRegister", "hostUnregister", "unmapped")]


PORTABLE = 1


def test_cuda_registers_a_whole_block_and_unregisters_it_before_it_is_unmapped(fake: fake_cupy.FakeCuda) -> None:
    backend = open_cuda(1, "cuda:1")
    memory = Mapped(4096, fake.log)
    address = memory.address
    block = backend.adopt_shared(memory.view(0, 4096))
    del memory
    assert calls_of(fake) == [("hostRegister", address, 4096, PORTABLE)]
    backend.disown_shared(block)
    del block
    assert calls_of(fake)[1:] == [("hostUnregister", address), ("unmapped", address)]


def test_cuda_is_not_asked_to_register_nothing(fake: fake_cupy.FakeCuda) -> None:
    backend = open_cuda(0, "cuda:0")
    block = backend.adopt_shared(np.empty(0, np.uint8))
    backend.disown_shared(block)
    assert calls_of(fake) == []


def test_a_cuda_backend_that_nobody_closed_unregisters_before_memory_is_unmapped(fake: fake_cupy.FakeCuda) -> None:
    backend: CupyBackend | None = open_cuda(0, "cuda:0")
    assert backend is not None
    memory = Mapped(4096, fake.log)
    address = memory.address
    backend.adopt_shared(memory.view(0, 4096))
    del memory
    gc.collect()
    assert calls_of(fake) == [("hostRegister", address, 4096, PORTABLE)], "what is registered stays mapped"
    backend = None
    gc.collect()
    assert calls_of(fake)[1:] == [("hostUnregister", address), ("unmapped", address)]


def test_closing_a_cuda_backend_leaves_blocks_registered_that_a_copy_may_read(fake: fake_cupy.FakeCuda) -> None:
    backend: CupyBackend | None = open_cuda(0, "cuda:0")
    assert backend is not None
    memory = Mapped(4096, fake.log)
    block = backend.adopt_shared(memory.view(0, 4096))
    backend.close()
    backend = None
    gc.collect()
    assert [call[0] for call in calls_of(fake)] == ["hostRegister"]
    assert block.nbytes == 4096


def test_cuda_copies_from_the_middle_of_a_block_to_the_middle_of_a_slot(fake: fake_cupy.FakeCuda) -> None:
    backend = open_cuda(0, "cuda:0")
    memory = Mapped(4096, fake.log)
    memory._memory[:] = np.arange(4096) % 251
    block, slot = backend.adopt_shared(memory.view(0, 4096)), backend.device_block(1024)
    backend.h2d(slot, block, 100, backend.stream(), at=256, offset=1000)
    np.testing.assert_array_equal(fake.memory[slot.memory.ptr][256:356], memory._memory[1000:1100])


def test_a_refusal_of_cuda_falls_back_to_slots(fake: fake_cupy.FakeCuda, ends: tuple[Exchange, Exchange]) -> None:
    fake.failing["hostRegister"] = 2
    with DeviceStage(open_cuda(0, "cuda:0"), find_shared=mapping_of) as stage:
        with pytest.warns(RuntimeWarning, match="could not page-lock"):
            found = put(stage, through(ends, numbered(5))).materialise()
        assert (found["image"] == 5).all()
    assert "hostUnregister" not in fake.names()


def test_a_forked_child_disowns_nothing(ends: tuple[Exchange, Exchange]) -> None:
    backend = Recording()
    shared = SharedSlots(backend, mapping_of)
    transfer = transfer_of(shared, through(ends, numbered(1)))
    assert transfer.lent is not None
    transfer.lent.end()
    shared._pid -= 1  # as a forked child finds it
    assert shared.close() == []
    assert backend.disowned == []
