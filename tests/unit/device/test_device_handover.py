"""How consumers get batches: the three hand-offs, in NumPy, PyTorch, JAX and (as a stand-in) CuPy."""

from __future__ import annotations

import asyncio
import gc
import importlib
import itertools
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from fake_integration import use_library
from fake_jax import fake_jax
from fake_torch import fake_torch
from numpy.typing import NDArray
from numpy_cupy import DeviceNdarray
from numpy_cupy import install as install_cupy

from aiostream_data import Dataset
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.handover import ExportedArray, FrameworkName, HandOff, HandOver
from aiostream_data.device.host import HostBackend
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import (
    AiostreamError,
    BatchReleasedError,
    DeviceError,
    DeviceLeafError,
    DeviceMemoryError,
    DeviceTargetError,
    DeviceUnavailableError,
    ForkedPipelineError,
    GraphCaptureError,
    LeasesHeldError,
    MissingExtraError,
    PlanError,
)
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.testing.adversarial import AdversarialBackend

TEN = Dataset.range(40).batch(4)
"""Ten batches of four numbers."""


def batch_of(number: int) -> dict[str, Any]:
    """A batch of every kind of leaf, in arrays that start on the boundaries on which JAX would take them over."""
    ragged = RaggedArray(np.full(5, number, np.int32), np.array([0, 2, 5], np.int32))
    return {"x": np.full((64, 8), number, np.float32), "ragged": ragged, "n": np.int32(number), "name": [f"{number}"]}


def is_right(batch: dict[str, Any], number: int) -> bool:
    numbers = [batch["x"], batch["ragged"].values, batch["n"]]
    return all((np.asarray(as_numpy(leaf)) == number).all() for leaf in numbers) and batch["name"] == [f"{number}"]


def as_numpy(leaf: Any) -> Any:
    return leaf.numpy() if hasattr(leaf, "numpy") else leaf


def stage_of(handoff: HandOff = "copy", framework: FrameworkName | None = None, depth: int = 2) -> DeviceStage:
    terms = HandOver(handoff=handoff, framework=framework)
    return DeviceStage(HostBackend(), host_slots=2, device_slots=depth, hand_over=terms)


def is_all_leased(stage: DeviceStage) -> bool:
    gc.collect()
    stage.reclaim()
    return stage.all_leased


def put(stage: DeviceStage, content: Any) -> DeviceBatch:
    batch = stage.put(content, timeout_s=5)
    assert batch is not None
    return batch


@pytest.fixture(params=["stand-in", "installed"])
def torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "installed":
        return pytest.importorskip("torch")
    module = fake_torch()
    use_library(monkeypatch, "torch", module)
    return module


