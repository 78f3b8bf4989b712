"""Prepare a run before the first stage starts: list the files and open the devices."""

from __future__ import annotations

from aiostream_data._engine.flow.context import RunContext, hop
from aiostream_data._engine.sources.listed_shards import ListedShards
from aiostream_data._engine.sources.shard_search import names_shards
from aiostream_data._engine.sources.shared_listing import find_all_shards
from aiostream_data.plan.base import Node, Spills, walk
from aiostream_data.plan.operators import ToDevice
from aiostream_data.plan.ranks import check_enough_files
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.transforms.spill_file import check_folder


async def prepare(plan: Node, context: RunContext) -> None:
    """List the files of all patterns in the plan concurrently, open the devices, and check the spill folders.

    Raises:
        NoMatchError: A file pattern matches no file.
        IndexFileError: The index of files is invalid.
        StorageError: An object store did not answer.
        RankError: There are fewer files than ranks that share the files, or rank 0 opened a different plan.
        MissingExtraError, DeviceUnavailableError, DeviceMemoryError: The device (such as a GPU) cannot be used.
        ForkedPipelineError: This process was forked from a process that had already opened a GPU.
        SpillError: The spill folder of an operator is not writable.
    """
    sources = [node for node in walk(plan) if isinstance(node, (ListFiles, ReadFiles)) and names_shards(node)]
    for node, shards in zip(sources, await find_all_shards(context, sources), strict=True):
        check_enough_files(len(shards), node.share)
        context.services.features.of(ListedShards).resolved[node] = shards
    for operator in walk(plan):
        if isinstance(operator, ToDevice):
            from aiostream_data._engine.stages.to_device.device_opening import open_device  # needed for devices only

            await open_device(operator, context)
        if isinstance(operator, Spills) and operator.spill_folder is not None:
            await hop(context.counters(operator), context.services.pool.submit(check_folder, operator.spill_folder))
