"""Turn chunks into parcels for the consumer."""

from __future__ import annotations

from typing import Final

from aiostream_data._engine.consumer.bridge import Parcel
from aiostream_data._engine.flow.context import value_of
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._native import Charge
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.rows.columns import SeparateBytes, VarColumn
from aiostream_data.rows.lent_memory import LendsMemory
from aiostream_data.rows.records import Chunk, Columns, Items

QUICK_ELEMENTS: Final = 256
"""Number of values that the event loop makes in less time than a hop to a thread takes."""

QUICK_NBYTES: Final = 64 << 10
"""Number of bytes that the event loop copies in less time than a hop to a thread takes."""


async def parcel_of(chunk: Chunk, pool: ThreadExecutor, memory: LendsMemory) -> Parcel:
    """Return the elements of a chunk, whose large ``bytes`` take memory from ``memory``.

    Large chunks are converted on a thread of ``pool``.
    """
    if isinstance(chunk, Items):
        nbytes = chunk.lease.nbytes if isinstance(chunk.lease, Charge) else chunk_nbytes(chunk)
        return Parcel(chunk.values, chunk.ids, chunk.made_of or chunk.ids, nbytes, chunk.lease, chunk.runs)
    elements = chunk.elements() if is_quick(chunk) else value_of(await pool.submit_first(chunk.elements, memory))
    return Parcel(elements, chunk.ids, chunk.made_of or chunk.ids, chunk.nbytes, chunk.lease)


def is_quick(chunk: Columns) -> bool:
    """Return True if making the elements of a chunk takes less time than a hop."""
    if len(chunk) * len(chunk.leaves) > QUICK_ELEMENTS:
        return False
    copied = (leaf for leaf in chunk.leaves if isinstance(leaf, VarColumn) and not isinstance(leaf, SeparateBytes))
    return sum(leaf.nbytes for leaf in copied) <= QUICK_NBYTES