@pytest.fixture(params=["stand-in", "installed"])
def jax(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "installed":
        return pytest.importorskip("jax")
    module = fake_jax()
    use_library(monkeypatch, "jax", module)
    return module


# -- the terms


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"handoff": "move"}, "handoff must be one of copy, lease, into, got 'move'"),
        ({"framework": "numpy"}, "framework must be one of cupy, torch, jax or None, got 'numpy'"),
        ({"handoff": "into", "framework": "jax"}, "JAX arrays are immutable. Use handoff='copy'"),
        ({"device": "cpu", "framework": "cupy"}, "framework='cupy' needs a GPU"),
    ],
)
def test_terms_that_make_no_sense_are_refused_where_they_are_written(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        TEN.to_device(**arguments)


def test_terms_stand_in_the_plan() -> None:
    assert (
        "to_device('cpu', handoff='lease', framework='torch')"
        in TEN.to_device("cpu", handoff="lease", framework="torch").explain()
    )
    assert "to_device('cpu')" in TEN.to_device("cpu").explain()


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_library_that_is_missing_is_told_when_the_loader_is_opened(
    monkeypatch: pytest.MonkeyPatch, framework: FrameworkName
) -> None:
    class Missing:
        def find_spec(self, name: str, *others: object) -> None:
            if name == framework:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    use_library(monkeypatch, framework, fake_torch())
    monkeypatch.delitem(sys.modules, framework)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    with (
        pytest.raises(MissingExtraError, match=f"framework '{framework}' is not installed"),
        TEN.to_device("cpu", framework=framework).open(),
    ):
        pass


def test_cupy_on_a_machine_without_a_gpu_is_told_when_the_loader_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with (
        pytest.raises(DeviceUnavailableError, match="CuPy has no arrays on 'cpu'"),
        TEN.to_device(framework="cupy").open(),
    ):
        pass


# -- copies


def test_copies_are_tensors_that_the_consumer_owns(torch: Any) -> None:
    with stage_of(framework="torch") as stage:
        taken = []
        for number in range(6):
            taken.append(put(stage, batch_of(number)).hand_over())
    for number, batch in enumerate(taken):
        assert isinstance(batch["x"], torch.Tensor)
        assert isinstance(batch["ragged"].values, torch.Tensor)
        assert tuple(batch["x"].shape) == (64, 8)
        assert tuple(batch["n"].shape) == ()
        assert is_right(batch, number)
        batch["x"][0] = -1


def test_a_tensor_that_cannot_be_allocated_is_told_and_the_batch_is_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = fake_torch()
    use_library(monkeypatch, "torch", torch)
    with stage_of(framework="torch") as stage:
        batch = put(stage, {"x": np.full(1000, 7.0)})
        torch.room = 100
        with pytest.raises(DeviceMemoryError, match="PyTorch could not allocate 8000 bytes") as caught:
            batch.hand_over()
        assert caught.value.need == 8000
        torch.room = 1 << 20
        assert (batch.hand_over()["x"].numpy() == 7).all()


def test_a_dtype_that_pytorch_lacks_is_told_with_its_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch()
    torch.lacking = {np.dtype(np.uint32)}
    use_library(monkeypatch, "torch", torch)
    with stage_of(framework="torch") as stage, pytest.raises(DeviceLeafError, match=r"'ids'.*uint32.*PyTorch"):
        put(stage, {"ids": np.zeros(3, np.uint32)}).hand_over()


def test_no_jax_array_ever_lies_over_a_slot(jax: Any) -> None:
    with stage_of(framework="jax", depth=1) as stage:
        taken = []
        for number in range(6):
            taken.append(put(stage, batch_of(number)).hand_over())
            assert is_right(taken[-1], number)
    for number, batch in enumerate(taken):
        assert is_right(batch, number), "the slot was written again since, and the array was not"


def test_a_leased_batch_gives_jax_copies_and_is_back_then(jax: Any) -> None:
    with stage_of("lease", depth=1) as stage:
        taken = []
        for number in range(4):
            batch = put(stage, batch_of(number)).hand_over()
            view = batch.arrays()["x"]
            taken.append(batch.jax())
            view[:] = -1
            with pytest.raises(BatchReleasedError):
                batch.arrays()
        assert stage.stats().ring.leaked_leases == 0
    assert all(is_right(batch, number) for number, batch in enumerate(taken))


def test_jax_waits_for_the_arrival_before_it_reads_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    use_library(monkeypatch, "jax", fake_jax())
    backend = AdversarialBackend(0, haste=0.0)
    with DeviceStage(backend, device_slots=1, hand_over=HandOver(framework="jax")) as stage:
        for number in range(4):
            assert (put(stage, {"x": np.full(64, number)}).hand_over()["x"] == number).all()


# -- leases


def test_leased_tensors_lie_in_the_slot_and_keep_the_lease(torch: Any) -> None:
    with stage_of("lease", "torch", depth=1) as stage:
        batch = put(stage, batch_of(3)).hand_over()
        tensor = batch.arrays()["x"]
        assert isinstance(tensor, torch.Tensor)
        assert is_right(batch.torch(), 3)
        assert tensor.data_ptr() == batch.torch()["x"].data_ptr(), "nothing is copied"
        del batch
        assert is_all_leased(stage)
        del tensor
        assert not is_all_leased(stage)
        assert stage.stats().ring.leaked_leases == 1


def test_a_library_may_be_asked_for_batch_by_batch(torch: Any) -> None:
    with stage_of("lease") as stage, put(stage, batch_of(3)).hand_over() as batch:
        assert isinstance(batch.arrays()["x"], np.ndarray)
        assert isinstance(batch.torch()["x"], torch.Tensor)
        with pytest.raises(DeviceUnavailableError, match="CuPy has no arrays on 'cpu'"):
            batch.cupy()


# -- into


def fixed(number: int = 0) -> dict[str, Any]:
    return {"x": np.full((3, 2), number, np.float32), "pair": (np.full(3, number), np.full((), number, np.int16))}


def test_batches_are_written_into_arrays_that_stay() -> None:
    targets = fixed()
    with stage_of("into", depth=1) as stage:
        for number in range(5):
            batch = put(stage, fixed(number)).hand_over()
            assert batch.into(targets) is targets
            assert all((leaf == number).all() for leaf in (targets["x"], *targets["pair"]))
            with pytest.raises(BatchReleasedError):
                batch.into(targets)


def test_batches_are_written_into_tensors_that_stay(torch: Any) -> None:
    targets = torch.empty((3, 2), dtype=torch.from_numpy(np.zeros(1, np.float32)).dtype)
    where = targets.data_ptr()
    with stage_of("into", "torch", depth=1) as stage:
        for number in range(5):
            put(stage, np.full((3, 2), number, np.float32)).hand_over().into(targets)
            assert (targets.numpy() == number).all()
    assert targets.data_ptr() == where


def read_only() -> NDArray[Any]:
    array = np.zeros((3, 2), np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 2), np.float32), r"'x'.*shape \(2, 2\), the leaf float32 of shape \(3, 2\)"),
        (np.zeros((3, 2), np.float64), "'x'.*the target is float64 of"),
        (np.zeros((2, 3), np.float32).T, "'x'.*must be C-contiguous"),
        (read_only(), "'x'.*expected a writable NumPy array"),
        ([1.0, 2.0], "'x'.*invalid target of type list"),
        (fake_torch().empty((3, 2), dtype=np.float32), "PyTorch tensors are mixed with other arrays"),
    ],
)
def test_a_target_that_does_not_fit_is_named_and_nothing_is_written(x: Any, message: str) -> None:
    targets = fixed() | {"x": x}
    with stage_of("into") as stage:
        batch = put(stage, fixed(5)).hand_over()
        with pytest.raises(DeviceTargetError, match=message):
            batch.into(targets)
        assert (targets["pair"][0] == 0).all()
        assert (batch.into(fixed())["x"] == 5).all()


