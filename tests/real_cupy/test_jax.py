"""What JAX does with batches, on the CPU: where arrays are, what a failure becomes, and what the pages rest on."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import DeviceError, DeviceMemoryError, ForkedPipelineError, GraphCaptureError, PlanError

ROOT = Path(__file__).resolve().parents[2]
ROWS = np.arange(64, dtype=np.int32).reshape(16, 4)


def batches(**options: Any) -> Iterator[Any]:
    with asd.Dataset.from_tensor_slices({"x": ROWS}).batch(4).to_device("cpu", **options).open() as loader:
        yield from loader


def committed(array: Any) -> bool:
    return bool(array.committed if hasattr(array, "committed") else array._committed)


# -- placement


def test_arrays_are_on_jax_s_default_device_and_committed_to_none(jax: Any) -> None:
    arrays = [batch["x"] for batch in batches(framework="jax")]
    assert [array.devices() for array in arrays] == [{jax.local_devices()[0]}] * 4
    assert [committed(array) for array in arrays] == [False] * 4
    assert (np.concatenate(arrays) == ROWS).all()


TWO_DEVICES = """
import jax, numpy as np
import aiostream_data as asd

first, second = jax.local_devices()
rows = asd.Dataset.from_tensor_slices(np.arange(8, dtype=np.int32)).batch(4).to_device("cpu", framework="jax")
with jax.default_device(second), rows.open() as loader:
    arrays = list(loader)
assert [array.devices() for array in arrays] == [{second}, {second}], "the default of the thread that asks"
fixed = jax.device_put(np.ones(4, np.int32), first)
assert (arrays[0] + fixed).devices() == {first}, "what is committed to no device goes where it is needed"
"""


def test_the_default_device_is_that_of_the_consumer_and_arrays_go_where_they_are_needed(jax: Any) -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-W", "ignore", "-c", TWO_DEVICES]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


# -- errors


class Exported:
    """An array whose export does something else first."""

    def __init__(self, first: Callable[[], object]) -> None:
        self._first = first

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **asked: Any) -> Any:
        self._first()
        return np.zeros(4, np.float32).__dlpack__()


def copies_on_a_device(first: Callable[[], object]) -> None:
    copies = importlib.import_module("aiostream_data.integrations.jax").GpuCopies()
    made, ready = copies.copies([], [Exported(first)], lambda: None)
    ready()
    assert [array.shape for array in made] == [(4,)]


def copies_on_the_host(first: Callable[[], object]) -> None:
    class Native:
        def __array__(self, *arguments: Any, **options: Any) -> Any:
            first()
            return np.zeros(4, np.float32)

    copies = importlib.import_module("aiostream_data.integrations.jax").HostCopies()
    made, _ = copies.copies([Native()], [], lambda: None)
    assert [array.shape for array in made] == [(4,)]


both = pytest.mark.parametrize("copying", [copies_on_a_device, copies_on_the_host])


@both
def test_a_copy_that_works_fails_not(jax: Any, copying: Callable[[Callable[[], object]], None]) -> None:
    copying(lambda: None)


@both
def test_memory_that_jax_lacks_is_a_device_memory_error(jax: Any, copying: Callable[..., None]) -> None:
    with pytest.raises(DeviceMemoryError, match="JAX could not copy a batch: RESOURCE_EXHAUSTED") as raised:
        copying(lambda: jax.numpy.zeros((1 << 50,), np.uint8))
    assert isinstance(raised.value.__cause__, RuntimeError)


@both
def test_a_failure_inside_jax_is_a_device_error(jax: Any, copying: Callable[..., None]) -> None:
    def fail(numbers: Any) -> Any:
        raise ValueError("no such number")

    def run() -> object:
        x = jax.numpy.zeros(4)
        failing = jax.jit(lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct((4,), np.float32), x))
        return jax.block_until_ready(failing(x))

    with pytest.raises(DeviceError, match="JAX could not copy a batch: INTERNAL"):
        copying(run)


@both
@pytest.mark.parametrize(
    "error", [GraphCaptureError("captured"), ForkedPipelineError("forked"), DeviceError("an address", status=700)]
)
def test_errors_of_ours_pass_through_jax_unchanged(jax: Any, copying: Callable[..., None], error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        copying(fail)
    assert raised.value is error


def test_a_gpu_that_jax_does_not_see_is_a_plain_runtime_error_of_jax(jax: Any) -> None:
    with pytest.raises(RuntimeError, match=r"(?i)unknown backend"):
        jax.local_devices(backend="gpu")


# -- facts about DLPack and copies, on which docs/device.md rests


def aligned() -> Any:
    """Return NumPy's zeros where JAX can take them over."""
    raw = np.zeros(4096 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4096].view(np.int32)


