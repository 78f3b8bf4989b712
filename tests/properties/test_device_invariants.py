"""The invariants of the device stage, I1 to I14, each in a test of its own, over the adversarial device."""

from __future__ import annotations

import ast
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from device_drill import BATCHES, IN_USE, NO_ROOM, STYLES, Drill, Style
from device_mutants import FOLDER, Device, device_without, sites
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data import Dataset
from aiostream_data._engine.engine import Engine
from aiostream_data._engine.stages.to_device import device_opening
from aiostream_data._engine.stages.to_device.to_device import ToDeviceStage as RunningStage
from aiostream_data.device.backend import DeviceBlock, HostBlock, StreamRef
from aiostream_data.device.batch_layout import CastPlan
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.host import HostBackend
from aiostream_data.device.slots import HostState
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import (
    BatchReleasedError,
    DeviceError,
    DeviceMemoryError,
    ForkedPipelineError,
    LoaderClosedError,
    SlotTooSmallError,
)
from aiostream_data.testing.adversarial import AdversarialBackend
from aiostream_data.testing.adversarial_memory import OUT_OF_MEMORY

pytestmark = pytest.mark.filterwarnings(NO_ROOM)
LOOP_THREAD = "aiostream-engine"
FAILED = "ignore:device stage on adversarial:ResourceWarning"


class Witness(AdversarialBackend):
    """Runs nothing before somebody waits for it, and notes what runs before or behind what it belongs to.

    Every block has a generation: of a host block, how often it was written; of a device block, how often it was copied
    to. Whatever reads a block must find the generation for which it was enqueued.
    """

    def __init__(self, seed: int, *, capacity_nbytes: int = 1 << 30) -> None:
        super().__init__(seed, haste=0.0, capacity_nbytes=capacity_nbytes)
        self.written: Counter[int] = Counter()
        self.sent: Counter[int] = Counter()
        self.arrived: Counter[int] = Counter()

    def writes(self, block: HostBlock) -> None:
        """Hear that ``block`` is written from now on."""
        self.written[address_of(block.bytes)] += 1

    def h2d(self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef, *places: Any) -> None:
        host, device = address_of(src.bytes), address_of(dst.memory)
        generation = self.written[host]

        def begin() -> bool:
            self._expect("I1: a host slot was written before its copy was joined", self.written[host], generation)
            return True

        def end() -> bool:
            self.arrived[device] += 1
            return True

        self.sent[device] += 1
        self.enqueue(stream, begin)
        super().h2d(dst, src, nbytes, stream, *places)
        self.enqueue(stream, end)

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef, offset: int = 0) -> None:
        device = address_of(src.memory)
        self.enqueue(stream, self._reading(device, self.sent[device]))
        super().d2d(dst, src, nbytes, stream, offset)
        self.enqueue(stream, self._reading(device, self.sent[device]))

    def cast(self, dst: DeviceBlock, src: DeviceBlock, plan: CastPlan, stream: StreamRef) -> None:
        device = address_of(src.memory)
        self.enqueue(stream, self._reading(device, self.sent[device]))
        super().cast(dst, src, plan, stream)
        self.enqueue(stream, self._reading(device, self.sent[device]))

    def launch(self, stream: StreamRef, kernel: Callable[..., object], *arrays: NDArray[Any], turns: int = 1) -> None:
        chunks = [self._space.at(array) for array in arrays]
        slots = {chunk.start for chunk in chunks if chunk is not None and chunk.start in self.sent}
        looks = [self._reading(slot, self.sent[slot]) for slot in slots]
        super().launch(stream, lambda *found: (kernel(*found), [look() for look in looks]), *arrays, turns=turns)

    def _reading(self, device: int, generation: int) -> Callable[[], bool]:
        def look() -> bool:
            arrived = self.arrived[device]
            self._expect("I3: a slot was read before its batch had arrived", min(arrived, generation), generation)
            self._expect("I2: a slot was overwritten before it was read", max(arrived, generation), generation)
            return True

        return look

    def _expect(self, rule: str, found: int, wanted: int) -> None:
        if found != wanted:
            self.violations.append(rule)