def test_targets_of_another_structure_are_told() -> None:
    with stage_of("into") as stage, put(stage, fixed(5)).hand_over() as batch:
        for targets in ({"x": np.zeros((3, 2), np.float32)}, np.zeros(3), [np.zeros(3)]):
            with pytest.raises(DeviceTargetError, match="structure differs from the batch"):
                batch.into(targets)


def test_tensors_that_cannot_be_written_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch()
    use_library(monkeypatch, "torch", torch)
    good = torch.from_numpy(np.zeros((3, 2)))
    elsewhere = torch.empty((3, 2), dtype=np.float64, device=torch.device("cuda:1"))
    across = torch.from_numpy(np.zeros((2, 3)).T)
    wants_gradient = torch.from_numpy(np.zeros((3, 2)))
    wants_gradient.requires_grad = True
    with stage_of("into", "torch") as stage:
        batch = put(stage, np.ones((3, 2))).hand_over()
        for tensor, message in (
            (elsewhere, "on cuda:1, the batch on cpu"),
            (across, "must be contiguous"),
            (wants_gradient, "must not require a gradient"),
        ):
            with pytest.raises(DeviceTargetError, match=message):
                batch.into(tensor)
        batch.into(good)
    assert (good.numpy() == 1).all()


def test_rows_of_differing_length_go_into_arrays_of_the_same_lengths() -> None:
    batch = {"r": RaggedArray(np.arange(5), np.array([0, 2, 5]))}
    target = {"r": RaggedArray(np.zeros(5, np.int64), np.zeros(3, np.int64))}
    with stage_of("into") as stage:
        put(stage, batch).hand_over().into(target)
        assert [row.tolist() for row in target["r"]] == [[0, 1], [2, 3, 4]]
        with (
            put(stage, batch).hand_over() as again,
            pytest.raises(DeviceTargetError, match="Pass a RaggedArray, or pad the rows"),
        ):
            again.into({"r": np.zeros(5)})