def lies_over(source: Any, made: Any) -> bool:
    """Return whether an array of JAX's changes with what it was made of."""
    before = int(np.asarray(made)[0])
    source[0] = before + 1
    return int(np.asarray(made)[0]) != before


@pytest.mark.parametrize(
    "make",
    [
        lambda jax, values: jax.dlpack.from_dlpack(values),
        lambda jax, values: jax.device_put(values),
        lambda jax, values: jax.device_put(values, may_alias=False),
    ],
)
def test_jax_takes_memory_over_without_a_copy_even_where_it_is_asked_for_one(
    jax: Any, make: Callable[[Any, Any], Any]
) -> None:
    source = aligned()
    assert lies_over(source, make(jax, source))


@pytest.mark.parametrize(
    "make",
    [
        lambda jax, values: jax.numpy.array(values, copy=True),
        lambda jax, values: jax.numpy.array(jax.dlpack.from_dlpack(values), copy=True),
    ],
)
def test_the_call_by_which_batches_are_copied_copies(jax: Any, make: Callable[[Any, Any], Any]) -> None:
    source = aligned()
    made = jax.block_until_ready(make(jax, source))
    assert not lies_over(source, made)


def test_what_is_imported_by_dlpack_is_committed_and_its_copies_are(jax: Any) -> None:
    imported = jax.dlpack.from_dlpack(aligned())
    assert committed(imported)
    assert committed(jax.numpy.array(imported, copy=True))
    assert not committed(jax.numpy.array(aligned(), copy=True))


def test_jax_names_no_stream_to_memory_on_the_host(jax: Any) -> None:
    class Asked(Exported):
        def __dlpack__(self, **asked: Any) -> Any:
            streams.append(asked.get("stream"))
            return super().__dlpack__()

    streams: list[Any] = []
    jax.dlpack.from_dlpack(Asked(lambda: None))
    assert streams == [None]


@pytest.mark.parametrize(
    "importing",
    [lambda jax, array: jax.dlpack.from_dlpack(array), lambda jax, array: jax.numpy.from_dlpack(array)],
)
def test_jax_is_refused_a_batch_that_is_lent(jax: Any, importing: Callable[[Any, Any], Any]) -> None:
    for batch in batches(handoff="lease"):
        with batch:
            array = batch.dlpack()["x"]
            with pytest.raises(PlanError, match=r"Call batch\.jax\(\) to copy"):
                importing(jax, array)
            assert np.from_dlpack(array).shape == (4, 4), "others are not"


@pytest.mark.parametrize(("dtype", "given"), [(np.int64, np.int32), (np.float64, np.float32), (np.uint64, np.uint32)])
@pytest.mark.parametrize("handoff", ["copy", "lease"])
def test_numbers_of_64_bits_become_numbers_of_32_bits(jax: Any, dtype: Any, given: Any, handoff: str) -> None:
    rows = asd.Dataset.from_tensor_slices(np.arange(8, dtype=dtype)).batch(8)
    with rows.to_device("cpu", handoff=handoff, framework="jax").open() as loader:  # type: ignore[arg-type]
        (array,) = [batch.jax() if handoff == "lease" else batch for batch in loader]
    assert array.dtype == given
    assert array.tolist() == list(range(8))
