"""Give one element of every input at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.stages.base import Stage
from aiostream_data.plan.operators import Zip
from aiostream_data.plan.spec import graft
from aiostream_data.records import Chunk, Columns, Items
from aiostream_data.structure import Structure


@dataclass
class ZipStage(Stage):
    """Running form of ``Zip``. The rows' ids are those of the first input."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: Zip = self.node
        rests: list[Chunk | None] = [None] * len(inlets)
        while True:
            for number, inlet in enumerate(inlets):
                if rests[number] is None:
                    rests[number] = await inlet.receive()
                    if rests[number] is None:
                        return  # the shortest input has ended
            whole = [rest for rest in rests if rest is not None]
            rows = min(map(len, whole))
            await outlet.send(await self.hop(_side_by_side, node.structure, [part.slice(0, rows) for part in whole]))
            rests = [part.slice(rows, len(part)) if len(part) > rows else None for part in whole]


def _side_by_side(structure: Structure, parts: list[Chunk]) -> Chunk:
    leases = tuple(part.lease for part in parts)
    columns = [part for part in parts if isinstance(part, Columns)]
    if len(columns) == len(parts):
        whole = graft(structure, [part.structure for part in columns])
        leaves = tuple(leaf for part in columns for leaf in part.leaves)
        return Columns(whole, leaves, parts[0].ids, leases)
    rows = structure.rows([part.elements() for part in parts])
    first = parts[0]
    return Items(rows, first.ids, leases, first.row_ids if isinstance(first, Items) else None)
