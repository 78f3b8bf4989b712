"""Build record streams and chunks of records from the bytes of one shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.resume.origins import Hint
from aiostream_data.formats.base import Report
from aiostream_data.formats.skipping_stream import SkippingStream
from aiostream_data.formats.stream import RecordStream, StreamStep
from aiostream_data.plan.base import Decoder, Describe
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.columns import INDEX_NBYTES, Column, VarColumn
from aiostream_data.rows.records import Chunk, Columns, ShardRef, same_layout


def alike(chunks: Iterable[Chunk], most_rows: int, small_nbytes: int) -> Iterator[list[Chunk]]:
    """Group consecutive small chunks of the same layout.

    A group has at most ``most_rows`` rows. Yield larger chunks alone.
    """
    group: list[Chunk] = []
    rows = 0
    for chunk in chunks:
        is_small = chunk_nbytes(chunk) < small_nbytes
        if group and not (is_small and rows + len(chunk) <= most_rows and same_layout([group[-1], chunk])):
            yield group
            group, rows = [], 0
        group.append(chunk)
        rows += len(chunk)
        if not is_small:
            yield group
            group, rows = [], 0
    if group:
        yield group


def stream_before(
    node: ReadFiles, shard: ShardRef, hint: Hint, step: StreamStep | None = None, report: Report | None = None
) -> tuple[RecordStream, int]:
    """Return a record stream that starts at a known byte offset, and the number of the stream's first record.

    Args:
        report: Function to call for each damaged record. The stream skips these records. If ``report`` is None, the
            stream raises an error at the first damaged record.
    """
    offset, ordinal = (0, 0) if node.format.whole or not hint.offset else (hint.offset, hint.ordinal)
    what = node.format, shard.url, node.compression, offset, step
    if report is None:
        return RecordStream(*what), ordinal
    return SkippingStream(*what, report=report, nbytes=shard.nbytes or 0), ordinal


def decode(chunk: Chunk, decoders: Sequence[Decoder], describe: Describe) -> Chunk:
    """Apply the row-wise decoders, in order, to records split from the shard."""
    for decoder in decoders:
        if not isinstance(chunk, Columns):
            raise TypeError("decoders need framed records")
        chunk = decoder.parse(chunk, describe)
    return chunk


def refers_to(values: NDArray[np.uint8], leaf: Column) -> bool:
    """Return True if the values of a leaf are part of the array ``values``."""
    if not isinstance(leaf, VarColumn):
        return False
    return leaf.values is values or np.may_share_memory(leaf.values, values)


def own_nbytes(chunk: Chunk, is_shared: Callable[[Column], bool]) -> int | None:
    """Return the bytes of a chunk besides shared memory: ids, indices and arrays. None if no leaf is shared.

    Args:
        is_shared: Returns True if the values of a leaf are shared memory.
    """
    leaves = chunk.leaves if isinstance(chunk, Columns) else ()
    shares = list(map(is_shared, leaves))
    if not any(shares):
        return None
    return chunk.ids.nbytes + sum(
        INDEX_NBYTES * len(leaf) if shares_memory else leaf.nbytes
        for leaf, shares_memory in zip(leaves, shares, strict=True)
    )
