"""Memory for the bytes of a group of small shards: one block for all shards, or a ``bytes`` object for each shard."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.sources.shard_chunks import refers_to
from aiostream_data._native import BytesMemory
from aiostream_data.codecs.file_kinds import START_NBYTES
from aiostream_data.formats.base import LEFT, Format, SmallObjects, holds_one_record
from aiostream_data.formats.small_objects import split_objects
from aiostream_data.rows.columns import Column, SeparateBytes

Block: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Bytes of all shards, and the bounds of each shard in them: shard i is ``values[bounds[i]:bounds[i + 1]]``."""

SEPARATE_NBYTES: Final = 32 << 10
"""Minimum mean size in bytes of shards that are read into separate ``bytes`` objects, if each shard is one record.

For smaller shards, the allocation of an object takes longer than the copy of its bytes."""


class GroupBytes(Protocol):
    """Bytes of consecutive shards."""

    @property
    def is_split(self) -> bool:
        """True if :meth:`records` only wraps objects, which needs no worker thread."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of bytes of each shard; 0 for a shard that was not requested."""

    @property
    def joining_nbytes(self) -> int:
        """Number of bytes that :meth:`block` allocates."""

    def starts(self) -> Block:
        """Return at least the first ``START_NBYTES`` bytes of each shard."""

    def block(self) -> Block:
        """Return all bytes."""

    def of(self, place: int) -> NDArray[np.uint8]:
        """Return the bytes of the shard at ``place``."""

    def records(self, format: Format, urls: Sequence[str], is_plain: NDArray[np.bool_], most_rows: int) -> SmallObjects:
        """Split the shards for which ``is_plain`` is True into records. See :func:`.split_objects`."""

    def are_in(self, leaf: Column) -> bool:
        """Return True if a column that was made from this group uses the memory of the group."""

    def behind(self, count: int) -> GroupBytes:
        """Return the bytes without the first ``count`` shards."""


class OneBlock:
    """Bytes of all shards in one block.

    Args:
        values: The block.
        bounds: Shard i is ``values[bounds[i]:bounds[i + 1]]``; int64.
    """

    is_split = False
    joining_nbytes = 0

    def __init__(self, values: NDArray[np.uint8], bounds: NDArray[np.int64]) -> None:
        self._values, self._bounds = values, bounds

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self._bounds)

    def starts(self) -> Block:
        return self.block()

    def block(self) -> Block:
        return self._values, self._bounds

    def of(self, place: int) -> NDArray[np.uint8]:
        start, stop = self._bounds[place : place + 2].tolist()
        return self._values[start:stop]

    def records(self, format: Format, urls: Sequence[str], is_plain: NDArray[np.bool_], most_rows: int) -> SmallObjects:
        return split_objects(format, urls, self._values, self._bounds, is_plain, most_rows)

    def are_in(self, leaf: Column) -> bool:
        return refers_to(self._values, leaf)

    def behind(self, count: int) -> OneBlock:
        return OneBlock(self._values, self._bounds[count:])


class SeparateObjects:
    """Bytes of each shard in a ``bytes`` object, which becomes the record of the shard without a copy.

    Args:
        objects: The bytes of each shard.
    """

    is_split = True

    def __init__(self, objects: Sequence[bytes]) -> None:
        self._objects = objects

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.fromiter(map(len, self._objects), np.int64, len(self._objects))

    @property
    def joining_nbytes(self) -> int:
        return sum(map(len, self._objects))

    def starts(self) -> Block:
        return _joined([each[:START_NBYTES] for each in self._objects])

    def block(self) -> Block:
        return _joined(self._objects)

    def of(self, place: int) -> NDArray[np.uint8]:
        return np.frombuffer(self._objects[place], np.uint8)

    def records(self, format: Format, urls: Sequence[str], is_plain: NDArray[np.bool_], most_rows: int) -> SmallObjects:
        assert holds_one_record(format), "other formats split one block"
        is_record = is_plain & np.fromiter(map(format.is_one_record, map(len, self._objects)), np.bool_, len(is_plain))
        chosen = [self._objects[place] for place in np.flatnonzero(is_record).tolist()]
        return SmallObjects(SeparateBytes(chosen), np.where(is_record, 1, LEFT))

    def are_in(self, leaf: Column) -> bool:
        return isinstance(leaf, SeparateBytes)

    def behind(self, count: int) -> SeparateObjects:
        return SeparateObjects(self._objects[count:])


def _joined(objects: Sequence[bytes]) -> Block:
    return np.frombuffer(b"".join(objects), np.uint8), _bounds_of(list(map(len, objects)))


def _bounds_of(sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return the bounds of shards of these sizes in one block."""
    return np.cumsum([0, *sizes], dtype=np.int64)


class BlockPlaces:
    """Writable places for all shards of a group in one block.

    Attributes:
        places: One for each shard.
    """

    def __init__(self, values: NDArray[np.uint8], sizes: Sequence[int]) -> None:
        self._values = values
        self._bounds = _bounds_of(sizes)
        self.places = [values.data[start:stop] for start, stop in pairwise(self._bounds.tolist())]

    def filled(self) -> OneBlock:
        """Return the bytes that were written."""
        return OneBlock(self._values, self._bounds)


class ObjectPlaces:
    """Writable places for all shards of a group in separate ``bytes`` objects.

    Args:
        memory: Memory of the objects, one for each shard.

    Attributes:
        places: One for each shard.
    """

    def __init__(self, memory: Sequence[BytesMemory]) -> None:
        self._memory = memory
        self.places = [each.view() for each in memory]

    def filled(self) -> SeparateObjects:
        """Return the bytes that were written, and release the places."""
        for place in self.places:
            place.release()
        return SeparateObjects([each.data() for each in self._memory])
