"""Parts of an array become ``bytes`` objects, with and without the native kernel."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import ModuleType
from typing import Any, ClassVar

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

    def test_text_is_decoded_from_utf_8(self, kernel: ModuleType) -> None:
        text = ["plain", "", "grün", "日本", "\U0001f600 and NUL \0"]
        rows = [each.encode() for each in text]
        lengths = indices(*map(len, rows))
        values = np.frombuffer(b"".join(rows), np.uint8)
        assert kernel.str_rows(values, np.cumsum(lengths) - lengths, lengths) == text
        assert kernel.str_rows(np.empty(0, np.uint8), indices(0), indices(0)) == [""]

    def test_arrays_of_objects_have_the_same_rows(self, kernel: ModuleType) -> None:
        values = np.frombuffer("grün, \U0001f600".encode(), np.uint8)
        starts, lengths = indices(0, 7, 0, 2, 11), indices(5, 4, 0, 2, 0)
        for make, rows_of in ((kernel.byte_objects, kernel.byte_rows), (kernel.str_objects, kernel.str_rows)):
            made = make(values, starts, lengths)
            assert (made.dtype, made.shape) == (np.dtype(object), (5,))
            assert made.tolist() == rows_of(values, starts, lengths)
            assert make(np.empty(0, np.uint8), indices(), indices()).tolist() == []
            with pytest.raises(IndexError, match="row 0 "):
                make(values, indices(12), indices(1))

    def test_the_error_of_invalid_text_is_that_of_python(self, kernel: ModuleType) -> None:
        for make in (kernel.str_rows, kernel.str_objects):
            with pytest.raises(UnicodeDecodeError) as raised:
                make(np.frombuffer(b"ok\xffno", np.uint8), indices(0, 1), indices(2, 3))
            assert (raised.value.object, raised.value.start, raised.value.encoding) == (b"k\xffn", 1, "utf-8")

    def test_text_outside_the_values_is_an_error(self, kernel: ModuleType) -> None:
        with pytest.raises(IndexError, match="row 1 "):
            kernel.str_rows(np.zeros(6, np.uint8), indices(0, 5), indices(1, 2))

    def test_rows_are_written_to_given_memory(self, kernel: ModuleType) -> None:
        values = np.frombuffer(b"abcdef", np.uint8)
        memory = kernel.BytesPool(1 << 20).memory([2, 0, 3])
        rows = kernel.byte_rows(values, indices(4, 0, 1), indices(2, 0, 3), memory)
        assert rows == [b"ef", b"", b"bcd"]
        assert [each.data() for each in memory] == rows

    def test_memory_of_another_size_is_an_error(self, kernel: ModuleType) -> None:
        memory = kernel.BytesPool(1 << 20).memory([2, 4])
        with pytest.raises(ValueError, match=r"row 1 has 3 bytes|different structures"):
            kernel.byte_rows(np.zeros(6, np.uint8), indices(0, 1), indices(2, 3), memory)

    def test_starts_and_lengths_must_be_equally_many(self, kernel: ModuleType) -> None:
        with pytest.raises(ValueError, match="2 starts and 1 lengths"):
            kernel.byte_rows(np.zeros(6, np.uint8), indices(0, 1), indices(1))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
class TestByteRowsOfSeveralArrays:
    SOURCES: ClassVar = [np.frombuffer(text, np.uint8) for text in (b"abcdef", b"", b"xyz")]

    @pytest.mark.parametrize("is_given", [False, True])
    def test_each_row_comes_from_its_own_array(self, kernel: ModuleType, is_given: bool) -> None:
        lengths = indices(3, 2, 0, 0, 6)
        memory = kernel.BytesPool(1 << 20).memory(lengths.tolist()) if is_given else None
        which = np.array([2, 0, 1, 0, 0], np.int32)
        rows = kernel.byte_rows_many(self.SOURCES, which, indices(0, 4, 0, 6, 0), lengths, memory)
        assert rows == [b"xyz", b"ef", b"", b"", b"abcdef"]

    def test_no_rows_are_no_error(self, kernel: ModuleType) -> None:
        assert kernel.byte_rows_many(self.SOURCES, np.empty(0, np.int32), indices(), indices()) == []

    def test_large_rows_equal_their_slices(self, kernel: ModuleType) -> None:
        draws = np.random.default_rng(5)
        sources = [draws.integers(0, 256, nbytes, np.uint8) for nbytes in (1 << 20, 300_000)]
        which, starts = np.array([0, 1, 0], np.int32), indices(500_000, 7, 0)
        expected = [sources[k][start : start + 200_000].tobytes() for k, start in zip(which, starts, strict=True)]
        assert kernel.byte_rows_many(sources, which, starts, np.full(3, 200_000)) == expected

    @pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1), (0, 4), (3, 1), (4, 0), (1 << 62, 1 << 62)])
    def test_a_row_outside_its_array_raises_before_anything_is_copied(
        self, kernel: ModuleType, start: int, length: int
    ) -> None:
        with pytest.raises(IndexError, match=r"row 1 .* outside 3 bytes"):
            kernel.byte_rows_many(self.SOURCES, np.array([0, 2], np.int32), indices(5, start), indices(1, length))

    @pytest.mark.parametrize("source", [-1, 3])
    def test_an_array_that_does_not_exist_is_an_error(self, kernel: ModuleType, source: int) -> None:
        with pytest.raises(IndexError, match="of 3"):
            kernel.byte_rows_many(self.SOURCES, np.array([source], np.int32), indices(0), indices(1))

    def test_rows_must_have_one_array_start_and_length_each(self, kernel: ModuleType) -> None:
        for count in (0, 2):
            with pytest.raises(ValueError, match="equally many"):
                kernel.byte_rows_many(self.SOURCES, np.zeros(count, np.int32), indices(0), indices(1))
        with pytest.raises(ValueError, match="1 starts and 2 lengths"):
            kernel.byte_rows_many(self.SOURCES, np.zeros(1, np.int32), indices(0), indices(1, 1))


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


KIB = 1 << 10


def written(memory: Iterable[Any], fill: bytes) -> list[bytes]:
    """Fill the memory of each object with one byte, and return the objects."""
    objects = []
    for each in memory:
        with each.view() as view:
            view[:] = fill * len(view)
        objects.append(each.data())
    return objects


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
class TestBytesPool:
    @pytest.mark.parametrize("sizes", [[], [0], [1, 2, 0], [40 * KIB, 41 * KIB, 5_000_000]])
    def test_objects_have_their_sizes_and_what_was_written(self, kernel: ModuleType, sizes: list[int]) -> None:
        pool = kernel.BytesPool(1 << 24)
        for fill in (b"a", b"b"):
            assert written(pool.memory(sizes), fill) == [fill * nbytes for nbytes in sizes]

    def test_an_object_in_use_keeps_its_bytes(self, kernel: ModuleType) -> None:
        pool = kernel.BytesPool(1 << 24)
        (kept,) = written(pool.memory([40 * KIB]), b"a")
        view, array = memoryview(bytes(kept)), np.frombuffer(written(pool.memory([40 * KIB]), b"v")[0], np.uint8)
        for fill in (b"b", b"c"):
            written(pool.memory([40 * KIB] * 3), fill)
        assert kept == b"a" * 40 * KIB
        assert view == kept
        assert array.tobytes() == b"v" * 40 * KIB

    def test_a_negative_size_is_an_error(self, kernel: ModuleType) -> None:
        with pytest.raises(ValueError, match=r"negative|at least 0"):
            kernel.BytesPool(1 << 20).memory([4, -1])

    def test_a_closed_pool_leaves_what_is_in_use_alone(self, kernel: ModuleType) -> None:
        pool = kernel.BytesPool(1 << 24)
        objects = written(pool.memory([40 * KIB] * 2), b"a")
        pool.close()
        assert pool.nbytes == 0
        written(pool.memory([40 * KIB] * 2), b"b")
        assert pool.nbytes == 0
        assert objects == [b"a" * 40 * KIB] * 2


@pytest.mark.skipif(len(KERNELS) == 1, reason="only the native kernel reuses memory")
class TestReuse:
    def test_memory_of_dropped_objects_is_used_again(self) -> None:
        pool = row_bytes.BytesPool(1 << 24)
        for fill in (b"a", b"b", b"c"):
            objects = written(pool.memory([40 * KIB] * 10), fill)
            assert objects == [fill * 40 * KIB] * 10
            del objects
        assert pool.nbytes == 10 * 40 * KIB

    def test_an_object_that_reuses_memory_is_like_a_new_one(self) -> None:
        pool = row_bytes.BytesPool(1 << 24)
        (before,) = written(pool.memory([40 * KIB]), b"a")
        found = {before: 1}
        del found, before
        (after,) = written(pool.memory([40 * KIB - 5]), b"b")
        expected = b"b" * (40 * KIB - 5)
        assert pool.nbytes == 40 * KIB
        assert (len(after), hash(after), {expected: 1}[after]) == (len(expected), hash(expected), 1)
        assert after + b"" == expected
        assert after.find(b"a") == -1
        gc.collect()

    def test_the_pool_remembers_objects_up_to_its_limit(self) -> None:
        pool = row_bytes.BytesPool(100 * KIB)
        objects = written(pool.memory([40 * KIB] * 5), b"a")
        assert pool.nbytes == 80 * KIB
        assert objects == [b"a" * 40 * KIB] * 5

    def test_unused_objects_of_other_sizes_make_room(self) -> None:
        pool = row_bytes.BytesPool(100 * KIB)
        written(pool.memory([40 * KIB] * 2), b"a")
        (kept,) = written(pool.memory([80 * KIB]), b"b")
        assert pool.nbytes == 80 * KIB
        assert kept == b"b" * 80 * KIB

    def test_objects_that_users_keep_do_not_end_the_reuse_of_others(self) -> None:
        pool = row_bytes.BytesPool(1 << 26)
        kept = written(pool.memory([40 * KIB] * 400), b"k")
        for _ in range(20):
            written(pool.memory([40 * KIB] * 10), b"a")
        assert pool.nbytes <= 430 * 40 * KIB
        assert kept == [b"k" * 40 * KIB] * 400
