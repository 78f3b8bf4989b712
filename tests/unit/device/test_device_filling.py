"""Slots that several threads write at once, the thread that waits for copies, and what becomes of what is dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data import Dataset
from aiostream_data._engine import resources
from aiostream_data._engine.stages.to_device import device_opening
from aiostream_data.device import filling as filling_module
from aiostream_data.device.backend import Mark
from aiostream_data.device.copy_waiter import NAME
from aiostream_data.device.filling import Filling
from aiostream_data.device.host import HostBackend
from aiostream_data.device.layout import fill
from aiostream_data.device.slots import DeviceState, HostState
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import DeviceError, LoaderClosedError, SlotTooSmallError
from aiostream_data.rows.parts import Parts

LONG_S = 20.0
"""A test that waits so long has failed."""


class GatedBackend(HostBackend):
    """A device whose copies end when the test lets them.

    Attributes:
        joining: Set while somebody waits for a copy.
        gate: Set when copies may end.
        failure: What waiting for a copy raises then; None: nothing.
    """

    def __init__(self) -> None:
        self.joining = threading.Event()
        self.gate = threading.Event()
        self.failure: DeviceError | None = None

    def join(self, mark: Mark) -> None:
        self.joining.set()
        assert self.gate.wait(LONG_S)
        if self.failure is not None:
            raise self.failure

    def finished(self, mark: Mark) -> bool:
        return self.gate.is_set()


class GatedParts(Parts):
    """An array that is written when the test lets it.

    Attributes:
        writing: Set once the writing has begun.
        gate: Set when it may end.
    """

    __slots__ = ("gate", "writing")

    def __init__(self, array: NDArray[Any]) -> None:
        super().__init__((array,))
        self.writing = threading.Event()
        self.gate = threading.Event()

    def write_into(self, target: NDArray[Any]) -> None:
        self.writing.set()
        assert self.gate.wait(LONG_S)
        super().write_into(target)


def begun(stage: DeviceStage, number: int = 0) -> Filling:
    """Return a batch with a slot, waiting for one as long as the stage's thread takes to free it."""
    state = stage.state
    while True:
        changes = state.changes
        filling = stage.try_fill(np.full(16, number))
        if filling is not None:
            return filling
        assert state.wait_past(changes, LONG_S), "no slot has become free"


def sent(stage: DeviceStage, number: int) -> Any:
    filling = begun(stage, number)
    filling.write()
    assert filling.submit()
    return filling.take()


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(LONG_S)
        assert not thread.is_alive()


def host_states(stage: DeviceStage) -> list[HostState]:
    return [slot.state for slot in stage._ring._host.all]


def device_states(stage: DeviceStage) -> list[DeviceState]:
    return [slot.state for slot in stage._ring._device.all]


# -- the thread that waits


def test_the_waiter_gives_host_slots_back_without_being_asked() -> None:
    with DeviceStage(HostBackend(), host_slots=1, device_slots=1) as stage:
        stage.start_waiter()
        for number in range(50):
            assert (sent(stage, number).materialise() == number).all()


def test_nothing_else_waits_while_the_waiter_does() -> None:
    backend = GatedBackend()
    with DeviceStage(backend, host_slots=3, device_slots=3) as stage:
        stage.start_waiter()
        first = sent(stage, 0)
        assert backend.joining.wait(LONG_S)
        others = [sent(stage, 1), sent(stage, 2)]  # written and submitted while the first copy runs
        assert [int(batch.materialise()[0]) for batch in (first, *others)] == [0, 1, 2]
        assert stage.try_fill(np.zeros(1)) is None, "every host slot is read by a copy, or may be"
        backend.gate.set()
        begun(stage).drop()


def test_without_a_waiter_whoever_needs_a_slot_waits_for_its_copy() -> None:
    class Counting(HostBackend):
        joins = 0

        def join(self, mark: Mark) -> None:
            self.joins += 1

    backend = Counting()
    with DeviceStage(backend, host_slots=1) as stage:
        for number in range(3):
            sent(stage, number).materialise()
        assert stage.threads == []
        assert backend.joins == 2


def test_closing_ends_the_waiter_and_its_thread() -> None:
    stage = DeviceStage(HostBackend())
    stage.start_waiter()
    stage.start_waiter()
    (thread,) = stage.threads
    assert thread.name == NAME
    sent(stage, 0)
    stage.close()
    assert not thread.is_alive()
    assert stage.threads == []


def test_closing_takes_no_longer_than_told_when_the_driver_never_comes_back() -> None:
    backend = GatedBackend()
    stage = DeviceStage(backend)
    stage.start_waiter()
    sent(stage, 0)
    assert backend.joining.wait(LONG_S)
    (thread,) = stage.threads
    with pytest.warns(ResourceWarning, match="bytes were not freed"):
        stage.close(timeout_s=0.05)
    assert thread.is_alive()
    backend.gate.set()
    thread.join(LONG_S)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:device stage on cpu closed with unfinished or failed copies:ResourceWarning")
