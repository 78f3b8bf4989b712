"""Objects in separate bytes objects give the same records as objects in one block."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._engine.sources.group_bytes import BlockPlaces, GroupBytes, ObjectPlaces
from aiostream_data._native import BytesPool
from aiostream_data.codecs.file_kinds import START_NBYTES
from aiostream_data.formats.base import LEFT
from aiostream_data.formats.small_objects import kinds_of_objects
from aiostream_data.formats.whole_file import WholeFileFormat

CONTENTS = st.lists(
    st.one_of(st.binary(max_size=40), st.sampled_from([b"\x1f\x8b" + bytes(600), b"\x28\xb5\x2f\xfd", bytes(5_000)])),
    min_size=1,
    max_size=8,
)


def filled(memory: BlockPlaces | ObjectPlaces, contents: list[bytes]) -> GroupBytes:
    for place, content in zip(memory.places, contents, strict=True):
        place[:] = content
    return memory.filled()


def both(contents: list[bytes]) -> tuple[GroupBytes, GroupBytes]:
    sizes = list(map(len, contents))
    block = BlockPlaces(np.zeros(sum(sizes), np.uint8), sizes)
    return filled(block, contents), filled(ObjectPlaces(BytesPool(0).memory(sizes)), contents)


@given(CONTENTS, st.integers(0, 8), st.integers(0, 6_000))
def test_both_give_the_same(contents: list[bytes], behind: int, most_nbytes: int) -> None:
    format = WholeFileFormat(max_record_nbytes=most_nbytes)
    block, separate = (found.behind(min(behind, len(contents))) for found in both(contents))
    contents = contents[behind:]
    for found in (block, separate):
        assert found.sizes.tolist() == list(map(len, contents))
        assert [found.of(place).tobytes() for place in range(len(contents))] == contents
        values, bounds = found.block()
        assert [values[a:b].tobytes() for a, b in pairwise(bounds.tolist())] == contents
        values, bounds = found.starts()
        starts = [values[a:b][:START_NBYTES].tobytes() for a, b in pairwise(bounds.tolist())]
        assert starts == [content[:START_NBYTES] for content in contents]
    urls = ["a"] * len(contents)
    kinds = [kinds_of_objects(format, "auto", urls, *found.starts()) for found in (block, separate)]
    assert kinds[0].is_plain.tolist() == kinds[1].is_plain.tolist()
    assert kinds[0].compressed == kinds[1].compressed
    records = [found.records(format, urls, kinds[0].is_plain, len(contents)) for found in (block, separate)]
    assert records[0].rows.tolist() == records[1].rows.tolist()
    assert records[0].column.elements() == records[1].column.elements()


def test_a_column_refers_only_to_the_group_that_it_was_made_of() -> None:
    for found in both([b"abc", b"d"]):
        records = found.records(WholeFileFormat(), ["a", "b"], np.array([True, False]), 1)
        assert records.rows.tolist() == [1, LEFT]
        assert found.are_in(records.column)
        assert not found.are_in(np.zeros(3))


def test_only_a_block_of_separate_objects_needs_memory() -> None:
    block, separate = both([b"abc", b"d"])
    assert (block.joining_nbytes, separate.joining_nbytes) == (0, 4)


@pytest.mark.parametrize("sizes", [[], [0], [0, 3, 0]])
def test_places_have_the_sizes_of_their_objects(sizes: list[int]) -> None:
    for memory in (BlockPlaces(np.zeros(sum(sizes), np.uint8), sizes), ObjectPlaces(BytesPool(0).memory(sizes))):
        assert list(map(len, memory.places)) == sizes
