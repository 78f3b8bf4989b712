"""Cast images with NumPy: the implementation for ``cpu``, and the reference for tests of the CUDA kernel.

A pixel has 256 possible values, so a lookup table per channel holds the result for each value. The table is computed in
float32 with the rounding steps of the kernel, so both give identical bits. Tests check this for the kernel compiled for
the host; ``tests/gpu`` checks it on a GPU. Pixels are looked up one channel of one image at a time, because NumPy looks
a float16 up faster than it computes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.batch_layout import Cast, CastPlan, Copy, SlotArray
from aiostream_data.device.cast_plan import MIRRORED

Memory: TypeAlias = NDArray[np.uint8]
Work: TypeAlias = Callable[[Memory, Memory], None]
"""Function called with the consumer's block and the slot."""


def cast_batch(target: Memory, slot: Memory, plan: CastPlan) -> None:
    """Copy and cast a batch from ``slot`` to ``target``. Each must be at least as large as its layout."""
    for work in pieces(plan, lambda count: ()):
        work(target, slot)


def pieces(plan: CastPlan, cuts: Callable[[int], Sequence[int]]) -> Iterator[Work]:
    """Yield the copies and casts of ``plan``, split into pieces that may run in any order.

    Args:
        cuts: Maps a number of bytes or rows to the ascending positions at which to split them.
    """
    for copy in plan.copies:
        for start, stop in _spans(copy.nbytes, cuts):
            yield partial(_copy, Copy(copy.source + start, copy.target + start, stop - start))
    for cast in plan.casts:
        for start, stop in _spans(cast.images.shape[0], cuts):
            yield partial(_cast_rows, cast, start, stop)


def reads_within(plan: CastPlan, slot: Memory) -> bool:
    """Return True if every crop lies within its image. Crops can lie outside when the slot does not hold the batch."""
    return all(_reads_within(cast, _array(slot, cast.places)) for cast in plan.casts)


def _reads_within(cast: Cast, places: NDArray[np.int32]) -> bool:
    room = np.array(cast.images.shape[1:3]) - cast.size
    corners = places[:, :MIRRORED]
    return bool(((corners >= 0) & (corners <= room)).all())


def _spans(count: int, cuts: Callable[[int], Sequence[int]]) -> list[tuple[int, int]]:
    ends = [*cuts(count), count]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _copy(copy: Copy, target: Memory, slot: Memory) -> None:
    np.copyto(
        target[copy.target : copy.target + copy.nbytes],
        slot[copy.source : copy.source + copy.nbytes],
    )


def _cast_rows(cast: Cast, start: int, stop: int, target: Memory, slot: Memory) -> None:
    images, result = _array(slot, cast.images), _array(target, cast.target)
    places, tables = _array(slot, cast.places), _tables(cast, slot)
    height, width = cast.size
    pixels = np.empty((height, width), np.intp)
    for row in range(start, stop):
        top, left, mirrored = places[row].tolist()
        wanted = images[row, top : top + height, left : left + width]
        if mirrored:
            wanted = wanted[:, ::-1]
        for channel, table in enumerate(tables):
            np.copyto(pixels, wanted[..., channel])
            plane = result[row, channel] if cast.planar else result[row, ..., channel]
            np.take(table, pixels, out=plane, mode="clip")  # "clip" avoids a temporary buffer; no index is clipped


def _tables(cast: Cast, slot: Memory) -> NDArray[Any]:
    """Return a lookup table per channel for pixels 0 to 255: shape (channels, 256), with the dtype of the result."""
    gain, bias = _array(slot, cast.factors)[..., np.newaxis]
    with np.errstate(over="ignore", invalid="ignore"):  # the kernel does not report overflow either
        exact: NDArray[np.float32] = np.arange(256, dtype=np.float32) * gain + bias
        return exact.astype(cast.target.dtype)


def _array(memory: Memory, array: SlotArray) -> NDArray[Any]:
    return np.ndarray(array.shape, array.dtype, buffer=memory, offset=array.offset)
