"""Create ``bytes`` objects without extra copies, and validate text: the pure-Python version of ``row_bytes.pyx``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO

import numpy as np
from numpy.typing import NDArray


def str_rows(values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[str]:
    """Return ``[str(values[start:start + length], "utf-8"), ...]`` for all starts and lengths.

    Raises:
        ValueError: A row lies outside ``values``.
        UnicodeDecodeError: A row is not valid UTF-8.
    """
    check_rows(values, starts, lengths)
    view = values.data
    return [
        str(view[start : start + length], "utf-8")
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]


def first_invalid_utf8(values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> int:
    """Return the first row that :func:`str_rows` cannot decode, or -1.

    The check is strict: overlong forms, surrogates and code points above U+10FFFF are invalid.

    Raises:
        ValueError: ``starts`` and ``lengths`` differ in length.
        IndexError: A row is outside ``values``.
    """
    check_rows(values, starts, lengths)
    view = values.data
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        try:
            str(view[start : start + length], "utf-8")
        except UnicodeDecodeError:
            return row
    return -1


def byte_rows(
    values: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    memory: list[BytesMemory] | None = None,
) -> list[bytes]:
    """Return ``[bytes(values[start:start + length]), ...]`` for all starts and lengths.

    Args:
        values: uint8, contiguous.
        starts, lengths: int64, one for each row; no row may exceed the array.
        memory: Memory for each row; None to allocate it.

    Raises:
        ValueError: ``starts`` and ``lengths`` differ in length, or the memory of a row has another size.
        IndexError: A row is outside the array.
    """
    check_rows(values, starts, lengths)
    view = values.data
    if memory is not None:
        return [_written(each, view[a : a + n]) for each, a, n in zip(memory, starts, lengths, strict=True)]
    return [bytes(view[a : a + n]) for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]


def byte_objects(
    values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.object_]:
    """Return the rows of :func:`byte_rows` as a one-dimensional array of objects."""
    return np.fromiter(byte_rows(values, starts, lengths), np.dtype(object), len(starts))


def str_objects(
    values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.object_]:
    """Return the rows of :func:`str_rows` as a one-dimensional array of objects."""
    return np.fromiter(str_rows(values, starts, lengths), np.dtype(object), len(starts))


def byte_rows_many(
    sources: Sequence[NDArray[np.uint8]],
    which: NDArray[np.int32],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    memory: list[BytesMemory] | None = None,
) -> list[bytes]:
    """Return ``[bytes(sources[k][start:start + length]), ...]`` for all ``which``, starts and lengths.

    Args:
        sources: uint8, contiguous.
        which: int32, the source of each row.
        starts, lengths, memory: See :func:`byte_rows`.

    Raises:
        ValueError: See :func:`byte_rows`.
        IndexError: A row is outside its source, or the source does not exist.
    """
    check_rows_many(sources, which, starts, lengths)
    views = [source.data for source in sources]
    rows = [views[k][a : a + n] for k, a, n in zip(which.tolist(), starts.tolist(), lengths.tolist(), strict=True)]
    if memory is None:
        return list(map(bytes, rows))
    return [_written(each, row) for each, row in zip(memory, rows, strict=True)]


def _written(memory: BytesMemory, row: memoryview) -> bytes:
    with memory.view() as into:
        into[:] = row
    return memory.data()


def check_rows(values: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
    """Raise an error if a row is outside the array."""
    _check_within(np.int64(len(values)), np.asarray(starts), np.asarray(lengths))


def check_rows_many(
    sources: Sequence[NDArray[np.uint8]],
    which: NDArray[np.int32],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Raise an error if a row is outside its array."""
    which, starts, lengths = np.asarray(which), np.asarray(starts), np.asarray(lengths)
    if len(which) != len(starts):
        raise ValueError(f"{len(which)} sources and {len(starts)} starts must be equally many")
    if len(which) and (int(which.min()) < 0 or int(which.max()) >= len(sources)):
        raise IndexError(f"rows of the arrays {which.min()} to {which.max()} were requested, of {len(sources)}")
    _check_within(np.array([len(source) for source in sources], np.int64)[which], starts, lengths)


def _check_within(nbytes: NDArray[np.int64] | np.int64, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
    """Raise an error if a row is outside its array.

    Args:
        nbytes: Number of bytes of the array of each row, or of the only array.
    """
    if len(starts) != len(lengths):
        raise ValueError(f"{len(starts)} starts and {len(lengths)} lengths must be equally many")
    is_outside = (starts < 0) | (lengths < 0) | (starts > nbytes - lengths)
    if is_outside.any():
        row = int(is_outside.argmax())
        own = int(np.broadcast_to(nbytes, len(starts))[row])
        raise IndexError(f"row {row} with {lengths[row]} bytes at {starts[row]} is outside {own} bytes")


class BytesMemory:
    """Writable memory that becomes a ``bytes`` object without a copy.

    Args:
        nbytes: Size of the memory. Its content is undefined.
    """

    def __init__(self, nbytes: int) -> None:
        self._buffer = BytesIO(bytes(nbytes))  # the system supplies zeros, which are not written

    def view(self) -> memoryview:
        """Return a writable view, which keeps the memory alive."""
        return self._buffer.getbuffer()

    def data(self) -> bytes:
        """Return the ``bytes`` object. Nobody may write to the memory afterwards."""
        return self._buffer.getvalue()


class BytesPool:
    """Memory of ``bytes`` objects, which becomes the memory of new ones as soon as nobody else refers to them.

    New memory causes a page fault for every 4 KiB written, which can take longer than reading the bytes. This version
    does not reuse memory; the native version does.

    Args:
        most_nbytes: Maximum number of bytes that the pool remembers, whether they are in use or not.

    Attributes:
        nbytes: Number of bytes that the pool remembers.
    """

    def __init__(self, most_nbytes: int) -> None:
        self._most_nbytes = most_nbytes
        self.nbytes = 0

    def memory(self, sizes: Iterable[int]) -> list[BytesMemory]:
        """Return memory for new objects of these sizes."""
        return [BytesMemory(nbytes) for nbytes in sizes]

    def close(self) -> None:
        """Forget all objects."""
