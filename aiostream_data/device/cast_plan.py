"""Plan the cast (conversion) of the images in a batch: array offsets, random crops and random flips.

If the images of a batch are cast, the slot and the consumer's memory block have different layouts. Each image array
needs one **cast**. Arrays without images are copied unchanged, with one **copy** for each group of consecutive arrays.
After the batch's arrays, the slot stores two small arrays with parameters. The first contains the gain and bias per
channel, the second the crop position and flip per row. One copy to the device transfers both the batch and these
parameters of the cast. Only the consumer's memory block must be allocated. This module does not access a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.draws_py import WEYL, mixed
from aiostream_data.device.batch_layout import BatchLayout, Cast, CastPlan, Copy, LeafKind, SlotArray
from aiostream_data.device.image_cast import RANDOM, ImageCast, LeafFacts
from aiostream_data.device.layout import TakenApart, place
from aiostream_data.errors import ImageCastError

RowKeys: TypeAlias = NDArray[np.uint64]
"""Random keys of rows, one uint64 number per row.

The key of a row is the same in every run with the same source and epoch.
"""

TOP, LEFT, MIRRORED = range(3)
"""Columns of the ``places`` array: top line of the crop, left column of the crop, and mirror flag."""

_DRAW_TOP, _DRAW_LEFT, _DRAW_MIRRORED = range(3)
_MOST: Final = 2**30


def with_cast(parts: TakenApart, cast: ImageCast, keys: RowKeys | None) -> TakenApart:
    """Add the parameter arrays of ``cast`` to a batch, and the cast plan to the layout of the batch.

    Args:
        keys: Random keys of the batch's rows; required if ``cast.draws`` is True. If the number of keys differs from
            the number of rows, all row keys are computed from the first key.

    Raises:
        ImageCastError: The batch has no images, or its images do not match the cast.
    """
    inside = parts.layout.arrays
    before = _facts(parts.layout)
    after = cast.results(before)
    chosen = [number for number, leaf in enumerate(after) if leaf is not before[number]]
    sizes = {number: _size(after[number], cast) for number in chosen}
    beside = [_beside(inside[number], sizes[number], cast, keys) for number in chosen]
    extra = list(chain.from_iterable(beside))
    slot, nbytes = place([*map(_spec, before), *((f"<{cast}>", array.shape, array.dtype) for array in extra)])
    outside, taken_nbytes = place(map(_spec, after))
    casts = tuple(
        Cast(slot[number], slot[first], slot[first + 1], outside[number], cast.layout == "NCHW")
        for number, first in zip(chosen, range(len(inside), len(slot), 2), strict=True)
    )
    target = replace(parts.layout, arrays=outside, nbytes=taken_nbytes)
    plan = CastPlan(tuple(_copies(slot, outside, chosen)), casts, target)
    layout = replace(parts.layout, arrays=slot, nbytes=nbytes, cast=plan)
    return TakenApart(layout, [*parts.sources, *extra], parts.kept)


def _facts(layout: BatchLayout) -> list[LeafFacts]:
    """Return the known shape and dtype of every array, and whether the array is dense.

    Arrays of ragged leaves are not dense.
    """
    dense = [kind == "dense" for kind in layout.kinds for _ in range(_ARRAYS_OF[kind])]
    return [LeafFacts(*_of(array), is_dense) for array, is_dense in zip(layout.arrays, dense, strict=True)]


_ARRAYS_OF: Final[dict[LeafKind, int]] = {"dense": 1, "ragged": 2, "object": 0}


def _of(array: SlotArray) -> tuple[str, tuple[int, ...], np.dtype[Any]]:
    return array.path, array.shape, array.dtype


def _spec(leaf: LeafFacts) -> tuple[str, tuple[int, ...], np.dtype[Any]]:
    assert leaf.shape is not None
    assert leaf.dtype is not None
    return leaf.path, tuple(size for size in leaf.shape if size is not None), leaf.dtype


def _size(leaf: LeafFacts, cast: ImageCast) -> tuple[int, int]:
    _, shape, _ = _spec(leaf)
    return (shape[2], shape[3]) if cast.layout == "NCHW" else (shape[1], shape[2])


def _beside(
    images: SlotArray, size: tuple[int, int], cast: ImageCast, keys: RowKeys | None
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return the ``factors`` and ``places`` arrays for one array of images; see :class:`Cast`."""
    rows, height, width, channels = images.shape
    if max(rows, height * width * channels) > _MOST:
        raise ImageCastError(
            images.path, f"shape {images.shape} is too large: at most {_MOST} rows and {_MOST} values per row"
        )
    return cast.factors(channels), places(cast, keys, rows, (height - size[0], width - size[1]))


def places(cast: ImageCast, keys: RowKeys | None, rows: int, room: tuple[int, int]) -> NDArray[np.int32]:
    """Return crop positions and flips: int32 of shape (rows, 3) with columns :data:`TOP`, LEFT and MIRRORED.

    Args:
        keys: As for :func:`with_cast`.
        room: Height and width of the image minus height and width of the crop, in pixels.
    """
    found = np.zeros((rows, 3), np.int32)
    found[:, TOP], found[:, LEFT] = room[0] // 2, room[1] // 2
    found[:, MIRRORED] = cast.flip is True
    if cast.draws:
        assert keys is not None, "what is drawn needs the keys of rows"
        words = keys if len(keys) == rows else _words_of(keys, rows)
        if cast.crop_at == RANDOM:
            found[:, TOP] = _below(words, _DRAW_TOP, room[0] + 1)
            found[:, LEFT] = _below(words, _DRAW_LEFT, room[1] + 1)
        if cast.flip == RANDOM:
            found[:, MIRRORED] = _below(words, _DRAW_MIRRORED, 2)
    return found


def _words_of(keys: RowKeys, rows: int) -> RowKeys:
    """Compute one key per row from the first key, for an unbatched element."""
    first = int(keys[0]) if len(keys) else 0
    return np.arange(rows, dtype=np.uint64) * np.uint64(WEYL) + np.uint64(first)


def _below(keys: RowKeys, draw: int, bound: int) -> NDArray[np.int64]:
    """Return one uniform random integer per key, at least 0 and less than ``bound``. ``bound`` must be below 2**32."""
    words = mixed(mixed(keys.copy()) + np.uint64((draw + 1) * WEYL % 2**64))
    return ((words >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32)).astype(np.int64)


def _copies(slot: Sequence[SlotArray], outside: Sequence[SlotArray], chosen: Sequence[int]) -> Iterator[Copy]:
    """Yield one copy for each sequence of consecutive arrays that are not cast.

    The arrays of one sequence keep their relative offsets.
    """
    for is_cast, run in groupby(range(len(outside)), key=lambda number: number in chosen):
        numbers = list(run)
        first, last = slot[numbers[0]], slot[numbers[-1]]
        nbytes = last.offset + last.nbytes - first.offset
        if nbytes and not is_cast:
            yield Copy(first.offset, outside[numbers[0]].offset, nbytes)
