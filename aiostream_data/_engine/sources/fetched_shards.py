"""Find the shard that a row was read from, even if the shard list has changed since then."""

from __future__ import annotations

from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.resume.shard_numbers import ShardNumbers
from aiostream_data._engine.sources.listed_shards import ListedShards
from aiostream_data.errors import StateMismatchError
from aiostream_data.object_names import object_name
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.shard_match import GONE
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.rows.id_arrays import SPLIT_BITS, SPLIT_MASK
from aiostream_data.rows.lineage import Lineage


def find_fetched_shard(plan: Node, context: RunContext, rows: Lineage, name: str) -> None:
    """Map the shard number in a row's origin to the shard's number in the current shard list.

    Args:
        rows: Lineage (row ids) stored in the row origin.
        name: Name of the object from which the first row was read.

    Raises:
        StateMismatchError: The shard list no longer contains the object.
    """
    services, listed = context.services, context.services.features.of(ListedShards)
    splits = [split for split, _ in rows.ids.pairs_of(0) if split >> SPLIT_BITS > 0]
    space, number = services.origins.namespace(splits[-1] >> SPLIT_BITS), splits[-1] & SPLIT_MASK
    sources = {context.keys[node]: node for node in walk(plan) if isinstance(node, ReadFiles)}
    shards = listed.resolved.get(sources[space.number]) if space.number in sources else None
    if shards is None or len(splits) > 1:  # made of rows of several sources: the origin names only one object
        return
    if number < len(shards) and object_name(shards[number].url) == name:
        return
    place = next((place for place, shard in enumerate(shards) if object_name(shard.url) == name), None)
    if place is None:
        raise StateMismatchError([f"the row was read from {name}, which is no longer listed"], "Restore the file.")
    listed.numbers[space.number] = [ShardNumbers(space.epoch, (number + 1,), (*[GONE] * number, place))]