def test_arrays_without_bytes_are_written_too() -> None:
    target = {"x": np.zeros((0, 3)), "y": np.zeros(2)}
    with stage_of("into") as stage:
        put(stage, {"x": np.ones((0, 3)), "y": np.ones(2)}).hand_over().into(target)
    assert target["y"].tolist() == [1, 1]


# -- through a loader


def numbers(batches: Any) -> list[list[int]]:
    return [np.asarray(as_numpy(batch)).tolist() for batch in batches]


IN_ORDER = [list(range(first, first + 4)) for first in range(0, 40, 4)]


@pytest.mark.parametrize("handoff", ["lease", "into"])
def test_a_loader_gives_leases_in_order_and_ends(handoff: HandOff) -> None:
    target = np.zeros(4, np.int64)
    seen = []
    with TEN.to_device("cpu", depth=2, handoff=handoff).open() as loader:
        for batch in loader:
            assert isinstance(batch, DeviceBatch)
            if handoff == "into":
                seen.append(batch.into(target).tolist())
            else:
                with batch:
                    seen.append(batch.arrays().tolist())
        assert loader.stats().devices[0].leaked_leases == 0
    assert seen == IN_ORDER


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_loader_gives_copies_in_a_library(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, framework: FrameworkName
) -> None:
    use_library(monkeypatch, framework, {"torch": fake_torch, "jax": fake_jax}[framework]())
    with TEN.to_device("cpu", depth=1, framework=framework).open() as loader:
        assert numbers(list(loader)) == IN_ORDER


def test_an_async_loop_gets_leases_too() -> None:
    async def consume() -> list[list[int]]:
        seen = []
        async with TEN.to_device("cpu", depth=2, handoff="lease").open() as loader:
            async for batch in loader:
                with batch:
                    seen.append(batch.arrays().tolist())
        return seen

    assert asyncio.run(consume()) == IN_ORDER


def test_an_async_consumer_that_is_cancelled_while_it_waits_loses_no_batch() -> None:
    async def consume() -> list[list[int]]:
        seen: list[list[int]] = []
        async with TEN.to_device("cpu", depth=1, handoff="lease").open() as loader:
            for turns in itertools.count():
                asking: asyncio.Future[Any] = asyncio.ensure_future(anext(loader))
                for _ in range(turns % 6):
                    await asyncio.sleep(0)
                asking.cancel()
                (found,) = cast("list[Any]", await asyncio.gather(asking, return_exceptions=True))
                if isinstance(found, DeviceBatch):
                    with found:
                        seen.append(found.arrays().tolist())
                elif isinstance(found, StopAsyncIteration):
                    break
                await asyncio.sleep(0.0005 if turns % 50 == 0 else 0)
            assert loader.stats().devices[0].leaked_leases == 0
        return seen

    assert asyncio.run(consume()) == IN_ORDER


def test_batches_that_nobody_gives_back_are_found_as_they_are_let_go() -> None:
    with TEN.to_device("cpu", depth=2, handoff="lease").open() as loader:
        seen = [batch.arrays().tolist() for batch in loader]
        assert loader.stats().devices[0].leaked_leases >= 8
    assert seen == IN_ORDER


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiostream_data.device.wait_limit.LIMIT_S", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_consumer_that_keeps_every_batch_and_wants_another_is_told_and_may_go_on() -> None:
    with TEN.to_device("cpu", depth=3, handoff="lease").open() as loader:
        batches = iter(loader)
        held = [next(batches) for _ in range(3)]
        with pytest.raises(
            LeasesHeldError, match=r"holds the batches of all 3 device slots .* Release batches"
        ) as caught:
            next(batches)
        assert caught.value.depth == 3
        for batch in held:
            batch.release()
        left = []
        for batch in loader:
            with batch:
                left.append(batch.arrays().tolist())
    assert left == IN_ORDER[3:]


