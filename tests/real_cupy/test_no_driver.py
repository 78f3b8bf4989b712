"""What real CuPy does on a machine without an NVIDIA driver, and what is made of it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aiostream_data as asd
from aiostream_data.device import forks
from aiostream_data.device.cuda_opening import describe_gpus, device_count
from aiostream_data.device.cuda_status import INSUFFICIENT_DRIVER
from aiostream_data.device.host import HostBackend
from aiostream_data.device.select import current_gpu, open_backend
from aiostream_data.errors import DeviceUnavailableError

pytestmark = pytest.mark.usefixtures("no_driver")

ROOT = Path(__file__).resolve().parents[2]
WHAT_TO_DO = "no NVIDIA driver is installed. Install one, or use the device 'cpu'"


def modules_of(*folders: str) -> list[str]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]


@pytest.mark.parametrize("name", modules_of("aiostream_data/device", "benchmarks/gpu"))
def test_every_module_is_imported_beside_cupy(name: str) -> None:
    importlib.import_module(name)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_an_integration_is_imported_where_its_library_is(request: pytest.FixtureRequest, framework: str) -> None:
    if framework == "jax":
        request.getfixturevalue("jax")
    else:
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    importlib.import_module(f"aiostream_data.integrations.{framework}")


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:3"])
def test_a_gpu_that_is_asked_for_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(DeviceUnavailableError, match=WHAT_TO_DO) as raised:
        open_backend(name)
    assert raised.value.absent
    assert raised.value.status == INSUFFICIENT_DRIVER


def test_a_gpu_that_is_asked_for_by_rank_is_refused_with_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(DeviceUnavailableError, match=WHAT_TO_DO):
        open_backend("cuda")


def test_auto_is_the_host() -> None:
    assert isinstance(open_backend("auto"), HostBackend)


def test_no_gpu_is_current() -> None:
    assert current_gpu() is None


def test_gpus_are_described_by_why_there_is_none() -> None:
    assert WHAT_TO_DO in describe_gpus()


def test_asking_for_gpus_leaves_the_process_free_to_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks._HISTORY, "cuda_started_in", None)
    with pytest.raises(DeviceUnavailableError):
        device_count("cuda")
    assert forks._HISTORY.cuda_started_in is None


def test_the_doctor_tells_that_batches_stay_on_the_host_and_why() -> None:
    command = [sys.executable, "-m", "aiostream_data", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("device:")]
    assert line.startswith("device: cpu (")
    assert WHAT_TO_DO in line
    assert "Traceback" not in done.stderr


def test_a_pipeline_runs_on_the_host_beside_cupy() -> None:
    with asd.Dataset.range(8).batch(4).to_device().open() as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


# -- facts about CuPy that the backend rests on


@pytest.mark.parametrize("call", ["getDeviceCount", "getDevice"])
def test_asking_the_runtime_raises_the_status_that_means_no_driver(cupy: Any, call: str) -> None:
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError) as raised:
        getattr(cupy.cuda.runtime, call)()
    assert raised.value.status == INSUFFICIENT_DRIVER


def test_versions_are_told_without_a_driver_and_zero_means_that_there_is_none(cupy: Any) -> None:
    assert cupy.cuda.runtime.driverGetVersion() == 0
    assert cupy.cuda.runtime.runtimeGetVersion() >= 12000


@pytest.mark.parametrize(("call", "arguments"), [("ctxGetCurrent", []), ("ctxSetCurrent", [0])])
def test_calls_of_the_driver_raise_a_plain_runtime_error_that_names_its_library(
    cupy: Any, call: str, arguments: list[int]
) -> None:
    with pytest.raises(RuntimeError, match=r"failed to load libcuda\.so\.1") as raised:
        getattr(cupy.cuda.driver, call)(*arguments)
    assert type(raised.value) is RuntimeError


@pytest.mark.filterwarnings("ignore:.*Stream.__del__:pytest.PytestUnraisableExceptionWarning")  # CuPy's own
def test_memory_and_streams_fail_with_the_status_too_and_not_with_the_driver_s_error(cupy: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: cupy.cuda.Memory(8),
        lambda: cupy.cuda.PinnedMemory(8, cupy.cuda.runtime.hostAllocPortable),
        lambda: cupy.cuda.Stream(non_blocking=True),
        lambda: cupy.cuda.Event(block=True, disable_timing=True),
        lambda: cupy.cuda.runtime.free(0),
    ]
    for make in makers:
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError) as raised:
            make()
        assert raised.value.status == INSUFFICIENT_DRIVER


def test_errors_are_of_the_classes_that_are_caught(cupy: Any) -> None:
    cuda = cupy.cuda
    assert issubclass(cuda.runtime.CUDARuntimeError, RuntimeError)
    assert issubclass(cuda.driver.CUDADriverError, RuntimeError)
    assert not issubclass(cuda.driver.CUDADriverError, cuda.runtime.CUDARuntimeError)
    assert issubclass(cuda.memory.OutOfMemoryError, MemoryError)
    assert not issubclass(cuda.compiler.CompileException, RuntimeError)


@pytest.mark.parametrize("status", [2, 35, 600, 700, 906])
def test_an_error_carries_its_status_as_a_number(cupy: Any, status: int) -> None:
    assert cupy.cuda.runtime.CUDARuntimeError(status).status == status