def test_a_copy_that_fails_is_told_to_whoever_comes_next_and_to_who_waits() -> None:
    backend = GatedBackend()
    backend.failure = DeviceError("the device is gone")
    with DeviceStage(backend, host_slots=1) as stage:
        stage.start_waiter()
        sent(stage, 0)
        raised: list[BaseException] = []

        def wait_for_a_slot() -> None:
            try:
                stage.put(np.zeros(1))
            except DeviceError as error:
                raised.append(error)

        with in_thread(wait_for_a_slot):
            assert backend.joining.wait(LONG_S)
            backend.gate.set()
        with pytest.raises(DeviceError, match="failed earlier: the device is gone"):
            stage.try_fill(np.zeros(1))
        assert ["failed earlier: the device is gone" in str(error) for error in raised] == [True]


def test_whatever_ends_the_waiter_is_told_to_who_waits_for_a_slot() -> None:
    class Odd(GatedBackend):
        def retire(self, mark: Mark) -> None:
            raise ValueError("an odd mark")

    backend = Odd()
    stage = DeviceStage(backend, host_slots=1)
    stage.start_waiter()
    sent(stage, 0)
    raised: list[str] = []

    def wait_for_a_slot() -> None:
        try:
            stage.put(np.zeros(1))
        except DeviceError as error:
            raised.append(str(error))

    with in_thread(wait_for_a_slot):
        assert backend.joining.wait(LONG_S)
        backend.gate.set()
    assert raised == ["the device stage failed earlier: an odd mark"]
    with pytest.warns(ResourceWarning, match="unfinished or failed copies"):
        stage.close()


# -- slots that are written


class GatedSubmission(HostBackend):
    """A device to which it takes as long to enqueue a copy as the test wants."""

    def __init__(self) -> None:
        self.enqueueing = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def h2d(self, *args: Any) -> None:
        self.enqueueing.set()
        assert self.gate.wait(LONG_S)
        super().h2d(*args)


def test_a_slot_is_written_while_another_one_is_being_submitted() -> None:
    backend = GatedSubmission()
    with DeviceStage(backend, host_slots=2, device_slots=2) as stage:
        stage.start_waiter()
        for _ in range(2):  # so that both slots have memory
            filled = [begun(stage), begun(stage)]
            for filling in filled:
                filling.write()
                assert filling.submit()
                filling.take().materialise()
        first, second = begun(stage, 1), begun(stage, 2)
        first.write()
        backend.enqueueing.clear()
        backend.gate.clear()
        with in_thread(first.submit):
            assert backend.enqueueing.wait(LONG_S)
            second.write()
            backend.gate.set()
        assert second.submit()
        assert [int(each.take().materialise()[0]) for each in (first, second)] == [1, 2]


def test_a_slot_that_is_dropped_while_it_is_written_is_free_when_that_is_over_and_not_before() -> None:
    source = GatedParts(np.arange(8))
    with DeviceStage(HostBackend(), host_slots=1) as stage:
        filling = stage.try_fill(source)
        assert filling is not None
        with in_thread(filling.write):
            assert source.writing.wait(LONG_S)
            filling.drop()
            filling.drop()
            assert stage.try_fill(np.zeros(1)) is None
            source.gate.set()
        assert host_states(stage) == [HostState.FREE]
        assert filling.submit(), "there is nothing to submit any more"
        assert filling.sent is None
        assert stage.stats().ring.batches == 0


def test_a_slot_that_is_dropped_before_it_is_written_is_free_at_once() -> None:
    with DeviceStage(HostBackend(), host_slots=1) as stage:
        filling = begun(stage)
        filling.drop()
        filling.write()
        assert host_states(stage) == [HostState.FREE]
        again = begun(stage)
        filling.drop()
        assert host_states(stage) == [HostState.FILLING], "it is another's slot now"
        again.drop()


def test_what_was_submitted_and_is_dropped_costs_no_device_slot() -> None:
    with DeviceStage(HostBackend(), host_slots=2, device_slots=1) as stage:
        first = begun(stage, 1)
        first.write()
        assert first.submit()
        first.drop()
        assert device_states(stage) == [DeviceState.FREE]
        taken = sent(stage, 2)
        first.drop()
        assert (taken.materialise() == 2).all()


def test_what_was_taken_is_not_dropped() -> None:
    with DeviceStage(HostBackend(), device_slots=1) as stage:
        filling = begun(stage, 5)
        filling.write()
        assert filling.submit()
        batch = filling.take()
        filling.drop()
        assert (batch.materialise() == 5).all()


