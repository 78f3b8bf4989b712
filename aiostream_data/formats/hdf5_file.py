"""A file of which parts are in memory, and the HDF5 library that reads it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from aiostream_data.errors import MissingExtraError
from aiostream_data.formats.hdf5_heaps import MOST_NAMES_NBYTES, NameHeap
from aiostream_data.formats.hdf5_indexes import damaged_index
from aiostream_data.formats.hdf5_trees import TreeNode, is_node, unknown_nodes
from aiostream_data.formats.known_ranges import SeekableFile
from aiostream_data.rows.records import ByteRange


class PartlyKnownFile(SeekableFile):
    """Readable file object over the known parts of a file. It remembers the first read of other bytes.

    The library reads each header of an index or heap at once. Damaged ones are refused, because it trusts them.

    Args:
        nbytes: Size of the file in bytes.
        tables: Groups of parts. The parts of a group are ascending and do not overlap.

    Attributes:
        missing: The first range that was read but is not known, or None.
        chunks: Largest number of chunks of the dataset whose chunks the library looks for. Set by the user; None while
            the library opens datasets.
        axes: Number of axes of this dataset.
    """

    def __init__(self, nbytes: int, *tables: Sequence[tuple[int, memoryview]]) -> None:
        super().__init__(nbytes)
        self._tables = [(([start for start, _ in table]), table) for table in tables]
        self.missing: ByteRange | None = None
        self.chunks: int | None = None
        self.axes = 0
        self._nodes: list[TreeNode] = []

    @property
    def wanted(self) -> list[ByteRange]:
        """The ranges that the library needs beside the missing one: other nodes of the same tree of chunks."""
        if self.missing is None:
            return []
        nodes = unknown_nodes(self._nodes, self.content, self._nbytes)
        return list(nodes.values()) if self.missing.start in nodes else []

    def truncate(self, size: int | None = None) -> int:
        return self._nbytes if size is None else size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        size = min(len(view), max(0, self._nbytes - self._at))
        done = 0
        while done < size:
            known = self._known(self._at + done)[: size - done]
            if not known:
                self.missing = self.missing or ByteRange(self._at + done, self._at + size)
                raise OSError("these bytes of the file are not in memory")
            view[done : done + len(known)] = known
            done += len(known)
        self._check_block(view[:size])
        if self.axes and is_node(view[:size]):
            self._nodes.append(TreeNode(ByteRange(self._at, self._at + size), self.axes))
        self._at += size
        return size

    def content(self, place: ByteRange) -> memoryview:
        """Return the bytes of a range. Empty if one of them is not known."""
        known = self._known(place.start)[: place.nbytes]
        return known if len(known) == place.nbytes else memoryview(self._known_bytes(place.start, place.nbytes))

    def _check_block(self, block: memoryview) -> None:
        damage = damaged_index(block, self._nbytes, self.chunks)
        heap = NameHeap.at_start_of(block) if self.chunks is None else None  # afterwards, blocks are rows
        if heap is not None and (
            heap.nbytes > MOST_NAMES_NBYTES or heap.has_loop(self._known_bytes(heap.start, heap.nbytes))
        ):
            damage = "a heap of names is damaged"
        if damage is not None:
            raise OSError(damage)

    def _known_bytes(self, start: int, nbytes: int) -> bytes:
        """Return bytes of the file. Empty if one is not known."""
        found, stop = b"", min(start + nbytes, self._nbytes)
        while start + len(found) < stop:
            known = self._known(start + len(found))
            if not known:
                return b""
            found += known[: stop - start - len(found)]
        return found

    def _known(self, place: int) -> memoryview:
        """Return the known bytes from a place on, up to the end of a part. Empty if the place is not known."""
        for starts, table in self._tables:
            number = bisect_right(starts, place) - 1
            if number >= 0:
                start, part = table[number]
                if place < start + len(part):
                    return part[place - start :]
        return memoryview(b"")


def load_h5py() -> Any:
    """Import h5py.

    Raises:
        MissingExtraError: h5py is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("HDF5 files need the extra: pip install 'aiostream-data[hdf5]'") from error
    return h5py
