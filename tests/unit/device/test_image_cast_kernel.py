"""The kernel's own source: made for the host and held against NumPy, compiled for GPUs, launched over a stand-in."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cupy import FakeCuda, install
from host_kernels import host_kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data.device.backend import DeviceBackend, DeviceBlock
from aiostream_data.device.cast_on_host import cast_batch
from aiostream_data.device.cast_plan import with_cast
from aiostream_data.device.host import aligned_bytes
from aiostream_data.device.image_cast import ImageCast
from aiostream_data.device.image_cast_kernel import KERNELS, SOURCE, launch_of
from aiostream_data.device.layout import TakenApart, fill, take_apart, views
from aiostream_data.device.select import open_backend
from aiostream_data.errors import DeviceError, DeviceUnavailableError

Kernels = dict[str, Callable[..., None]]

GUARD = 0xA5
"""Fills memory before a kernel runs, and must be what is left of it where it may not write."""


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return host_kernels()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install(monkeypatch, FakeCuda())


def prepared(images: NDArray[np.uint8], cast: ImageCast) -> tuple[TakenApart, NDArray[np.uint8]]:
    """Return images taken apart for a cast, and a slot that they are written into."""
    keys = np.random.default_rng(len(images)).integers(0, 2**64, len(images), np.uint64)
    parts = with_cast(take_apart(images, "cuda:0", keeps_objects=False), cast, keys)
    slot = aligned_bytes(parts.layout.nbytes)
    fill(views(slot, parts.layout), parts.sources)
    return parts, slot


def by_both(kernels: Kernels, images: NDArray[np.uint8], cast: ImageCast) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what the kernel and what NumPy makes of images, as bits, with 64 bytes of guard behind."""
    parts, slot = prepared(images, cast)
    plan = parts.layout.cast
    assert plan is not None
    made = []
    for run in ("kernel", "numpy"):
        own = aligned_bytes(plan.target.nbytes + 64)
        own[:] = GUARD
        if run == "numpy":
            cast_batch(own, slot, plan)
        else:
            launch = launch_of(plan.casts[0], own.ctypes.data, slot.ctypes.data)
            assert launch is not None
            kernels[launch.name](*launch.arguments)
        made.append(own.copy())
    return made[0], made[1]


@settings(max_examples=150)
@given(
    rows=st.integers(1, 3),
    size=st.tuples(st.integers(1, 13), st.integers(1, 13)),
    cut=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    channels=st.sampled_from([1, 2, 3, 4, 5]),
    dtype=st.sampled_from(["float16", "float32"]),
    layout=st.sampled_from(["NCHW", "NHWC"]),
    flip=st.sampled_from([False, True, "random"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_kernel_makes_the_very_bits_that_numpy_makes_and_writes_nothing_else(
    kernels: Kernels,
    rows: int,
    size: tuple[int, int],
    cut: tuple[int, int],
    channels: int,
    dtype: str,
    layout: str,
    flip: Any,
    seed: int,
) -> None:
    chance = np.random.default_rng(seed)
    images = chance.integers(0, 256, (rows, size[0] + cut[0], size[1] + cut[1], channels), np.uint8)
    mean, std = chance.normal(size=channels), chance.uniform(0.01, 9, channels)
    cast = ImageCast(
        dtype=dtype, layout=layout, mean=mean.tolist(), std=std.tolist(), flip=flip, crop=size, crop_at="random"
    )
    kernel, numpy = by_both(kernels, images, cast)
    np.testing.assert_array_equal(kernel, numpy)


@pytest.mark.parametrize("numbers", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_target_that_begins_between_groups_of_four_numbers_gets_the_same_bits(
    kernels: Kernels, numbers: int, layout: str, dtype: str
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 16, 3), np.uint8)
    parts, slot = prepared(images, ImageCast(dtype=dtype, layout=layout, mean=0.45, std=0.22))
    plan = parts.layout.cast
    assert plan is not None
    expected = aligned_bytes(plan.target.nbytes)
    cast_batch(expected, slot, plan)
    own = aligned_bytes(plan.target.nbytes + 64)
    start = numbers * np.dtype(dtype).itemsize
    launch = launch_of(plan.casts[0], own.ctypes.data + start, slot.ctypes.data)
    assert launch is not None
    kernels[launch.name](*launch.arguments)
    np.testing.assert_array_equal(own[start : start + plan.target.nbytes], expected)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("flip", [False, True])
def test_images_of_a_usual_size_take_the_wide_path_to_the_same_bits(
    kernels: Kernels, layout: str, dtype: str, channels: int, flip: bool
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 64, 72, channels), np.uint8)
    cast = ImageCast(dtype=dtype, layout=layout, mean=0.45, std=0.22, flip=flip, crop=(56, 64))
    kernel, numpy = by_both(kernels, images, cast)
    np.testing.assert_array_equal(kernel, numpy)


@pytest.mark.parametrize("shift", [0.0, 3e-5, 6e-8, 7e-6, 0.999, 65.0])
@pytest.mark.parametrize("scale", [1e-7, 3.7e-6, 0.0117, 250.0])
def test_float16_is_rounded_to_even_from_subnormals_to_the_largest(
    kernels: Kernels, scale: float, shift: float
) -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    cast = ImageCast(dtype="float16", scale=scale, mean=-shift)
    kernel, numpy = by_both(kernels, pixels, cast)
    np.testing.assert_array_equal(kernel, numpy)


def test_a_launch_covers_every_group_and_stays_within_what_cuda_allows() -> None:
    for rows, height, width in ((1, 1, 1), (70_000, 1, 1), (2, 3000, 4001), (256, 224, 224)):
        images = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (rows, height, width, 3), (0, 0, 0, 0))
        parts = with_cast(take_apart(images, "cuda:0", keeps_objects=False), ImageCast(), None)
        assert parts.layout.cast is not None
        launch = launch_of(parts.layout.cast.casts[0], 1 << 40, 1 << 41)
        assert launch is not None
        across, down = launch.grid
        assert 1 <= across < 2**31
        assert 1 <= down <= 65_535
        assert launch.block[0] <= 1024
        assert launch.name in KERNELS
        assert [type(argument) for argument in launch.arguments] == [np.uint64] * 4 + [np.int32] * 6


def test_nothing_is_launched_for_nothing() -> None:
    parts, _ = prepared(np.zeros((0, 4, 4, 3), np.uint8), ImageCast())
    assert parts.layout.cast is not None
    assert launch_of(parts.layout.cast.casts[0], 0, 0) is None


# -- compilers


def test_the_source_compiles_for_gpus_without_spilling_a_register(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc to compile the kernels with")
    source = tmp_path / "kernels.cu"
    source.write_text(SOURCE)
    command = [nvcc, "-arch=sm_80", "-cubin", "-Xptxas", "-v", "-Werror", "all-warnings", str(source)]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "kernels.cubin")], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Compiling entry function") == len(KERNELS)
    assert done.stderr.count("0 bytes spill stores, 0 bytes spill loads") == len(KERNELS), done.stderr
    assert done.stderr.count("0 bytes stack frame") == len(KERNELS), done.stderr


