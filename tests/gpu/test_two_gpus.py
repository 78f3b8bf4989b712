"""Loaders on a second GPU: they leave the first one, and the calling thread, as they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpu_at_hand
import numpy as np
import numpy_cupy
import pytest
from fake_cupy import FakeCuda
from fake_integration import use_library
from fake_jax import fake_jax
from fake_torch import fake_torch
from host_kernels import host_kernels

import aiostream_data as asd

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu.second_gpu import HAND_OVERS, objections  # noqa: E402

STAND_IN = "stand-in"
SECOND = "cuda:1"
LATE_STREAM = 22
ROWS, BATCH = 240, 6
VALUES = np.arange(ROWS * 64, dtype=np.int32).reshape(ROWS, 64)
IMAGES = np.random.default_rng(0).integers(0, 256, (ROWS, 16, 16, 3), np.uint8)


@pytest.fixture(params=[pytest.param("gpu", marks=pytest.mark.gpu), STAND_IN])
def cupy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """CuPy on a machine with two GPUs, or the stand-in of one."""
    if request.param != STAND_IN:
        return gpu_at_hand.cupy_of_two_gpus()
    numpy_cupy.export_as_gpu(monkeypatch)
    return numpy_cupy.install(monkeypatch, FakeCuda(devices=2))


@pytest.fixture
def torch(on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    if on_gpu:
        return gpu_at_hand.imported("torch")
    module = fake_torch(gpus=2)
    use_library(monkeypatch, "torch", module)
    return module


@pytest.fixture
def jax(on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if on_gpu:
        return gpu_at_hand.imported("jax")
    module = fake_jax(gpus=2)
    use_library(monkeypatch, "jax", module)
    module.imported_from = set()
    imported = module.dlpack.from_dlpack

    def from_dlpack(array: Any) -> Any:
        module.imported_from.add(array.__dlpack_device__()[1])
        return imported(array)

    module.dlpack.from_dlpack = from_dlpack
    return module


def visits(way: str, on_gpu: bool) -> dict[str, dict[str, Any]]:
    """Use the second GPU in a process of its own, as contexts last as long as a process."""
    if not on_gpu:
        host_kernels()  # skips here where there is no compiler
    command = [sys.executable, "-m", "benchmarks.gpu.second_gpu", way, *([] if on_gpu else ["--self-check"])]
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    noted: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return noted


def test_a_loader_makes_a_context_on_its_own_gpu_and_on_no_other(on_gpu: bool, cupy: Any) -> None:
    noted = visits("named", on_gpu)
    assert list(noted) == list(HAND_OVERS)
    assert noted["copy"]["before"] == [], "the process began without contexts"
    for name, visit in noted.items():
        assert objections(visit) == [], name
        assert (visit["opened"], visit["contexts"]) == (SECOND, [1]), name
        assert visit["standing"][-1] == [0, 0], "the thread has the first GPU, and no context"


def test_a_thread_keeps_the_context_that_it_had_on_another_gpu(on_gpu: bool, cupy: Any) -> None:
    noted = visits("used", on_gpu)
    assert len(noted) == 2 * len(HAND_OVERS)
    for name, visit in noted.items():
        assert objections(visit) == [], name
        device, context = visit["standing"][0]
        assert f"cuda:{device}" != visit["opened"]
        assert context != 0, "the thread had one"


def test_the_gpu_that_torch_chose_is_opened_and_no_other(on_gpu: bool, cupy: Any, torch: Any) -> None:
    noted = visits("chosen", on_gpu)
    assert list(noted) == ["torch", "cupy"]
    for name, visit in noted.items():
        assert objections(visit) == [], name
        assert (visit["opened"], visit["contexts"]) == (SECOND, [1]), name
        assert visit["standing"][0][0] == 1


def batches(device: str, values: Any = VALUES, **options: Any) -> asd.Loader[Any]:
    return asd.Dataset.from_tensor_slices({"x": values}).batch(BATCH).to_device(device, depth=2, **options).open(seed=5)


def expected(number: int) -> Any:
    return VALUES[number * BATCH : (number + 1) * BATCH]


@contextmanager
def side_stream(torch: Any, on_gpu: bool) -> Iterator[None]:
    """Make another stream current on the second GPU, while the first is the current one."""
    if not on_gpu:
        torch.cuda.stream = LATE_STREAM
        yield
        return
    # To enter a stream is to enter its GPU; so the first is entered after it.
    with torch.cuda.stream(torch.cuda.Stream(device=SECOND)), torch.cuda.device(0):
        yield
        torch.cuda.synchronize(SECOND)


def busy(torch: Any, on_gpu: bool) -> None:
    """Keep torch's current stream of the second GPU busy for some milliseconds, so that it reads late."""
    if on_gpu:
        matrix = torch.ones((4096, 4096), device=SECOND)
        for _ in range(10):
            matrix = matrix @ matrix / 4096


