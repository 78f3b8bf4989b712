"""Zip several inputs into tuples. Each tuple contains one element of each input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import State, taken_up
from aiostream_data.plan.operators import Zip
from aiostream_data.rows.lineage import Beside, Lineage, MadeOf, ids_side_by_side
from aiostream_data.rows.records import Chunk, Columns, Items, lineage_of
from aiostream_data.rows.structure import Structure, graft


@dataclass
class ZipStage(Stage):
    """Stage of a ``Zip`` plan node: combines rows of several inputs.

    The ids of an output row begin with the row ids of the first input.
    """

    kind: ClassVar[str] = "zip"

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

    def at(self, rows: int, book: BookWriter) -> State:
        return {"op": "zip", "inputs": [before.at(rows, book) for before in self.inputs]}

    def resume(self, state: State) -> Sequence[State]:
        states: list[State] = taken_up(state, "zip")["inputs"]
        return states

    @classmethod
    def schema(cls, place: Place) -> Iterator[Place]:
        inputs = place.fields(cls.kind, "inputs")["inputs"]
        count = None if place.node is None else len(place.node.inputs)
        for number, part in enumerate(inputs.items(count or 1, count)):
            yield place.of_input(part, number, place.rows)

    async def recall(self, lineage: Lineage) -> Chunk:
        node: Zip = self.node
        columns = [lineage.ids]
        for _ in node.nodes[1:]:
            columns[:1] = columns[0].split()
        made_of = [_made_of_input(lineage, number) for number in range(len(columns))]
        parts = [
            await self.context.recall(child, Lineage(ids, entries))
            for child, ids, entries in zip(node.nodes, columns, made_of, strict=True)
        ]
        return _side_by_side(node.structure, parts)


def _made_of_input(lineage: Lineage, number: int) -> list[MadeOf | None] | None:
    """Return the parts of the lineage entries that belong to one input."""
    if lineage.made_of is None:
        return None
    return [entry.of(number) if isinstance(entry, Beside) else None for entry in lineage.made_of]


def _side_by_side(structure: Structure, parts: list[Chunk]) -> Chunk:
    leases = tuple(part.lease for part in parts)
    ids, made_of = ids_side_by_side([lineage_of(part) for part in parts])
    columns = [part for part in parts if isinstance(part, Columns)]
    if len(columns) == len(parts):
        whole = graft(structure, [part.structure for part in columns])
        leaves = tuple(leaf for part in columns for leaf in part.leaves)
        return Columns(whole, leaves, ids, leases, made_of)
    rows = structure.rows([part.elements() for part in parts])
    return Items(rows, ids, leases, made_of)
