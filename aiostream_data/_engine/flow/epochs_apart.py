"""Keep the epochs of a repeated source apart in a stage that emits results as calls finish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise

import numpy as np

from aiostream_data._engine.resume.emission_log import EmissionLog
from aiostream_data.rows.records import Chunk


class EpochsApart:
    """Rows of one epoch after another: the next epoch begins when the stage has emitted all rows before it.

    Use it on the event loop only.

    Args:
        log: Log of the rows that the stage received and emitted.
    """

    def __init__(self, log: EmissionLog) -> None:
        self._log = log
        self._waiter: asyncio.Future[None] | None = None

    async def chunks(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Yield chunks with rows of one epoch each. Wait before the first chunk of another epoch."""
        last: int | None = None
        async for chunk in chunks:
            for epoch, rows in _epochs_of(chunk):
                if last is not None and epoch != last:
                    await self._until_all_are_emitted()
                last = epoch
                yield rows
            del chunk

    def emitted(self) -> None:
        """Continue with the next epoch if the log contains no unfinished row."""
        if self._waiter is not None and not self._waiter.done() and self._log.all_are_finished:
            self._waiter.set_result(None)

    async def _until_all_are_emitted(self) -> None:
        while not self._log.all_are_finished:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


def _epochs_of(chunk: Chunk) -> Iterator[tuple[int, Chunk]]:
    """Yield the split of each epoch in a chunk of a source that repeats its rows itself, and the rows of the epoch."""
    run = chunk.ids.run_of_split()
    if run is not None:
        yield run[1][0], chunk
        return
    splits = next(chunk.ids.pairs()).splits
    starts = [0, *(np.flatnonzero(np.diff(splits)) + 1).tolist(), len(chunk)]
    for start, stop in pairwise(starts):
        yield int(splits[start]), chunk.slice(start, stop)
