"""Decode framed records to columns on worker threads, in order, several chunks at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiostream_data._engine.context import settle
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data._engine.hops import Hops
from aiostream_data._engine.stages.base import OneToOne
from aiostream_data._engine.user_code import summary
from aiostream_data._engine.window import Window
from aiostream_data.errors import PlanError
from aiostream_data.executors.base import Outcome
from aiostream_data.lineage import Ids, Lineage
from aiostream_data.plan.operators import ParseExample
from aiostream_data.records import Chunk, Columns, Items, VarColumn
from aiostream_data.structure import LEAF
from aiostream_data.transforms.collate import collate


@dataclass
class ParseStage(OneToOne):
    """Running form of ``ParseExample`` where it could not be fused into the reader."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        services = self.context.services
        self.counters.workers = services.cpus

        async def emit(chunk: Chunk, outcome: Outcome) -> None:
            parsed = settle(self.counters, outcome)
            # Byte features share the records' memory, so the records' lease lives on with them.
            await outlet.send(parsed.with_lease((chunk.lease, services.budget.charge(parsed.nbytes))))

        def begin(chunk: Chunk) -> asyncio.Future[Outcome]:
            return services.pool.submit(self._parse, chunk)

        await Hops(begin, emit, Window(services.cpus), ordered=True).run(aiter(inlets[0]))

    async def recall(self, lineage: Lineage) -> Chunk:
        parsed: Chunk = await self.hop(self._parse, await self.context.recall(self.node.input, lineage))
        return parsed

    def _parse(self, chunk: Chunk) -> Chunk:
        parsed = self._parsed(chunk)
        return parsed if chunk.made_of is None else parsed.with_made_of(chunk.made_of)

    def _parsed(self, chunk: Chunk) -> Chunk:
        node: ParseExample = self.node
        origins = self.context.services.origins
        given = chunk
        if isinstance(chunk, Items):
            chunk = collate(chunk.values, chunk.ids)
        if not isinstance(chunk, Columns) or not _is_bytes(chunk):
            raise _not_bytes(given, origins.describe)

        def describe(row: int) -> tuple[str, int]:
            return origins.url_and_index(int(chunk.ids[row, 0]), int(chunk.ids[row, 1]))

        return node.decoder.parse(chunk, describe)


def _is_bytes(chunk: Columns) -> bool:
    leaf = chunk.leaves[0]
    return chunk.structure == LEAF and isinstance(leaf, VarColumn) and leaf.kind == "bytes"


def _not_bytes(chunk: Chunk, describe: Callable[[Ids, int], str]) -> PlanError:
    elements = chunk.elements()
    row = next((row for row, element in enumerate(elements) if not isinstance(element, bytes)), 0)
    error = PlanError(f"parse_example() needs elements that are serialized bytes, got {summary(elements[row])}")
    error.add_note(f"record: {describe(chunk.ids, row)}")
    return error