@pytest.mark.parametrize("handoff", ["copy", "lease"])
def test_torch_on_a_side_stream_of_the_second_gpu_gets_the_right_values(
    cupy: Any, torch: Any, on_gpu: bool, handoff: str
) -> None:
    kept = []
    with side_stream(torch, on_gpu), batches(SECOND, handoff=handoff, framework="torch") as loader:
        for batch in loader:
            busy(torch, on_gpu)
            if handoff == "lease":
                with batch:
                    kept.append(batch.torch()["x"].clone())
            else:
                kept.append(batch["x"])
    assert cupy.cuda.runtime.getDevice() == 0
    assert len(kept) == ROWS // BATCH
    assert {str(values.device) for values in kept} == {SECOND}
    assert all((values.cpu().numpy() == expected(number)).all() for number, values in enumerate(kept))


def gpus_of(arrays: list[Any], jax: Any, on_gpu: bool) -> set[int]:
    """Return the GPUs that arrays are on; the stand-in's are where they were imported from."""
    if not on_gpu:
        return set(jax.imported_from)
    return {device.id for array in arrays for device in array.devices()}


@pytest.mark.parametrize("handoff", ["copy", "lease"])
def test_jax_arrays_are_on_the_second_gpu_with_the_right_values(
    cupy: Any, jax: Any, on_gpu: bool, handoff: str
) -> None:
    kept = []
    with batches(SECOND, handoff=handoff, framework="jax") as loader:
        for batch in loader:
            if handoff == "lease":
                with batch:
                    kept.append(batch.jax()["x"])
            else:
                kept.append(batch["x"])
    assert cupy.cuda.runtime.getDevice() == 0
    assert len(kept) == ROWS // BATCH
    assert gpus_of(kept, jax, on_gpu) == {1}
    assert all((np.asarray(values) == expected(number)).all() for number, values in enumerate(kept))


def test_images_cast_for_jax_are_on_the_second_gpu_with_the_right_values(cupy: Any, jax: Any, on_gpu: bool) -> None:
    cast = asd.ImageCast(dtype="float16", flip="random", crop=(12, 12), crop_at="random")
    with batches("cpu", IMAGES, transform=cast) as loader:
        wanted = [batch["x"] for batch in loader]
    with batches(SECOND, IMAGES, transform=cast, framework="jax") as loader:
        kept = [batch["x"] for batch in loader]
    assert cupy.cuda.runtime.getDevice() == 0
    assert gpus_of(kept, jax, on_gpu) == {1}
    for found, right in zip(kept, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(found), right)


def test_loaders_on_two_gpus_that_take_turns_do_not_mix_their_batches(cupy: Any) -> None:
    with batches("cuda:0") as first, batches(SECOND, -VALUES) as second:
        kept = [(one["x"], other["x"]) for one, other in zip(first, second, strict=True)]
    assert cupy.cuda.runtime.getDevice() == 0
    assert len(kept) == ROWS // BATCH
    assert {(one.device.id, other.device.id) for one, other in kept} == {(0, 1)}
    for number, (one, other) in enumerate(kept):
        np.testing.assert_array_equal(one.get(), expected(number))
        np.testing.assert_array_equal(other.get(), -expected(number))
