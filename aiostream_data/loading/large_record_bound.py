"""Worst-case memory of two items that can exceed the memory limit: a very large record and a zstd window.

Each file format declares a maximum record size, and zstd declares a maximum window size. The declared maxima are far
larger than the records and windows of typical files. The loader therefore reports these two items separately from other
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiostream_data._engine.memory.budget import COPIES_OF_A_ROW
from aiostream_data._engine.memory.decompressor_memory import TOGETHER_SHARE
from aiostream_data.codecs.compression import MAX_DECOMPRESSOR_NBYTES, may_need_window
from aiostream_data.formats.base import KnowsLargest
from aiostream_data.loading.bound_item import LoaderPart
from aiostream_data.metrics.sizes import as_size
from aiostream_data.plan import operators as op
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.plan.subprocess import places_of, process_nbytes

LARGE_SHARE: Final = 32
"""A row, range or batch larger than 1/32 of the memory limit may exceed the limit."""

COPIES_AS_READ: Final = 2
"""Maximum number of copies of a record in a plan without user functions. One copy is raw bytes, the other is a str or a
joined buffer."""


def alone_parts(plan: Node, memory_limit: int) -> Iterator[LoaderPart]:
    """Yield the memory that a large record and a decompressor's window of each source may use beyond the limit."""
    for source in dict.fromkeys(node for node in walk(plan) if isinstance(node, ReadFiles)):
        hosts = sum(place.workers for place in places_of(plan) if any(lower is source for lower in walk(place)))
        limit = process_nbytes(plan, memory_limit) if hosts else memory_limit
        largest = largest_record_nbytes(source) or 0
        if largest * LARGE_SHARE > limit:
            nbytes = _copies(plan, source) * largest
            yield LoaderPart(nbytes=nbytes * max(1, hosts), what=f"a record of up to {as_size(largest)}, read alone")
        if may_need_window(source.compression) and TOGETHER_SHARE * limit < MAX_DECOMPRESSOR_NBYTES:
            yield LoaderPart(
                nbytes=MAX_DECOMPRESSOR_NBYTES * max(1, hosts), what="a window of a compressed file, read alone"
            )


def largest_record_nbytes(source: ReadFiles) -> int | None:
    """Return the maximum size in bytes of a source's records, or None if the file format declares no maximum."""
    return source.format.largest_nbytes if isinstance(source.format, KnowsLargest) else None


def _copies(plan: Node, source: ReadFiles) -> int:
    has_functions = any(isinstance(node, op.Call) for node in walk(plan))
    compressed = source.format.whole and bool(source.compression)  # compressed and decompressed object coexist
    return (COPIES_OF_A_ROW if has_functions else COPIES_AS_READ) + compressed
