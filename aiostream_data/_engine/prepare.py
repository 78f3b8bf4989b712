"""What is done when a loader is opened, before the first stage starts: find the files, open the device."""

from __future__ import annotations

import asyncio

from aiostream_data._engine.context import RunContext, hop
from aiostream_data._engine.shard_search import names_shards, search_shards
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Shuffle, ToDevice
from aiostream_data.plan.ranks import check_enough_files
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.transforms.spill_file import check_folder


async def prepare(plan: Node, context: RunContext) -> None:
    """Resolve every file pattern of the plan, all at once, open the device, and look where rows may wait in a file.

    Raises:
        NoMatchError: A pattern matches nothing.
        IndexFileError: What should name the files is no index.
        StorageError: A store did not answer.
        RankError: There are fewer files than ranks that share them.
        MissingExtraError, DeviceUnavailableError: The device cannot be used.
        SpillError: No file can be made in the folder where a shuffle may spill.
    """
    for node in walk(plan):
        if isinstance(node, ToDevice):
            await _open_device(node, context)
        if isinstance(node, Shuffle) and node.spill_folder is not None:
            await hop(context.counters(node), context.services.pool.submit(check_folder, node.spill_folder))
    sources = [node for node in walk(plan) if isinstance(node, (ListFiles, ReadFiles)) and names_shards(node)]
    try:
        async with asyncio.TaskGroup() as group:
            for node in sources:
                group.create_task(_resolve(node, context))
    except BaseExceptionGroup as failures:
        error = failures.exceptions[0]
        raise error from error.__cause__


async def _resolve(node: ListFiles | ReadFiles, context: RunContext) -> None:
    shards = await search_shards(context, node)
    check_enough_files(len(shards), node.share)
    context.services.resolved[node] = shards


async def _open_device(node: ToDevice, context: RunContext) -> None:
    def open_stage() -> DeviceStage:
        return DeviceStage(open_backend(node.device), host_slots=node.depth, device_slots=node.depth)

    device = await hop(context.counters(node), context.services.pool.submit(open_stage))
    context.services.devices[node] = device
