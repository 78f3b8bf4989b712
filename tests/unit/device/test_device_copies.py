"""Which bytes are copied to a device slot, and from where: every array arrives, in as few copies as stand together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data.device.backend import HostBlock
from aiostream_data.device.batch_layout import BatchLayout
from aiostream_data.device.copies import ArrayPlace, CopyPlan, SlotCopy, plan_copies, whole
from aiostream_data.device.layout import fill, take_apart, views

BLOCK_ALIGNMENT = 64
"""Of arrays in shared memory, which is less than that of arrays in a slot."""

sizes = st.sampled_from([0, 1, 63, 64, 255, 256, 257, 512, 1024])
arrays = st.lists(st.tuples(sizes, st.booleans()), max_size=8)


def batch_of(nbytes_each: list[int]) -> dict[str, NDArray[np.uint8]]:
    return {f"leaf{at}": np.full(nbytes, at + 1, np.uint8) for at, nbytes in enumerate(nbytes_each)}


def written_together(sources: Sequence[Any], first: int = 0) -> tuple[HostBlock, list[int]]:
    """Return a block with the arrays one behind the other, and where each begins."""
    starts, end = [], first
    for source in sources:
        starts.append(end)
        end += -(-source.nbytes // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT
    block = np.full(end + 1, 0xEE, np.uint8)
    for start, source in zip(starts, sources, strict=True):
        block[start : start + source.nbytes] = source
    return HostBlock(block), starts


def arrived(layout: BatchLayout, plan: CopyPlan, slot: NDArray[np.uint8]) -> list[NDArray[Any]]:
    """Carry out the copies, and return the arrays as they then stand in the device slot."""
    target = np.full(layout.nbytes, 0xA5, np.uint8)
    for copy in plan.copies:
        source = slot if copy.block is None else copy.block.bytes
        assert copy.nbytes > 0
        target[copy.target : copy.stop] = source[copy.start : copy.start + copy.nbytes]
    return views(target, layout)


@given(arrays)
def test_every_array_arrives_whole_wherever_it_stood(arrays: list[tuple[int, bool]]) -> None:
    parts = take_apart(batch_of([nbytes for nbytes, _ in arrays]), "cpu", keeps_objects=True)
    own = [is_own for _, is_own in arrays]
    block, starts = written_together([s for s, o in zip(parts.sources, own, strict=True) if o], BLOCK_ALIGNMENT)
    rest = iter(starts)
    places = [ArrayPlace(block, next(rest)) if is_own else None for is_own in own]
    plan = plan_copies(parts.layout, places)
    slot = np.full(plan.staged.nbytes, 0xA5, np.uint8)
    fill(views(slot, plan.staged), [s for s, o in zip(parts.sources, own, strict=True) if not o])
    for found, source in zip(arrived(parts.layout, plan, slot), parts.sources, strict=True):
        np.testing.assert_array_equal(found, source)


@given(st.lists(sizes.filter(bool), min_size=1, max_size=8))
def test_a_batch_that_stands_in_the_slot_alone_is_one_copy(nbytes_each: list[int]) -> None:
    layout = take_apart(batch_of(nbytes_each), "cpu", keeps_objects=True).layout
    plan = plan_copies(layout, [None] * len(nbytes_each))
    assert plan.staged == layout
    assert plan.copies == whole(layout)


def test_arrays_that_stand_in_a_block_as_they_do_in_a_slot_are_one_copy() -> None:
    parts = take_apart(batch_of([512, 256, 100]), "cpu", keeps_objects=True)
    block, starts = written_together(parts.sources, first=192)
    plan = plan_copies(parts.layout, [ArrayPlace(block, start) for start in starts])
    assert plan.copies == (SlotCopy(block, 192, 0, 868),)
    assert plan.staged.arrays == ()


def test_arrays_apart_in_their_block_or_of_two_blocks_are_copies_of_their_own() -> None:
    parts = take_apart(batch_of([512, 512]), "cpu", keeps_objects=True)
    block, _ = written_together([*parts.sources, *parts.sources])
    other, _ = written_together(parts.sources)
    apart = plan_copies(parts.layout, [ArrayPlace(block, 0), ArrayPlace(block, 1024)])
    assert [(copy.start, copy.target, copy.nbytes) for copy in apart.copies] == [(0, 0, 512), (1024, 512, 512)]
    assert len(plan_copies(parts.layout, [ArrayPlace(block, 0), ArrayPlace(other, 512)]).copies) == 2


def test_what_is_written_between_two_arrays_of_a_block_is_not_copied_over() -> None:
    parts = take_apart(batch_of([512, 8, 512]), "cpu", keeps_objects=True)
    block, _ = written_together([np.full(2048, 0xEE, np.uint8)])
    # The outer two stand as far apart as they will in the slot; what stands between them in the block is another's.
    plan = plan_copies(parts.layout, [ArrayPlace(block, 0), None, ArrayPlace(block, 768)])
    assert [(copy.block, copy.target, copy.nbytes) for copy in plan.copies] == [
        (block, 0, 512),
        (None, 512, 8),
        (block, 768, 512),
    ]


def test_a_batch_without_any_byte_needs_no_copy() -> None:
    parts = take_apart(batch_of([0, 0]), "cpu", keeps_objects=True)
    assert plan_copies(parts.layout, [None, None]).copies == ()
