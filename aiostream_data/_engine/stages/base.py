"""What a stage is: one coroutine that moves chunks from its inlets to its outlet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiostream_data._engine.context import RunContext, hop
from aiostream_data._engine.ends import Inlet, Outlet
from aiostream_data.metrics.counters import StageCounters


@dataclass
class Stage:
    """Running form of one plan node. The supervisor closes or aborts both ends when it returns.

    Attributes:
        node: The plan node.
        context: The run it belongs to.
        counters: Where it notes busy time.
    """

    node: Any
    context: RunContext
    counters: StageCounters

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        """Move chunks until the stream ends.

        Raises:
            ReceiverClosed: Nobody reads the outlet any more; the supervisor takes that as an end.
        """
        raise NotImplementedError

    def rows_accounted(self, outlet: Outlet) -> int | None:
        """Return the input rows that the outlet's rows stand for, or None where no such sum exists."""
        return None

    async def hop(self, function: Any, *args: Any) -> Any:
        """Run ``function`` on the shared pool, note its cost, return its value or raise its error."""
        return await hop(self.counters, self.context.services.pool.submit(function, *args))


@dataclass
class OneToOne(Stage):
    """A stage that gives exactly one row per row."""

    def rows_accounted(self, outlet: Outlet) -> int | None:
        return outlet.rows
