from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_cupy import FakeCuda, install

import aiostream_data.device
from aiostream_data.device.host import HostBackend
from aiostream_data.device.select import check_device, current_gpu, open_backend
from aiostream_data.errors import DeviceUnavailableError, MissingExtraError, PlanError


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)


@pytest.mark.parametrize("name", ["cpu", "auto", "cuda", "cuda:0", "cuda:17"])
def test_device_names_are_accepted_without_touching_a_device(name: str) -> None:
    assert check_device(name) == name


@pytest.mark.parametrize("name", ["", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:01", "cuda:1 ", "cuda:99999", "\u0661"])
def test_other_names_are_refused_when_the_plan_is_written(name: str) -> None:
    with pytest.raises(PlanError, match="device must be"):
        check_device(name)


def test_without_cupy_the_error_names_both_extras_and_auto_is_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingExtraError, match=r"'cuda:0' needs CuPy .*\[cupy13\].*\[cupy12\]"):
        open_backend("cuda:0")
    assert isinstance(open_backend("auto"), HostBackend)


def test_without_a_driver_the_error_names_the_driver_and_auto_is_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeCuda(driver_status=35))
    with pytest.raises(DeviceUnavailableError, match=r"'cuda' cannot be used: no NVIDIA driver is installed.*35"):
        open_backend("cuda")
    assert open_backend("auto").device == "cpu"


@pytest.mark.parametrize("driver_status", [0, 100])
def test_a_driver_without_a_gpu_is_told_from_a_missing_driver(
    monkeypatch: pytest.MonkeyPatch, driver_status: int
) -> None:
    install(monkeypatch, FakeCuda(devices=0, driver_status=driver_status))
    with pytest.raises(DeviceUnavailableError, match="shows no GPU to this process"):
        open_backend("cuda:0")
    assert open_backend("auto").device == "cpu"


def test_a_gpu_that_is_not_there_is_named_with_how_many_are(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeCuda(devices=2))
    with pytest.raises(DeviceUnavailableError, match=r"'cuda:2' cannot be used: this process sees 2 GPU") as raised:
        open_backend("cuda:2")
    assert not raised.value.absent


def test_the_device_is_the_one_named_else_the_launchers_rank_else_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, FakeCuda(devices=2))
    assert open_backend("cuda").device == "cuda:0"
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert open_backend("cuda").device == "cuda:1"
    assert open_backend("auto").device == "cuda:1"
    assert open_backend("cuda:0").device == "cuda:0"
    monkeypatch.setenv("LOCAL_RANK", "first")
    with pytest.raises(DeviceUnavailableError, match="LOCAL_RANK='first'"):
        open_backend("cuda")


@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_a_loader_takes_the_device_that_is_current_where_it_is_opened(
    monkeypatch: pytest.MonkeyPatch, device: str, stepped: bool
) -> None:
    fake = install(monkeypatch, FakeCuda(devices=3))
    fake.current_device = 2
    dataset = aiostream_data.Dataset.range(4).batch(2).to_device(device)
    with dataset.debug() if stepped else dataset.open() as loader:
        assert len(list(loader)) == 2
        assert [copies.device for copies in loader.stats().devices] == ["cuda:2"]
    assert fake.current_device == 2


def test_the_current_device_is_that_of_torch_where_it_uses_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, FakeCuda(devices=3))
    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False, current_device=lambda: 1))
    monkeypatch.setitem(sys.modules, "torch", torch)
    fake.current_device = 2
    assert current_gpu() == 2
    torch.cuda.is_initialized = lambda: True
    assert current_gpu() == 1


def test_where_no_library_has_started_cuda_none_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert current_gpu() is None
    assert "cupy" not in sys.modules


def test_only_one_file_imports_cupy() -> None:
    package = Path(aiostream_data.device.__file__).parents[1]
    importing = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(line.split()[:2] in (["import", "cupy"], ["from", "cupy"]) for line in path.read_text().splitlines())
    ]
    assert importing == ["device/cuda.py"]
