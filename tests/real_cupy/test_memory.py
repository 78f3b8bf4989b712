"""Arrays over memory that CuPy does not own: what the backend does with them, which needs no driver.

The memory is the host's. CuPy cannot know: it looks at nothing before something is run.
"""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aiostream_data.device.cuda_context import Freed


class Owner:
    """What owns memory, as the backend hands it to CuPy: an address and a size."""

    def __init__(self, nbytes: int) -> None:
        self.array = np.arange(nbytes, dtype=np.uint8)
        self.ptr, self.size = self.array.ctypes.data, nbytes


@pytest.fixture
def owner() -> Owner:
    return Owner(256)


def pointer_to(cupy: Any, owner: Owner) -> Any:
    memory = cupy.cuda.UnownedMemory(owner.ptr, owner.size, owner, 0)
    return cupy.cuda.MemoryPointer(memory, 0)


def test_page_locked_memory_of_any_owner_is_a_buffer_of_its_size(cupy: Any, owner: Owner) -> None:
    array = np.frombuffer(cupy.cuda.PinnedMemoryPointer(owner, 0), np.uint8, 100)
    assert array.ctypes.data == owner.ptr
    assert array.tolist() == list(range(100))
    array[0] = 7
    assert owner.array[0] == 7


def test_what_the_backend_frees_itself_is_an_owner_that_cupy_takes(cupy: Any, owner: Owner) -> None:
    context: Any = SimpleNamespace(errors=(), current=nullcontext, inherited=False)
    freed: Any = Freed(owner, context, owner.size)
    array = np.frombuffer(cupy.cuda.PinnedMemoryPointer(freed, 0), np.uint8, owner.size)
    assert (array == owner.array).all()
    assert int(pointer_to(cupy, freed).ptr) == owner.ptr


def test_a_pointer_moves_by_bytes_and_knows_its_gpu(cupy: Any, owner: Owner) -> None:
    pointer = pointer_to(cupy, owner) + 24
    assert pointer.ptr == owner.ptr + 24
    assert pointer.device_id == 0


def test_an_array_has_what_the_backend_asks_it_for(cupy: Any, owner: Owner) -> None:
    array = cupy.ndarray((2, 3), np.dtype(np.int16), memptr=pointer_to(cupy, owner) + 8)
    assert isinstance(array, cupy.ndarray)
    assert (tuple(array.shape), array.dtype, array.nbytes) == ((2, 3), np.int16, 12)
    assert int(array.data.ptr) == owner.ptr + 8
    assert array.device.id == 0
    assert array.flags.c_contiguous
    assert not array.T.flags.c_contiguous


def test_an_empty_array_has_the_address_it_was_given(cupy: Any, owner: Owner) -> None:
    array = cupy.ndarray((0, 4), np.dtype(np.float32), memptr=pointer_to(cupy, owner))
    assert (array.nbytes, int(array.data.ptr)) == (0, owner.ptr)


@pytest.mark.parametrize("kind", ["page-locked", "array", "view"])
def test_owners_live_as_long_as_arrays_and_views_of_them(cupy: Any, kind: str) -> None:
    owner = Owner(256)
    alive = weakref.ref(owner)
    kept: Any
    if kind == "page-locked":
        kept = np.frombuffer(cupy.cuda.PinnedMemoryPointer(owner, 0), np.uint8, 256)[:8]
    else:
        kept = cupy.ndarray((256,), np.dtype(np.uint8), memptr=pointer_to(cupy, owner))
        kept = kept[8:16] if kind == "view" else kept
    del owner
    gc.collect()
    assert alive() is not None
    del kept
    gc.collect()
    assert alive() is None


def test_numbers_that_are_named_in_our_code_are_those_of_cupy(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    assert (runtime.hostAllocPortable, runtime.hostAllocWriteCombined) == (1, 4)
    assert (runtime.memcpyHostToDevice, runtime.memcpyDeviceToDevice) == (1, 3)
    assert not runtime.is_hip


def test_memory_that_is_lacking_is_told_with_the_numbers_that_are_given(cupy: Any) -> None:
    assert "allocating 10 bytes" in str(cupy.cuda.memory.OutOfMemoryError(10, 20, 30))
