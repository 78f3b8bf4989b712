"""Buffer chunks for ``prefetch()``, and compute the capacity of the channel between two stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data._engine.flow.stage import OneToOne
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Prefetch, ToDevice

CHANNEL_ITEMS = 2
"""Default capacity of a channel between two stages, in chunks."""

PARCEL_ELEMENTS = 2
"""Maximum number of elements buffered for the consumer if the plan does not end in prefetch()."""


@dataclass
class PrefetchStage(OneToOne):
    """Stage of a ``Prefetch`` node.

    The stage forwards chunks to a channel with a capacity of :func:`channel_items` chunks.
    """

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        async for chunk in inlets[0]:
            await outlet.send(chunk, inlets[0].chunk_nbytes)
            del chunk  # free its rows during the wait for the next


def channel_items(node: Node) -> int:
    """Return the capacity in chunks of the channel after ``node``."""
    if isinstance(node, Prefetch) and isinstance(node.buffer_size, int):
        return max(CHANNEL_ITEMS, node.buffer_size)
    return CHANNEL_ITEMS


def waiting_elements(plan: Node) -> int:
    """Return the maximum number of finished elements that wait for the consumer, as set by a final ``prefetch()``."""
    node = plan.input if isinstance(plan, ToDevice) else plan
    if isinstance(node, Prefetch) and isinstance(node.buffer_size, int):
        return max(1, node.buffer_size)
    return PARCEL_ELEMENTS
