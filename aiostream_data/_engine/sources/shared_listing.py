"""Find the shards of all sources of a plan. Either each rank lists the shards, or one rank broadcasts its list."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiostream_data._engine.flow.context import RunContext, hop
from aiostream_data._engine.sources.shard_search import search_shards
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.ranks.listing import ListOnce, heard_shards, told_failure, told_shards
from aiostream_data.rows.records import ShardRef

Sources = Sequence["ListFiles | ReadFiles"]


async def find_all_shards(context: RunContext, sources: Sources) -> list[Sequence[ShardRef]]:
    """List the shards of all sources concurrently. Return one shard list per source.

    With ``list_once``, only one rank lists the shards. That rank broadcasts its shard lists or its error, so no rank
    waits forever.

    Raises:
        NoMatchError: A pattern matches no object.
        IndexFileError: An index file is invalid.
        StorageError: A store request failed.
        RankError: The broadcast message is invalid or does not match the sources.
    """
    once = context.services.options.list_once
    if once is None or not sources:
        return await _search(context, sources)
    return await _search_and_tell(context, sources, once) if once.lists else await _hear(context, sources, once)


async def _search_and_tell(context: RunContext, sources: Sources, once: ListOnce) -> list[Sequence[ShardRef]]:
    try:
        found = await _search(context, sources)
    except Exception as error:
        await _broadcast(context, sources, once, told_failure(error))
        raise
    await _broadcast(context, sources, once, told_shards(found))
    return found


async def _hear(context: RunContext, sources: Sources, once: ListOnce) -> list[Sequence[ShardRef]]:
    return heard_shards(await _broadcast(context, sources, once, None), len(sources))


async def _broadcast(context: RunContext, sources: Sources, once: ListOnce, message: bytes | None) -> object:
    """Call the user's broadcast function on a worker thread. The function blocks until all ranks have called it."""
    answer: object = await hop(context.counters(sources[0]), context.services.pool.submit(once.broadcast, message))
    return answer


async def _search(context: RunContext, sources: Sources) -> list[Sequence[ShardRef]]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(search_shards(context, node)) for node in sources]
    except BaseExceptionGroup as failures:
        error = failures.exceptions[0]
        raise error from error.__cause__
    return [task.result() for task in tasks]
