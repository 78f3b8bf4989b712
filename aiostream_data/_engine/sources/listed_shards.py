"""Shards that the sources of one loader read, and changes of the shard lists since the state was saved."""

from __future__ import annotations

from collections.abc import Sequence

from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.resume.shard_numbers import ShardNumbers
from aiostream_data.plan.base import Node, walk
from aiostream_data.rows.records import ShardRef


class ListedShards:
    """Shard lists of one loader; see :class:`~aiostream_data._engine.flow.features.Features`.

    Attributes:
        resolved: Shards of each source whose shards were listed before the run.
        numbers: Shard numbers in epochs that began before the shard list changed, by source key. Each sequence is
            sorted by epoch.
        gained: Keys of sources that gained shards after their saved position, and keys of mixtures that gained inputs.
    """

    def __init__(self) -> None:
        self.resolved: dict[Node, Sequence[ShardRef]] = {}
        self.numbers: dict[int, Sequence[ShardNumbers]] = {}
        self.gained: set[int] = set()


def shard_numbers(context: RunContext, node: Node) -> ShardNumbers | None:
    """Return the shard numbers of a source in this epoch, or None if the numbers equal the shard list indices."""
    listed = context.services.features.of(ListedShards)
    known = () if context.path else listed.numbers.get(context.keys[node], ())
    return next((numbers for numbers in known if context.epoch <= numbers.epoch), None)


def gains_rows(context: RunContext, node: Node) -> bool:
    """Return True if ``node`` emits rows from shards or mixture inputs that were added after the state was saved."""
    gained = context.services.features.of(ListedShards).gained
    if context.path or not gained:
        return False
    return any(context.keys[lower] in gained for lower in walk(node) if not lower.is_transparent)
