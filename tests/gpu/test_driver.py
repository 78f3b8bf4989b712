"""What is asked of NVIDIA's driver: here of a library that has a context on the second of two GPUs."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_at_hand import cupy_of_two_gpus

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.gpu import driver

SOURCE = """
#include <stdint.h>
#include <string.h>
static void *const FIRST = (void *)0x7f00000000000010, *const SECOND = (void *)0x7f00000000000020;
static void *current, *before;
int retained = 0;
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int index) { if (index > 1) return 101; *device = index + 70; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 4;
    *active = device == 71;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { retained++; *context = device == 71 ? SECOND : 0; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { retained--; return 0; }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxPushCurrent_v2(void *context) { before = current; current = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = current; current = before; return 0; }
int cuMemcpyDtoH_v2(void *target, uint64_t source, size_t nbytes) {
    if (current != SECOND) return 201;
    memcpy(target, (void *)source, nbytes);
    return 0;
}
void use_first(void) { current = FIRST; }
"""
"""Handles need all 64 bits, as those of a driver do."""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to make a driver with")
    source, made = tmp_path / "driver.c", tmp_path / "libcuda.so"
    source.write_text(SOURCE)
    command = [compiler, "-shared", "-fPIC", str(source), "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    monkeypatch.setattr(driver, "LIBRARY", str(made))
    return ctypes.CDLL(str(made))


def test_the_driver_says_which_gpus_have_a_context(library: Any) -> None:
    asked = driver.Driver()
    assert [asked.has_context(index) for index in (0, 1)] == [False, True]
    with pytest.raises(OSError, match=r"cuDeviceGet of .* returned 101"):
        asked.has_context(2)


def test_memory_is_read_in_the_context_of_its_gpu_and_the_thread_keeps_its_own(library: Any) -> None:
    asked, values = driver.Driver(), np.arange(1000, dtype=np.int32)
    assert asked.current() == 0
    library.use_first()
    assert asked.current() == 0x7F00000000000010
    assert asked.read(1, values.ctypes.data, values.nbytes) == values.tobytes()
    with pytest.raises(OSError, match=r"cuMemcpyDtoH_v2 of .* returned 201"):
        asked.read(0, values.ctypes.data, values.nbytes)
    assert asked.current() == 0x7F00000000000010
    assert ctypes.c_int.in_dll(library, "retained").value == 0


@pytest.mark.gpu
def test_the_real_driver_reads_what_cupy_wrote_on_a_second_gpu() -> None:
    cupy = cupy_of_two_gpus()
    with cupy.cuda.Device(1):
        values = cupy.asarray(np.arange(1000))
    asked = driver.Driver()
    assert asked.has_context(1)
    before = asked.current()
    assert asked.read(1, int(values.data.ptr), values.nbytes) == np.arange(1000).tobytes()
    assert asked.current() == before