@pytest.mark.usefixtures("impatient")
def test_an_async_consumer_that_keeps_every_batch_is_told_too() -> None:
    async def consume() -> None:
        async with TEN.to_device("cpu", depth=1, handoff="lease").open() as loader:
            held = await anext(loader)
            with pytest.raises(LeasesHeldError):
                await anext(loader)
            held.release()
            following = await anext(loader)
            assert following.arrays().tolist() == IN_ORDER[1]

    asyncio.run(consume())


@pytest.mark.usefixtures("impatient")
def test_in_debug_mode_a_consumer_that_keeps_every_batch_is_told_too() -> None:
    with TEN.to_device("cpu", depth=2, handoff="lease").open() as loader:
        batches = loader.debug()
        held = [next(batches), next(batches)]
        with pytest.raises(LeasesHeldError):
            next(batches)
        assert [batch.arrays().tolist() for batch in held] == IN_ORDER[:2]


def test_a_consumer_that_waits_gets_the_next_batch_when_another_thread_gives_one_back() -> None:
    with TEN.to_device("cpu", depth=1, handoff="lease").open() as loader:
        batches = iter(loader)
        first = next(batches)
        waits = threading.Event()
        wait = loader._engine.bridge.get_within

        def noted(timeout_s: float) -> Any:
            waits.set()
            return wait(timeout_s)

        loader._engine.bridge.get_within = noted  # type: ignore[method-assign]

        def give_back() -> None:
            waits.wait(10)
            first.release()

        giving = threading.Thread(target=give_back)
        giving.start()
        assert next(batches).arrays().tolist() == IN_ORDER[1]
        giving.join()


@pytest.mark.usefixtures("impatient")
def test_the_end_comes_although_the_consumer_keeps_every_batch() -> None:
    with Dataset.range(8).batch(4).to_device("cpu", depth=2, handoff="lease").open() as loader:
        kept = list(loader)
        assert [batch.arrays().tolist() for batch in kept] == IN_ORDER[:2]
    assert [batch.arrays().tolist() for batch in kept] == IN_ORDER[:2], "and it has them when the loader is closed"
    for batch in kept:
        batch.release()


def test_states_know_nothing_of_how_batches_are_handed_over() -> None:
    with TEN.to_device("cpu", handoff="lease").open() as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches).release()
        state = loader.state_dict()
    for dataset in (TEN, TEN.to_device("cpu"), TEN.to_device("cpu", handoff="into")):
        with dataset.open(state=state) as resumed:
            found = [batch.arrays() if isinstance(batch, DeviceBatch) else batch for batch in take(resumed)]
            assert numbers(found) == IN_ORDER[4:7]


def take(loader: Any, count: int = 3) -> Iterator[Any]:
    batches = iter(loader)
    for _ in range(count):
        yield next(batches)


def test_batches_that_are_skipped_are_given_back() -> None:
    with TEN.to_device("cpu", depth=2, handoff="lease").open() as loader:
        seen = []
        for batch in loader:
            with batch:
                seen.append(batch.arrays().tolist())
            if len(seen) == 2:
                loader.skip(5)
        assert loader.stats().devices[0].leaked_leases == 0
    assert seen == IN_ORDER[:2] + IN_ORDER[7:]


def test_batches_can_be_given_again_as_leases() -> None:
    with TEN.to_device("cpu", depth=2, handoff="lease").open() as loader:
        batches = iter(loader)
        for _ in range(6):
            next(batches).release()
        with loader.replay(2, 5) as again:
            seen = []
            for batch in again:
                with batch:
                    seen.append(batch.arrays().tolist())
            assert again.stats().devices[0].leaked_leases == 0
    assert seen == IN_ORDER[2:5]


def test_a_lease_can_be_asked_where_it_came_from() -> None:
    with TEN.to_device("cpu", handoff="lease").open() as loader, next(iter(loader)) as batch:
        assert [origin.index for origin in loader.origins(batch)] == [0, 1, 2, 3]


def test_a_batch_that_could_not_be_handed_over_comes_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch()
    use_library(monkeypatch, "torch", torch)
    with TEN.to_device("cpu", framework="torch").open() as loader:
        batches = iter(loader)
        first = next(batches)
        torch.room = 0
        with pytest.raises(DeviceMemoryError):
            next(batches)
        torch.room = 1 << 20
        assert numbers([first, *loader]) == IN_ORDER


