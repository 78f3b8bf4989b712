"""HDF5 files behind a user block: bytes of another program at the start of a file, such as those of MATLAB 7.3.

All places in an HDF5 file count from the end of its user block, so that the format reads as if nothing preceded it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.compressed_tables import MARKS_NBYTES, compressed_kind
from aiostream_data.formats.row_groups import Directory, JoinsGroups, RowGroup, Steps, TableRows
from aiostream_data.rows.records import ByteRange

T = TypeVar("T")

SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_SMALLEST: Final = 512


def user_block(url: str, nbytes: int) -> Steps[int]:
    """Return the size of the user block of a file of ``nbytes`` bytes: 0, 512, 1,024, or a higher power of two.

    Raises:
        CorruptRecordError: This is not an HDF5 file.
    """
    (head,) = yield [ByteRange(0, min(nbytes, _SMALLEST + len(SIGNATURE)))]
    found = next((size for size in _possible_sizes(len(head)) if _begins(head[size:])), None)
    if found is None:
        sizes = [size for size in _possible_sizes(nbytes) if size > _SMALLEST]
        parts = yield [ByteRange(size, size + len(SIGNATURE)) for size in sizes]
        found = next((size for size, part in zip(sizes, parts, strict=True) if _begins(part)), None)
    if found is None:
        raise CorruptRecordError(url, 0, compressed_kind(bytes(head[:MARKS_NBYTES])) or "this is not an HDF5 file")
    return found


def has_user_block(start: bytes) -> bool:
    """Return True if HDF5 data follow a user block in the first bytes of a file."""
    return any(start.startswith(SIGNATURE, size) for size in _possible_sizes(len(start)) if size)


def _possible_sizes(nbytes: int) -> Iterator[int]:
    """Yield the sizes of user blocks that leave room for a signature in ``nbytes`` bytes."""
    size = 0
    while size + len(SIGNATURE) <= nbytes:
        yield size
        size = 2 * size or _SMALLEST


def _begins(content: memoryview) -> bool:
    return bytes(content[: len(SIGNATURE)]) == SIGNATURE


def behind(block: int, steps: Steps[T]) -> Steps[T]:
    """Run steps whose ranges count from the end of a user block.

    Raises:
        CorruptRecordError: The steps raised it; its offset counts from the start of the file.
    """
    with counted_from_start(block):
        try:
            ranges = next(steps)
            while True:
                parts = yield _moved(ranges, block)
                ranges = steps.send(parts)
        except StopIteration as end:
            result: T = end.value
            return result


@contextmanager
def counted_from_start(block: int) -> Iterator[None]:
    """Let the offsets of errors count from the start of the file instead of the end of its user block."""
    try:
        yield
    except CorruptRecordError as error:
        if not block:
            raise
        raise CorruptRecordError(error.url, block + error.offset, error.reason) from error.__cause__


class DirectoryBehindBlock:
    """Directory of an HDF5 file behind a user block; see :class:`.row_groups.Directory`.

    Args:
        block: Size of the user block in bytes.
        directory: Directory of the HDF5 file. Its ranges count from the end of the user block.
    """

    def __init__(self, block: int, directory: Directory) -> None:
        self._block = block
        self._directory = directory

    @property
    def rows(self) -> int:
        return self._directory.rows

    @property
    def types(self) -> Mapping[str, str | None]:
        return self._directory.types

    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        return map(self._behind_block, self._directory.groups_from(first_row))

    def separated(self, group: RowGroup) -> list[RowGroup]:
        assert isinstance(self._directory, JoinsGroups)
        return list(map(self._behind_block, self._directory.separated(group)))

    def _behind_block(self, group: RowGroup) -> RowGroup:
        return group._replace(ranges=_moved(group.ranges, self._block))

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        return self._directory.decoded_nbytes(group, parts)

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        inner = group._replace(ranges=_moved(group.ranges, -self._block))
        with counted_from_start(self._block):
            return self._directory.decode(inner, parts, filtered=filtered)


def _moved(ranges: Sequence[ByteRange], by: int) -> tuple[ByteRange, ...]:
    return tuple(ByteRange(part.start + by, part.stop + by) for part in ranges)