def nvrtc_library() -> Any:
    """Return the library that CuPy compiles with; skips the test where there is none."""
    nvidia = importlib.util.find_spec("nvidia")
    folders = list(nvidia.submodule_search_locations or ()) if nvidia else []
    wheels = sorted(str(path) for folder in folders for path in Path(folder).rglob("libnvrtc.so*"))
    found = next(iter(wheels), None) or ctypes.util.find_library("nvrtc")
    if found is None:
        pytest.skip("no NVRTC to compile the kernels with")
    return ctypes.CDLL(found)


@pytest.mark.parametrize("standard", ["c++14", "c++17"])
def test_the_source_compiles_with_nvrtc_as_cupy_does_it(standard: str) -> None:
    nvrtc, program, size = nvrtc_library(), ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 2)(f"-std={standard}".encode(), b"-arch=sm_90")
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE.encode(), b"kernels.cu", 0, None, None) == 0
    status = nvrtc.nvrtcCompileProgram(program, 2, options)
    assert nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
    log = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetProgramLog(program, log) == 0
    assert status == 0, log.value.decode()
    assert log.value.strip() == b""


def test_the_source_needs_no_header() -> None:
    assert "#include" not in SOURCE


# -- over a stand-in for CuPy


def block_of(backend: DeviceBackend, content: NDArray[np.uint8]) -> DeviceBlock:
    block = backend.device_block(content.nbytes)
    backend.view(block, 0, content.shape, content.dtype)[:] = content
    return block


def test_a_gpu_backend_casts_and_copies_on_the_stream_that_it_is_given(fake: FakeCuda) -> None:
    backend = open_backend("cuda:0")
    backend.prepare_cast()
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    batch = {"before": np.arange(3), "image": images, "after": np.arange(5.0)}
    cast = ImageCast(dtype="float16", flip=True)
    parts = with_cast(take_apart(batch, "cuda:0", keeps_objects=False), cast, None)
    plan = parts.layout.cast
    assert plan is not None
    content, expected = aligned_bytes(parts.layout.nbytes), aligned_bytes(plan.target.nbytes)
    fill(views(content, parts.layout), parts.sources)
    cast_batch(expected, content, plan)
    slot, own, stream = block_of(backend, content), backend.consumer_block(plan.target.nbytes), backend.stream()
    fake.log.clear()
    backend.cast(own, slot, plan, stream)
    for array in plan.target.arrays:
        found = backend.view(own, array.offset, array.shape, array.dtype)
        np.testing.assert_array_equal(found, np.ndarray(array.shape, array.dtype, buffer=expected, offset=array.offset))
    assert [name for name, *_ in fake.log] == ["memcpyAsync", "memcpyAsync", "launch"]
    assert {entry[-1] for entry in fake.log} == {stream.ptr}


def test_kernels_are_made_once_and_before_the_first_batch(fake: FakeCuda) -> None:
    backend = open_backend("cuda:0")
    assert "RawModule" not in fake.names()
    backend.prepare_cast()
    backend.prepare_cast()
    assert fake.names().count("RawModule") == 1
    assert fake.names().count("get_function") == len(KERNELS)


@pytest.mark.parametrize("call", ["RawModule", "get_function"])
def test_a_compiler_that_is_not_there_is_told_with_its_cure(fake: FakeCuda, call: str) -> None:
    backend = open_backend("cuda:0")
    fake.broken_compiler = call
    with pytest.raises(
        DeviceUnavailableError, match=r"ImageCast needs .* NVRTC: .*pip install 'aiostream-data\[cupy13\]'"
    ):
        backend.prepare_cast()
    fake.broken_compiler = ""
    backend.prepare_cast()


def test_a_launch_that_fails_is_an_error_of_the_device(fake: FakeCuda) -> None:
    backend = open_backend("cuda:0")
    parts, content = prepared(np.zeros((1, 4, 4, 3), np.uint8), ImageCast())
    assert parts.layout.cast is not None
    slot = block_of(backend, content)
    own, stream = backend.consumer_block(parts.layout.outside.nbytes), backend.stream()
    fake.failing["launch"] = 700
    with pytest.raises(DeviceError, match="could not launch cast_f32_planar") as caught:
        backend.cast(own, slot, parts.layout.cast, stream)
    assert caught.value.status == 700
