"""Cast (convert) images with NumPy.

This module implements image casts on the ``cpu`` device. Tests compare the CUDA kernel with this module.

A pixel has 256 possible values, so one lookup table per channel contains the result for each value. The table is
computed in float32 and rounded like the results of the CUDA kernel. The results of this module and of the kernel are
therefore bit-for-bit identical. Tests run the kernel on the host, ``tests/gpu`` on a GPU, and compare the kernel's
results with this module. In NumPy, a float16 lookup is faster than a float16 computation. The module processes one
channel of one image at a time.
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
"""Function that copies or casts data into the consumer's memory block (first argument) from the slot (second argument).
"""


def cast_batch(target: Memory, slot: Memory, plan: CastPlan) -> None:
    """Copy and cast a batch from ``slot`` to ``target``.

    ``target`` and ``slot`` must be large enough for all reads and writes of ``plan``.
    """
    for work in pieces(plan, lambda count: ()):
        work(target, slot)


def pieces(plan: CastPlan, cuts: Callable[[int], Sequence[int]]) -> Iterator[Work]:
    """Yield the copies and casts of ``plan``, split into pieces that may run in any order.

    Args:
        cuts: Function that receives a number of bytes or rows and returns the positions at which to split, in ascending
            order.
    """
    for copy in plan.copies:
        for start, stop in _spans(copy.nbytes, cuts):
            yield partial(_copy, Copy(copy.source + start, copy.target + start, stop - start))
    for cast in plan.casts:
        for start, stop in _spans(cast.images.shape[0], cuts):
            yield partial(_cast_rows, cast, start, stop)


def reads_within(plan: CastPlan, slot: Memory) -> bool:
    """Return True if every crop is inside its image.

    A crop outside its image means that the slot does not contain the batch of this plan.
    """
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
    """Return one lookup table per channel for pixel values 0 to 255, as an array of shape (channels, 256)."""
    gain, bias = _array(slot, cast.factors)[..., np.newaxis]
    with np.errstate(over="ignore", invalid="ignore"):  # the kernel does not report overflow either
        exact: NDArray[np.float32] = np.arange(256, dtype=np.float32) * gain + bias
        return exact.astype(cast.target.dtype)


def _array(memory: Memory, array: SlotArray) -> NDArray[Any]:
    return np.ndarray(array.shape, array.dtype, buffer=memory, offset=array.offset)
