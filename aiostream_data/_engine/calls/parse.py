"""Decode serialized records into columns on worker threads, several chunks concurrently and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data._engine.calls.parse_rows import parse_rows
from aiostream_data._engine.flow.context import settle
from aiostream_data._engine.flow.first_failing_row import leading
from aiostream_data._engine.flow.hops import Hops
from aiostream_data._engine.flow.resizable_semaphore import ResizableSemaphore
from aiostream_data._engine.flow.stage import OneToOne
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data.executors.base import Outcome
from aiostream_data.plan.operators import ParseExample
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, concat


@dataclass
class ParseStage(OneToOne):
    """Stage that runs a ``ParseExample`` operator that is not merged into the shard reader."""

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        services = self.context.services
        self.counters.workers = services.cpus
        self.counters.work = "parse"

        async def emit(chunk: Chunk, outcome: Outcome) -> None:
            parsed, failure = settle(self.counters, outcome)
            # Byte features share the records' memory, so the parsed chunk also holds the records' lease.
            await outlet.send(parsed.with_lease((chunk.lease, services.budget.charge(parsed.nbytes))))
            if failure is not None:
                raise failure

        def begin(chunk: Chunk) -> asyncio.Future[Outcome]:
            return services.pool.submit(self._parse_leading, chunk)

        await Hops(begin, emit, ResizableSemaphore(services.cpus), ordered=True).run(aiter(inlets[0]))

    async def recall(self, lineage: Lineage) -> Chunk:
        parsed: Chunk = await self.hop(self._parse, await self.context.recall(self.node.input, lineage))
        return parsed

    def _parse(self, chunk: Chunk) -> Chunk:
        node: ParseExample = self.node
        return parse_rows(node.decoder, chunk, self.context.services.origins)

    def _parse_leading(self, chunk: Chunk) -> tuple[Chunk, Exception | None]:
        """Parse rows up to the first invalid row. Return the parsed rows and the error of the invalid row, if any."""
        found = leading(len(chunk), lambda first, stop: self._parse(chunk.slice(first, stop)))
        return concat(found.done) if found.done else chunk.slice(0, 0), found.error
