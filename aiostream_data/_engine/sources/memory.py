"""Stage for in-memory sources: arrays, a single element, or a range of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiostream_data._engine.flow.stage import NumberedRows
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.origins import Namespace, always, local
from aiostream_data._engine.sources.memory_rows import chunks_of, epochs_of, rows_of, rows_per_split
from aiostream_data._engine.sources.permuted_rows import PermutedRows
from aiostream_data.plan.keyed import WindowItems
from aiostream_data.plan.sources import Range, Tensors, TensorSlices
from aiostream_data.rows.id_arrays import SPLIT_BITS
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk


@dataclass
class MemorySource(NumberedRows):
    """Stage that emits the rows of a ``TensorSlices``, ``Tensors`` or ``Range`` plan node."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node, namespace = self.node, self._namespace()
        if isinstance(node, (TensorSlices, Range)) and node.permuted is not None:
            rows = PermutedRows(node, self.context, namespace)
            for part in rows.parts(self._first):
                await outlet.send_work(rows.chunk, *part)
            return
        for chunk in chunks_of(node, namespace, self._first):
            await outlet.send(chunk)

    async def recall(self, lineage: Lineage) -> Chunk:
        splits, ordinals = local(lineage.ids)
        return rows_of(self.node, self._namespace(), splits, ordinals)

    @classmethod
    def count(cls, node: Any) -> int:
        times = getattr(node, "times", 1)
        return rows_per_split(node) * ((1 << SPLIT_BITS) - 1 if times is None else int(times))

    def _namespace(self) -> Namespace:
        node = self.node
        times = epochs_of(node) if isinstance(node, (TensorSlices, Range, Tensors, WindowItems)) else None
        return self.context.namespace(node, always(str(node.label)), times=times)
