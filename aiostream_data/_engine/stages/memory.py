"""Sources whose rows are in memory: arrays, one element, a range of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.memory_rows import chunks_of
from aiostream_data._engine.stages.base import Stage


@dataclass
class MemorySource(Stage):
    """Running form of ``TensorSlices``, ``Tensors`` and ``Range``."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node = self.node
        namespace = self.context.namespace(node, lambda _: node.label)
        for chunk in chunks_of(node, namespace):
            await outlet.send(chunk)