# -- on a GPU, as far as a stand-in goes


class OnGpu(np.ndarray[Any, Any]):
    """An array that says it is on a GPU, and notes how it is exported."""

    asked: ClassVar[list[dict[str, Any]]]

    def __dlpack_device__(self) -> Any:
        return 2, 0

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked.append(asked)
        return self.view(np.ndarray)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for CuPy: its log of calls, and how arrays were exported."""
    from fake_cupy import FakeCuda

    calls = FakeCuda(devices=1)
    install_cupy(monkeypatch, calls)
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(OnGpu, "asked", asked, raising=False)
    monkeypatch.setattr(ExportedArray, "__dlpack_device__", lambda self: (2, 0))
    return SimpleNamespace(calls=calls, asked=asked)


def waited(calls: Any) -> list[int]:
    return [entry[1] for entry in calls.log if entry[0] == "streamWaitEvent"]


def gpu_stage(handoff: HandOff = "copy", framework: FrameworkName | None = None) -> DeviceStage:
    return DeviceStage(open_backend("cuda:0"), device_slots=1, hand_over=HandOver(handoff=handoff, framework=framework))


def test_on_a_gpu_cupy_arrays_lie_over_the_slot_and_keep_the_lease(cuda: SimpleNamespace) -> None:
    with gpu_stage("lease", "cupy") as stage:
        batch = put(stage, {"x": np.full(4, 5)}).hand_over()
        arrays = [batch.arrays()["x"], batch.cupy()["x"]]
        assert all(isinstance(array, DeviceNdarray) and (array == 5).all() for array in arrays)
        assert arrays[0].data.ptr == arrays[1].data.ptr
        assert waited(cuda.calls) == [0, 0], "CuPy's current stream"
        del batch
        assert is_all_leased(stage)
        arrays.clear()
        assert not is_all_leased(stage)


def test_on_a_gpu_batches_are_written_into_cupy_arrays(cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    target = importlib.import_module("cupy").zeros((4,), np.int64)
    with gpu_stage("into") as stage:
        batch = put(stage, {"x": np.full(4, 5)}).hand_over()
        with pytest.raises(DeviceTargetError, match=r"'x'.*expected a CuPy array on cuda:0"):
            batch.into({"x": np.zeros(4, np.int64)})
        monkeypatch.setattr(DeviceNdarray, "device", SimpleNamespace(id=1))
        with pytest.raises(DeviceTargetError, match=r"'x'.*on cuda:1, the batch on cuda:0"):
            batch.into({"x": target})
        monkeypatch.setattr(DeviceNdarray, "device", SimpleNamespace(id=0))
        batch.into({"x": target})
        assert (target == 5).all()
        copies = [entry for entry in cuda.calls.log if entry[0] == "memcpyAsync"]
        assert copies[-1][1:] == (32, 3, 0), "32 bytes, on the device, on CuPy's current stream"


def test_on_a_gpu_tensors_are_copied_on_pytorchs_current_stream(
    monkeypatch: pytest.MonkeyPatch, cuda: SimpleNamespace
) -> None:
    torch = fake_torch(gpus=1)
    use_library(monkeypatch, "torch", torch)
    with gpu_stage(framework="torch") as stage:
        for torch.cuda.stream in (21, 22):
            taken = put(stage, {"x": np.full(4, 5)}).hand_over()
            assert (taken["x"].content == 5).all()
            assert str(taken["x"].device) == "cuda:0"
            copies = [entry for entry in cuda.calls.log if entry[0] == "memcpyAsync"]
            assert copies[-1][-1] == torch.cuda.stream
            assert torch.cuda.stream in waited(cuda.calls)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_library_that_sees_no_gpu_is_refused_instead_of_computing_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, cuda: SimpleNamespace, framework: FrameworkName
) -> None:
    use_library(monkeypatch, framework, {"torch": fake_torch, "jax": fake_jax}[framework]())
    with pytest.raises(DeviceUnavailableError, match=r"0 GPU\(s\), but not 'cuda:0'"):
        gpu_stage(framework=framework)


def join_all(stage: DeviceStage) -> None:
    while stage._ring.join_oldest():
        pass


def lent_on_gpu(stage: DeviceStage, monkeypatch: pytest.MonkeyPatch) -> DeviceBatch:
    batch = put(stage, {"x": np.full(4, 5)})
    batch.lend()
    natives = batch._natives
    monkeypatch.setattr(DeviceBatch, "_natives", lambda self: [native.view(OnGpu) for native in natives()])
    return batch


def test_on_a_gpu_what_is_lent_is_exported_without_the_exporters_own_order(
    monkeypatch: pytest.MonkeyPatch, cuda: SimpleNamespace
) -> None:
    torch = fake_torch(gpus=1)
    use_library(monkeypatch, "torch", torch)
    with gpu_stage("lease", "torch") as stage:
        batch = lent_on_gpu(stage, monkeypatch)
        marks = cuda.calls.names().count("eventRecord")
        batch.torch()
        assert cuda.asked == [{"stream": -1, "max_version": (1, 0)}]
        assert set(waited(cuda.calls)) == {21}
        batch.release()
        recorded = [entry[1] for entry in cuda.calls.log if entry[0] == "eventRecord"]
        assert recorded[marks:] == [21], "the stream that used it is waited for"


def test_on_a_gpu_jax_copies_on_its_own_stream_and_the_slot_is_free_when_they_are_ready(
    monkeypatch: pytest.MonkeyPatch, cuda: SimpleNamespace
) -> None:
    jax = fake_jax(gpus=1)
    use_library(monkeypatch, "jax", jax)
    with gpu_stage("lease", "jax") as stage:
        batch = lent_on_gpu(stage, monkeypatch)
        assert (batch.arrays()["x"] == 5).all()
        assert cuda.asked == [{"stream": -1}]
        assert waited(cuda.calls) == [31]
        assert jax.waited == 0, "the consumer goes on at once"
        join_all(stage)
        assert jax.waited == 1
        assert stage.has_device_slot()


@pytest.mark.filterwarnings("ignore:device stage on cuda:ResourceWarning")
def test_on_a_gpu_a_copy_of_jax_that_fails_is_told_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch, cuda: SimpleNamespace
) -> None:
    jax = fake_jax(gpus=1)
    use_library(monkeypatch, "jax", jax)
    with gpu_stage("lease", "jax") as stage:
        lent_on_gpu(stage, monkeypatch).arrays()
        jax.broken = True
        with pytest.raises(DeviceError, match="JAX could not copy a batch: a kernel failed"):
            join_all(stage)
        with pytest.raises(DeviceError, match="failed earlier"):
            put(stage, {"x": np.zeros(4)})


@pytest.mark.parametrize(
    "error", [GraphCaptureError("captured"), ForkedPipelineError("forked"), DeviceError("an address", status=700)]
)
def test_errors_of_ours_pass_through_jax_as_they_are(
    monkeypatch: pytest.MonkeyPatch, cuda: SimpleNamespace, error: AiostreamError
) -> None:
    jax = fake_jax(gpus=1)
    use_library(monkeypatch, "jax", jax)
    copies = importlib.import_module("aiostream_data.integrations.jax").GpuCopies()

    def fails(**asked: object) -> object:
        raise error

    exported = SimpleNamespace(__dlpack_device__=lambda: (2, 0), __dlpack__=fails)
    with pytest.raises(type(error)) as caught:
        copies.copies([], [exported], lambda: None)
    assert caught.value is error
    here = SimpleNamespace(__dlpack_device__=lambda: (2, 0), __dlpack__=lambda **asked: np.zeros(3))
    _, ready = copies.copies([], [here], lambda: None)
    jax.broken = error
    with pytest.raises(type(error)) as caught:
        ready()
    assert caught.value is error


def test_only_integrations_import_frameworks() -> None:
    for name in ("handover", "leases", "device_batch", "device_slots"):
        source = importlib.import_module(f"aiostream_data.device.{name}").__file__
        assert source is not None
        with open(source, encoding="utf-8") as file:
            lines = [line.split()[:2] for line in file]
        assert [library for library in ("torch", "jax", "cupy") if ["import", library] in lines] == []
