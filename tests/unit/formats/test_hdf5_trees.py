"""Indexes of many chunks in HDF5 files: read with few requests, which do not cover the chunks themselves."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_bytes import rows_of

from aiostream_data import CorruptRecordError
from aiostream_data.formats import hdf5_pages
from aiostream_data.formats.hdf5 import Hdf5Format
from aiostream_data.formats.hdf5_pages import MetadataPages
from aiostream_data.formats.hdf5_trees import TreeNode, is_node, unknown_nodes
from aiostream_data.formats.row_groups import Steps
from aiostream_data.rows.records import ByteRange

h5py = pytest.importorskip("h5py")

CHUNKS, ITEMS = 5_000, 2_000


def written(order: list[int], items: int = ITEMS) -> bytes:
    """Return a file with one chunk per row, stored in this order."""
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        numbers = file.create_dataset("x", (len(order), items), "u1", chunks=(1, items))
        for row in order:
            numbers.id.write_direct_chunk((row, 0), bytes([row % 251]) * items)
    return made.getvalue()


def ran(steps: Steps[Any], data: bytes) -> tuple[int, int]:
    """Run steps to their end. Return their number, and the number of bytes that they read."""
    count = nbytes = 0
    parts = None
    while True:
        try:
            ranges = next(steps) if parts is None else steps.send(parts)
        except StopIteration:
            return count, nbytes
        parts = [memoryview(data)[place.start : place.stop] for place in ranges]
        count, nbytes = count + 1, nbytes + sum(map(len, parts))


def test_the_index_of_many_chunks_is_read_in_a_few_steps_without_the_chunks() -> None:
    data = written(list(range(CHUNKS)))
    count, nbytes = ran(Hdf5Format().directory("file", len(data)), data)
    assert count <= 5
    assert nbytes < len(data) / 10


def test_the_size_of_the_chunks_does_not_count_as_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(list(range(CHUNKS)))
    monkeypatch.setattr(hdf5_pages, "_MOST_NBYTES", len(data) // 10)
    assert sum(1 for _ in rows_of(Hdf5Format(), data)) == CHUNKS


def test_an_index_above_the_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(list(range(CHUNKS)))
    monkeypatch.setattr(hdf5_pages, "_MOST_NBYTES", 200_000)
    with pytest.raises(CorruptRecordError, match="the metadata have more than 200000 bytes"):
        list(rows_of(Hdf5Format(), data))


@given(st.permutations(range(40)), st.integers(0, 39))
def test_chunks_may_be_stored_in_any_order(order: list[int], first: int) -> None:
    rows = [row["x"] for row in rows_of(Hdf5Format(), written(order, 7), first)]
    assert [row.tolist() for row in rows] == [[number] * 7 for number in range(first, 40)]


def node(level: int, children: list[int], axes: int = 2) -> bytes:
    key = bytes(8 + 8 * (axes + 1))
    entries = b"".join(key + struct.pack("<Q", child) for child in children)
    return (struct.pack("<4sBBHQQ", b"TREE", 1, level, len(children), 0, 0) + entries).ljust(256, b"\0")


def test_all_nodes_below_known_ones_are_found() -> None:
    known = {0: node(2, [256, 512]), 256: node(1, [1024, 1280]), 1024: node(0, [5000])}
    found = unknown_nodes([TreeNode(ByteRange(0, 256), 2)], lambda place: memoryview(known.get(place.start, b"")), 4096)
    assert found == {512: ByteRange(512, 768), 1280: ByteRange(1280, 1536)}


def test_damaged_nodes_end_the_search() -> None:
    loop = {0: node(1, [0, 256]), 256: node(1, [0, 256, 512, 4000, 1 << 63])}
    found = unknown_nodes([TreeNode(ByteRange(0, 256), 2)], lambda place: memoryview(loop.get(place.start, b"")), 4096)
    assert found == {512: ByteRange(512, 768)}  # the others end after the end of the file
    long = struct.pack("<4sBBHQQ", b"TREE", 1, 1, 65535, 0, 0).ljust(256, b"\0")
    assert not unknown_nodes([TreeNode(ByteRange(0, 256), 2)], lambda place: memoryview(long), 4096)
    assert not is_node(b"TREE\1")
    assert not is_node(node(1, []).replace(b"TREE\1", b"TREE\0"))  # a node of names


ranges = st.builds(
    lambda start, nbytes: ByteRange(start, start + nbytes), st.integers(0, 900_000), st.integers(1, 200_000)
)


@given(st.lists(st.tuples(ranges, st.booleans()), max_size=12))
def test_known_parts_never_overlap_and_have_the_bytes_of_the_file(wanted: list[tuple[ByteRange, bool]]) -> None:
    content = np.random.default_rng(3).integers(0, 255, 1_000_000, np.uint8)
    pages = MetadataPages("file", len(content))

    def is_known(place: int) -> bool:
        return any(start <= place < start + len(part) for start, part in pages.known)

    for missing, is_index in wanted:
        if is_known(missing.start):
            continue
        inside = ByteRange(missing.start, min(missing.stop, len(content)))
        asked = pages.of_nodes([inside]) if is_index else pages.around(inside)
        pages.add(asked, [content[place.start : place.stop].data for place in asked])
        assert is_known(missing.start)
        stop = 0
        for start, part in pages.known:
            assert start >= stop
            stop = start + len(part)
            assert bytes(part) == content[start:stop].tobytes()


def test_pages_grow_only_behind_each_other() -> None:
    pages = MetadataPages("file", 1 << 30)
    sizes = []
    for start in (0, 64 << 10, 192 << 10, 100 << 20, 200 << 20):
        (asked,) = pages.around(ByteRange(start, start + 8))
        pages.add([asked], [memoryview(bytes(asked.nbytes))])
        sizes.append(asked.nbytes >> 10)
    assert sizes == [64, 128, 256, 64, 64]