def address_of(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


@cache
def breaches(style: Style, device: Device = IN_USE) -> tuple[str, ...]:
    """Run drills of a style under the eyes of a witness, and return what it saw of breaches of any rule."""
    found: list[str] = []
    for seed in range(15):
        backend = Witness(seed)
        run = Drill(device, seed, backend, style)
        with run.stage:
            arrays = run.stage._ring.arrays

            def noted(slot: Any, layout: Any, arrays: Any = arrays, backend: Witness = backend) -> Any:
                views = arrays(slot, layout)
                backend.writes(slot.block)
                return views

            run.stage._ring.arrays = noted
            run.run()
        assert sum(backend.arrived.values()) >= 30, "the witness saw the copies"
        found += backend.violations
    return tuple(found)


def broken_rules(style: Style, rule: str) -> list[str]:
    """Return what a witness of drills of this style saw of a breach of one rule."""
    return [breach for breach in breaches(style) if breach.startswith(rule)]


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_i1_a_host_slot_is_written_only_when_the_copy_from_it_was_joined(style: Style) -> None:
    assert broken_rules(style, "I1") == []


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_i2_a_device_slot_is_overwritten_only_behind_all_that_use_it(style: Style) -> None:
    assert broken_rules(style, "I2") == []


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_i3_no_consumer_touches_a_slot_before_its_batch_has_arrived(style: Style) -> None:
    assert broken_rules(style, "I3") == []


@pytest.mark.parametrize(
    ("rule", "module", "function", "wait"),
    [
        ("I1", "host_slots", "HostSlots.join_oldest", "join"),
        ("I2", "ring", "SlotRing._enqueue_copies", "order_after"),
        ("I3", "device_slots", "DeviceSlots.take_out", "order_after"),
    ],
)
def test_a_witness_sees_what_a_missing_wait_does(rule: str, module: str, function: str, wait: str) -> None:
    (site,) = (site for site in sites() if (site.module, site.function, site.wait) == (module, function, wait))
    seen = {breach[:2] for breach in breaches(STYLES[0], device_without(site))}
    assert rule in seen


def batch_of(number: int, rows: int) -> dict[str, Any]:
    return {"x": np.full((rows, 3), number, np.int32), "n": number}


def adversary_in_the_engine(monkeypatch: pytest.MonkeyPatch, backend: AdversarialBackend) -> None:
    """Have every ``to_device`` open ``backend``."""
    monkeypatch.setattr(device_opening, "open_backend", lambda *_, **__: backend)


@pytest.fixture
def adversary(monkeypatch: pytest.MonkeyPatch) -> AdversarialBackend:
    backend = AdversarialBackend(5)
    adversary_in_the_engine(monkeypatch, backend)
    return backend


NUMBERS = Dataset.range(200).batch(5).to_device("cpu", depth=2)


def threads_of(backend: AdversarialBackend, *calls: str) -> set[str]:
    return {thread for call, thread in backend.counts if not calls or call in calls}


def test_i4_a_batch_is_taken_out_in_the_consumers_thread_when_it_asks_for_it(adversary: AdversarialBackend) -> None:
    me = threading.current_thread().name
    with NUMBERS.open() as loader:
        for taken, _ in enumerate(loader, start=1):
            done = sum(times for (call, _), times in adversary.counts.items() if call == "consumer_block")
            assert done == taken, "nothing is taken out ahead"
        assert threads_of(adversary, "current_stream", "consumer_block", "d2d") == {me}


def test_i5_the_event_loop_makes_no_call_to_the_device(adversary: AdversarialBackend) -> None:
    with NUMBERS.open() as loader:
        assert sum(map(len, loader)) == 200
    with NUMBERS.open() as left_early:
        next(iter(left_early))
    assert len(threads_of(adversary)) > 1
    assert LOOP_THREAD not in threads_of(adversary)


def test_i5_nothing_is_awaited_where_a_device_or_stream_is_current() -> None:
    """In the device package nothing is awaited at all, and the engine's stage calls no backend."""
    for path in FOLDER.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        assert not [node for node in nodes if isinstance(node, (ast.Await, ast.AsyncFunctionDef, ast.AsyncFor))], path
    engine = Path(FOLDER).parent / "_engine"
    assert "backend." not in (engine / "stages" / "to_device" / "to_device.py").read_text("utf-8")


def test_i6_no_more_batches_are_held_than_there_are_slots() -> None:
    with DeviceStage(AdversarialBackend(0), host_slots=2, device_slots=3) as stage:
        held = [stage.put(batch_of(number, 8), timeout_s=0) for number in range(3)]
        assert None not in held
        fillings = [stage.try_fill(batch_of(number, 8)) for number in range(3, 7)]
        assert [filling is not None for filling in fillings] == [True, True, False, False]
        for filling in fillings[:2]:
            assert filling is not None
            filling.write()
            assert not filling.submit()
            filling.drop()


def test_i6_a_consumer_that_does_not_come_holds_the_source_back(adversary: AdversarialBackend) -> None:
    row_nbytes, limit_nbytes, rows = 1 << 16, 32 << 20, 1200
    pulled = taken = lead = 0

    def source() -> Iterator[NDArray[np.uint8]]:
        nonlocal pulled, lead
        for pulled in range(rows):
            lead = max(lead, pulled - taken)
            yield np.empty(row_nbytes, np.uint8)

    dataset = Dataset.from_generator(source).batch(4).to_device("cpu", depth=2)
    with dataset.open(memory_limit=limit_nbytes) as loader:
        for batch in loader:
            taken += len(batch)
            adversary.settle()
    assert taken == rows
    assert lead * row_nbytes <= limit_nbytes


@pytest.mark.parametrize("style", [style for style in STYLES if "growing" not in style.name], ids=str)
def test_i7_a_warm_stage_allocates_nothing_makes_no_events_and_asks_nothing(style: Style) -> None:
    for seed in range(5):
        backend = AdversarialBackend(seed)
        run = Drill(IN_USE, seed, backend, style)
        with run.stage:
            made = []
            for step in range(60):
                number = step % (BATCHES - 2)  # the last ones of a drill are kept beyond it
                while (batch := run.send(number)) is None:
                    pass
                backend.current = backend.consumers[step % 2]
                style.consume(run, number, batch)
                del batch
                made.append((backend.blocks_made, backend.events_made))
            for batch in run.leased:
                batch.release()
            assert made[-1] == made[30]
            assert not threads_of(backend, "finished"), "a query holds the GIL, and breaks captures"


def test_i8_batches_arrive_in_the_order_of_the_source(adversary: AdversarialBackend) -> None:
    def uneven(number: int) -> NDArray[np.int64]:
        return np.full(1 + 4000 * (number % 3), number)

    with Dataset.range(60).map(uneven).to_device("cpu", depth=3).open() as loader:
        taken = list(loader)
    adversary.settle()
    assert [int(batch[0]) for batch in taken] == list(range(60))


def short_run(style: Style, backend: AdversarialBackend) -> Drill:
    """Run a drill of a few batches over a device that may fail, and close the stage whatever happens."""
    run = Drill(IN_USE, 0, backend, style)
    with run.stage:
        run.run(batches=6)
    return run


@pytest.mark.filterwarnings(FAILED)
@pytest.mark.parametrize("status", [OUT_OF_MEMORY, 700, 719])
@pytest.mark.parametrize("style", STYLES, ids=str)
def test_i9_a_failure_at_any_call_is_raised_by_the_very_batch(style: Style, status: int) -> None:
    healthy = AdversarialBackend(0)
    short_run(style, healthy)
    closing = sum(times for (call, _), times in healthy.counts.items() if call == "finished")
    for call in range(status % 2, healthy.calls - closing, 2):
        backend = AdversarialBackend(0, fail_at_call=call, fail_status=status)
        begun = time.monotonic()
        with pytest.raises((DeviceError, DeviceMemoryError)):
            short_run(style, backend)
        assert time.monotonic() - begun < 5
        assert backend.calls <= call + 10, "a failed device is asked for nothing but its end"
        backend.settle()
        assert backend.violations == []


@pytest.mark.filterwarnings(FAILED)
def test_i9_memory_that_runs_out_once_is_told_or_gone_without_and_tears_nothing() -> None:
    for call in range(60):
        backend = AdversarialBackend(1, fail_at_call=call, fail_calls=1, fail_status=OUT_OF_MEMORY)
        findings: list[str] = []
        run = None
        try:
            run = Drill(IN_USE, 1, backend, STYLES[0])
            with run.stage:
                run.run()
        except (DeviceError, DeviceMemoryError) as error:
            findings.append(str(error))
        backend.settle()
        assert backend.violations == []
        assert run is None or run.findings == []


def use_all(dataset: Dataset[Any]) -> None:
    with dataset.open() as loader:
        for batch in loader:
            if isinstance(batch, DeviceBatch):
                batch.arrays()
                batch.release()


@pytest.mark.filterwarnings(FAILED)
@pytest.mark.parametrize("status", [OUT_OF_MEMORY, 700])
@pytest.mark.parametrize("handoff", ["copy", "lease"])
def test_i9_a_failed_device_ends_a_loader_with_its_error_and_in_time(
    monkeypatch: pytest.MonkeyPatch, handoff: Literal["copy", "lease"], status: int
) -> None:
    dataset = Dataset.range(200).batch(5).to_device("cpu", depth=2, handoff=handoff)
    for call in range(0, 120, 5):
        adversary_in_the_engine(monkeypatch, AdversarialBackend(0, fail_at_call=call, fail_status=status))
        begun = time.monotonic()
        with pytest.raises((DeviceError, DeviceMemoryError), match=f"status {status}"):
            use_all(dataset)
        assert time.monotonic() - begun < 5, f"call {call}"


class Cut:
    """Stops an engine when its device stage has been running for some turns of its loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine: Engine | None = None
        self.turns = 0
        work, run = Engine._work, RunningStage.run

        async def noted_work(engine: Engine) -> None:
            self.engine = engine
            await work(engine)

        async def cut_run(stage: RunningStage, *ends: Any) -> None:
            self._count(self.turns)
            await run(stage, *ends)

        monkeypatch.setattr(Engine, "_work", noted_work)
        monkeypatch.setattr(RunningStage, "run", cut_run)

    def _count(self, left: int) -> None:
        assert self.engine is not None
        assert self.engine.loop is not None
        if left:
            self.engine.loop.call_soon(self._count, left - 1)
        else:
            self.engine.stop_soon()


def given_until_cut() -> int:
    """Read batches until the loader is stopped or has given all; return how many came."""
    given = 0
    with suppress(LoaderClosedError), NUMBERS.open() as loader:
        for _ in loader:
            given += 1
    return given


def test_i10_cancelled_at_any_moment_no_slot_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Cut(monkeypatch)
    reached = 0
    for cut.turns in [*range(50), *range(50, 1000, 50), *range(1000, 20_000, 600)]:
        backend = AdversarialBackend(cut.turns)
        adversary_in_the_engine(monkeypatch, backend)
        given = given_until_cut()
        reached += 0 < given < 40
        assert cut.engine is not None
        (stage,) = cut.engine.resources.devices.values()
        assert {slot.state for slot in stage._ring._host.all} <= {HostState.FREE, HostState.COPYING}
        assert stage.stats().ring.abandoned_nbytes == 0
        backend.settle()
        assert backend.violations == []
        assert backend.host_nbytes == 0
    assert reached, "some runs were cut when batches had arrived"


def test_i11_a_batch_is_never_cut_to_the_size_of_a_slot(adversary: AdversarialBackend) -> None:
    with Dataset.range(11).batch(4).to_device("cpu").open() as loader:
        taken = list(loader)
    adversary.settle()
    assert [batch.tolist() for batch in taken] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    with DeviceStage(AdversarialBackend(0), slot_nbytes=64) as stage:
        with pytest.raises(SlotTooSmallError, match="72 bytes does not fit into device slots of 64 bytes"):
            stage.put(np.zeros(9))
        for rows in (8, 3, 8):
            batch = stage.put(np.full(rows, rows))
            assert batch is not None
            assert batch.materialise().shape == (rows,)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that fork and threads do not mix: the point
def test_i12_a_forked_child_is_told_at_once_and_makes_no_call() -> None:
    backend = AdversarialBackend(0)
    with DeviceStage(backend) as stage:
        batch = stage.put(batch_of(0, 8))
        assert batch is not None
        calls = backend.calls
        child = os.fork()
        if child == 0:
            outcome = 1
            try:
                for use in (lambda: stage.put(batch_of(1, 8)), batch.materialise):
                    with pytest.raises(ForkedPipelineError):
                        use()
                stage.close()
                outcome = int(backend.calls != calls)
            finally:
                os._exit(outcome)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        batch.discard()


@pytest.mark.parametrize("end", ["release", "leave", "into"])
def test_i13_a_lease_is_given_back_once_and_not_used_afterwards(end: str) -> None:
    backend = AdversarialBackend(0)
    with DeviceStage(backend) as stage:
        batch = stage.put({"x": np.ones(8)})
        assert batch is not None
        batch.lend()
        exported = batch.dlpack()["x"]
        if end == "release":
            batch.release()
        elif end == "leave":
            with batch:
                batch.arrays()
        else:
            batch.into({"x": np.zeros(8)})
        calls = backend.calls
        uses: list[Callable[[], object]] = [
            batch.arrays,
            batch.release,
            batch.dlpack,
            batch.materialise,
            batch.lend,
            batch.__enter__,
            lambda: batch.into({"x": np.zeros(8)}),
            lambda: exported.__dlpack__(stream=2),
        ]
        for use in uses:
            with pytest.raises(BatchReleasedError):
                use()
        assert backend.calls == calls, "no device is asked for what is refused"


NUMERIC = st.sampled_from(["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])


@given(
    st.lists(st.tuples(NUMERIC, st.lists(st.integers(0, 4), max_size=3)), min_size=1, max_size=4), st.integers(0, 99)
)
def test_i14_a_copied_batch_has_the_bits_that_were_sent(leaves: list[tuple[str, list[int]]], seed: int) -> None:
    noise = np.random.default_rng(seed)
    batch = tuple(
        np.frombuffer(noise.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(shape)
        for dtype, shape in leaves
    )
    for backend in (AdversarialBackend(seed), HostBackend()):
        with DeviceStage(backend) as stage:
            sent = stage.put(batch)
            assert sent is not None
            taken = sent.materialise()
            if isinstance(backend, AdversarialBackend):
                backend.settle()
            for arrived, source in zip(taken, batch, strict=True):
                assert (arrived.dtype, arrived.shape) == (source.dtype, source.shape)
                assert arrived.tobytes() == source.tobytes()
