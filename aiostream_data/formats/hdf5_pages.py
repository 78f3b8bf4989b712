"""Parts of an HDF5 file with its metadata, which are read until the library can open the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.row_groups import joined
from aiostream_data.rows.records import ByteRange

_PAGE_NBYTES: Final = 64 << 10
_MAX_PAGE_NBYTES: Final = 4 << 20
_MOST_NBYTES: Final = 256 << 20
_NODE_GAP_NBYTES: Final = 16 << 10
"""Maximum distance of nodes that are read with one request."""


class MetadataPages:
    """Known parts of a file.

    Args:
        url: URL of the file, for error messages.
        nbytes: Size of the file in bytes.

    Attributes:
        known: First byte and bytes of each part, ascending and without overlap.
    """

    def __init__(self, url: str, nbytes: int) -> None:
        self._url = url
        self._nbytes = nbytes
        self._page = ByteRange(0, 0)  # the last one
        self.known: list[tuple[int, memoryview]] = []

    def around(self, missing: ByteRange) -> list[ByteRange]:
        """Return the unknown range around missing bytes, in whole pages. Pages behind each other grow.

        Raises:
            CorruptRecordError: The metadata are too large.
        """
        start = missing.start // _PAGE_NBYTES * _PAGE_NBYTES
        follows = start == self._page.stop
        size = min(2 * self._page.nbytes, _MAX_PAGE_NBYTES) if follows and self._page.nbytes else _PAGE_NBYTES
        stop = min(self._nbytes, max(start + size, missing.stop))
        start = max([start, *(part.stop for part in self._parts() if part.start <= missing.start)])
        stop = min([stop, *(part.start for part in self._parts() if part.start > missing.start)])
        self._page = ByteRange(start, max(start, stop))
        return self._checked([self._page] if stop > start else [])

    def of_nodes(self, nodes: Iterable[ByteRange]) -> list[ByteRange]:
        """Return ranges that contain unknown nodes.

        Raises:
            CorruptRecordError: The metadata are too large.
        """
        return self._checked(list(joined(nodes, gap=_NODE_GAP_NBYTES)))

    def add(self, ranges: Sequence[ByteRange], parts: Sequence[memoryview]) -> None:
        """Add parts of the file that do not overlap each other. Bytes that are known are left out."""
        new = [
            (left.start, part[left.start - place.start : left.stop - place.start])
            for place, part in zip(ranges, parts, strict=True)
            for left in self._new(place)
        ]
        self.known = sorted([*self.known, *new], key=lambda page: page[0])

    def _new(self, place: ByteRange) -> Iterator[ByteRange]:
        """Yield the parts of a range that are not known."""
        start = place.start
        for part in self._parts():
            if part.stop > start and part.start < place.stop:
                if part.start > start:
                    yield ByteRange(start, part.start)
                start = part.stop
        if start < place.stop:
            yield ByteRange(start, place.stop)

    def _parts(self) -> Iterator[ByteRange]:
        return (ByteRange(start, start + len(part)) for start, part in self.known)

    def _checked(self, wanted: list[ByteRange]) -> list[ByteRange]:
        if sum(part.nbytes for part in wanted) + sum(part.nbytes for part in self._parts()) > _MOST_NBYTES:
            raise CorruptRecordError(self._url, wanted[0].start, f"the metadata have more than {_MOST_NBYTES} bytes")
        return wanted
