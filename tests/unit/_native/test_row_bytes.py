"""Parts of an array become ``bytes`` objects, with and without the native kernel."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data._native import row_bytes_py

KERNELS: list[ModuleType] = [row_bytes_py]
try:
    from aiostream_data._native import row_bytes
except ImportError:
    pass
else:
    KERNELS.append(row_bytes)


def indices(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
class TestByteRows:
    def test_rows_may_overlap_be_empty_and_be_out_of_order(self, kernel: ModuleType) -> None:
        values = np.frombuffer(b"abcdef", np.uint8)
        rows = kernel.byte_rows(values, indices(4, 0, 6, 1, 2), indices(2, 3, 0, 1, 4))
        assert rows == [b"ef", b"abc", b"", b"b", b"cdef"]

    def test_no_rows_and_no_values_are_no_error(self, kernel: ModuleType) -> None:
        nothing = np.empty(0, np.uint8)
        assert kernel.byte_rows(nothing, indices(), indices()) == []
        assert kernel.byte_rows(nothing, indices(0), indices(0)) == [b""]

    def test_large_rows_equal_their_slices(self, kernel: ModuleType) -> None:
        values = np.random.default_rng(3).integers(0, 256, 1 << 20, np.uint8)
        starts, lengths = np.arange(4) << 18, np.full(4, 200_000)
        expected = [values[start : start + 200_000].tobytes() for start in starts.tolist()]
        assert kernel.byte_rows(values, starts, lengths) == expected

    def test_strided_indices_are_read_with_their_stride(self, kernel: ModuleType) -> None:
        values = np.frombuffer(b"abcdef", np.uint8)
        lengths = np.broadcast_to(np.int64(2), 3)
        assert kernel.byte_rows(values, np.arange(6)[::2], lengths) == [b"ab", b"cd", b"ef"]

    @pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1), (0, 7), (6, 1), (7, 0), (1 << 62, 1 << 62)])
    def test_a_row_outside_the_values_raises_before_anything_is_copied(
        self, kernel: ModuleType, start: int, length: int
    ) -> None:
        with pytest.raises(IndexError, match="row 1 "):
            kernel.byte_rows(np.zeros(6, np.uint8), indices(0, start), indices(1, length))

    def test_starts_and_lengths_must_be_equally_many(self, kernel: ModuleType) -> None:
        with pytest.raises(ValueError, match="2 starts and 1 lengths"):
            kernel.byte_rows(np.zeros(6, np.uint8), indices(0, 1), indices(1))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
class TestBytesMemory:
    @pytest.mark.parametrize("nbytes", [0, 1, 2, 5_000_000])
    def test_what_is_written_becomes_the_bytes_object(self, kernel: ModuleType, nbytes: int) -> None:
        expected = np.random.default_rng(4).integers(0, 256, nbytes, np.uint8).tobytes()
        memory = kernel.BytesMemory(nbytes)
        with memory.view() as view:
            assert (len(view), view.readonly) == (nbytes, False)
            view[:] = expected
        assert type(memory.data()) is bytes
        assert memory.data() == expected

    def test_a_view_keeps_the_memory_alive(self, kernel: ModuleType) -> None:
        view = kernel.BytesMemory(1 << 20).view()
        part = view[10:20]
        view.release()
        others = [kernel.BytesMemory(1 << 20) for _ in range(8)]
        part[:] = b"0123456789"
        assert bytes(part) == b"0123456789"
        assert len(others) == 8

    def test_one_byte_is_not_shared_with_other_objects(self, kernel: ModuleType) -> None:
        memory = kernel.BytesMemory(1)
        with memory.view() as view:
            view[:] = b"x"
        assert (memory.data(), b"y") == (b"x", bytes([121]))

    def test_a_negative_size_is_an_error(self, kernel: ModuleType) -> None:
        with pytest.raises(ValueError, match=r"negative|at least 0"):
            kernel.BytesMemory(-1)