def test_a_submission_finds_no_device_slot_and_is_repeated() -> None:
    with DeviceStage(HostBackend(), device_slots=1) as stage:
        held = sent(stage, 1)
        filling = begun(stage, 2)
        filling.write()
        assert stage.has_device_slot() is None
        assert not filling.submit()
        held.materialise()
        assert stage.has_device_slot()
        assert filling.submit()
        assert (filling.take().materialise() == 2).all()


def test_a_batch_that_cannot_be_written_gives_its_slot_back() -> None:
    with DeviceStage(HostBackend(), host_slots=1, slot_nbytes=64) as stage:
        filling = stage.try_fill(np.zeros(64))
        assert filling is not None
        with pytest.raises(SlotTooSmallError):
            filling.write()
        assert host_states(stage) == [HostState.FREE]


def test_a_batch_and_its_lease_are_let_go_as_soon_as_it_is_written() -> None:
    class Lease:
        alive = 0

        def __init__(self) -> None:
            Lease.alive += 1

        def __del__(self) -> None:
            Lease.alive -= 1

    with DeviceStage(HostBackend()) as stage:
        filling = stage.try_fill(np.zeros(4), Lease())
        assert filling is not None
        assert Lease.alive == 1
        filling.write()
        assert Lease.alive == 0
        filling.drop()


def test_no_slot_is_given_once_the_stage_is_closed() -> None:
    stage = DeviceStage(HostBackend())
    filling = begun(stage)
    stage.close()
    for call in (lambda: stage.try_fill(0), stage.has_device_slot, filling.write):
        with pytest.raises(LoaderClosedError):
            call()
    filling.drop()


# -- in a pipeline


def captured_stages(monkeypatch: pytest.MonkeyPatch) -> list[DeviceStage]:
    """Return a list to which every stage is added that a pipeline opens."""
    opened: list[DeviceStage] = []

    class Captured(DeviceStage):
        def start_waiter(self) -> None:
            opened.append(self)
            super().start_waiter()

    monkeypatch.setattr(device_opening, "DeviceStage", Captured)
    return opened


def test_several_threads_write_at_once_and_batches_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=LONG_S)

    def meet_then_fill(*args: Any) -> None:
        together.wait()  # broken unless two threads come
        fill(*args)

    monkeypatch.setattr(filling_module, "fill", meet_then_fill)
    monkeypatch.setattr(resources, "cpu_count", lambda: 2)
    with Dataset.range(40).batch(2).to_device("cpu", depth=3).open() as loader:
        assert [batch.tolist() for batch in loader] == [[n, n + 1] for n in range(0, 40, 2)]


def test_a_batch_that_takes_longer_to_write_is_not_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    second = threading.Event()

    def fill_the_second_first(arrays: Any, sources: Any) -> None:
        if int(arrays[0].shape[0]) == 3:  # the first batch has all its rows
            assert second.wait(LONG_S)
        fill(arrays, sources)
        second.set()

    monkeypatch.setattr(filling_module, "fill", fill_the_second_first)
    monkeypatch.setattr(resources, "cpu_count", lambda: 2)
    with Dataset.range(5).batch(3).to_device("cpu").open() as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4]]


def test_a_consumer_that_leaves_leaves_no_slot_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = captured_stages(monkeypatch)
    for taken in range(4):
        with Dataset.range(1_000).batch(2).to_device("cpu", depth=2).open() as loader:
            for _, _ in zip(range(taken), loader, strict=False):
                pass
        stage = opened.pop()
        assert HostState.FILLING not in host_states(stage)
        assert stage.threads == []


def test_the_pipeline_runs_ahead_by_all_slots_and_by_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    depth, begun_batches, changed = 2, [0], threading.Condition()
    try_fill = DeviceStage.try_fill

    def counted(stage: DeviceStage, *args: Any) -> Filling | None:
        filling = try_fill(stage, *args)
        with changed:
            begun_batches[0] += filling is not None
            changed.notify_all()
        return filling

    monkeypatch.setattr(DeviceStage, "try_fill", counted)
    ahead = []
    with Dataset.range(1_000).batch(2).to_device("cpu", depth=depth).open() as loader:
        for taken, _ in enumerate(loader, 1):
            if taken == 1:
                with changed:
                    assert changed.wait_for(lambda: begun_batches[0] == 1 + 2 * depth, LONG_S)
            ahead.append(begun_batches[0] - taken)
    assert max(ahead) == ahead[0] == 2 * depth


def test_an_error_while_a_slot_is_written_ends_the_run_with_that_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class BadParts(Exception):
        pass

    def fail(*args: Any) -> None:
        raise BadParts("this batch is bad")

    monkeypatch.setattr(filling_module, "fill", fail)
    opened = captured_stages(monkeypatch)
    loader = Dataset.range(40).batch(2).to_device("cpu").open()
    with loader, pytest.raises(BadParts, match="this batch is bad") as caught:
        list(loader)
    assert any(note.startswith("stage: to_device") for note in caught.value.__notes__)
    assert HostState.FILLING not in host_states(opened[0])
