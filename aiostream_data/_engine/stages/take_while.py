"""Run ``take_while``: emit the rows before the first row for which the predicate is False."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiostream_data._engine.calls.predicates import leading_rows
from aiostream_data._engine.calls.user_code import UserFunction
from aiostream_data._engine.failures.carried_error import as_raisable
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data.plan.batched import gives_batches
from aiostream_data.plan.take_while import TakeWhile


@dataclass
class TakeWhileStage(Stage):
    """Stage of a ``TakeWhile`` plan node: emits rows while the predicate is True.

    The stage stops its input at the first row for which the predicate is False.

    The saved position of ``take_while`` is the position of its input. A run that resumes at the end of the stream calls
    the predicate again for the row that ended the stream.
    """

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        node: TakeWhile = self.node
        services, takes_batches = self.context.services, gives_batches(node.input)
        describe = services.origins.describe
        user = UserFunction(node.predicate, describe, takes_batches=takes_batches, pool=services.blocks)
        async for chunk in inlets[0]:
            rows, failure = await self.hop(leading_rows, user, chunk)
            await outlet.send(chunk.slice(0, rows))
            if failure is not None:
                raise as_raisable(failure)
            if rows < len(chunk):
                return
            del chunk  # free its rows during the wait for the next
