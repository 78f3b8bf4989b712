"""What may pass over the memory limit alone: one record that is larger than its share, and one window of zstd.

Formats declare how large a record may be, and the zstd window has a largest size. So this is known, but far more than
files usually have. It is told beside the worst case for that reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiostream_data._engine.memory.budget import COPIES_OF_A_ROW
from aiostream_data._engine.memory.decompressor_memory import TOGETHER_SHARE
from aiostream_data.codecs.compression import MAX_ZSTD_NBYTES, may_be_zstd
from aiostream_data.formats.base import KnowsLargest
from aiostream_data.loading.part import LoaderPart
from aiostream_data.metrics.sizes import as_size
from aiostream_data.plan import operators as op
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.plan.subprocess import places_of, process_nbytes

LARGE_SHARE: Final = 32
"""A row, range or batch of more than this fraction (1/32) of the limit may pass over it."""

COPIES_AS_READ: Final = 2
"""How often a record may be there that no function is given: as bytes, and as str or joined to be one."""


def alone_parts(plan: Node, memory_limit: int) -> Iterator[LoaderPart]:
    """Yield what one record and one window of each source may take over a memory limit in bytes."""
    for source in dict.fromkeys(node for node in walk(plan) if isinstance(node, ReadFiles)):
        hosts = sum(place.workers for place in places_of(plan) if any(lower is source for lower in walk(place)))
        limit = process_nbytes(plan, memory_limit) if hosts else memory_limit
        largest = largest_record_nbytes(source) or 0
        if largest * LARGE_SHARE > limit:
            nbytes = _copies(plan, source) * largest
            yield LoaderPart(
                nbytes=nbytes * max(1, hosts), what=f"a record of up to {as_size(largest)}, which passes alone"
            )
        if may_be_zstd(source.compression) and TOGETHER_SHARE * limit < MAX_ZSTD_NBYTES:
            yield LoaderPart(nbytes=MAX_ZSTD_NBYTES * max(1, hosts), what="a window of a zstd file, which passes alone")


def largest_record_nbytes(source: ReadFiles) -> int | None:
    """Return the size from which on a record is refused; None where the format does not tell."""
    return source.format.largest_nbytes if isinstance(source.format, KnowsLargest) else None


def _copies(plan: Node, source: ReadFiles) -> int:
    has_functions = any(isinstance(node, op.Call) for node in walk(plan))
    compressed = source.format.whole and bool(source.compression)  # the object is there beside what it becomes
    return (COPIES_OF_A_ROW if has_functions else COPIES_AS_READ) + compressed
