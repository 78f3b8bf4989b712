"""Count the lost records of a source against its error budget, and log each loss before later rows are sent."""

from __future__ import annotations

from collections.abc import Sequence

from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.failures.dead_letters import DeadLetters
from aiostream_data._engine.failures.shard_losses import MOST_AT_ONCE, Lost
from aiostream_data._engine.flow.context import RunContext
from aiostream_data.failing.policies import OnError, handling_of
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.plan.tables import TableFile


def is_exact(letters: DeadLetters, on_error: OnError) -> bool:
    """Return True if each loss must be counted at its exact row, because of an error budget or the order of the log."""
    handling = handling_of(on_error)
    if handling.kind != "skip":
        return False
    return handling.max_count is not None or handling.max_rate is not None or letters.logs_with(on_error)


class LossAccount:
    """Counter of the lost records in one run of a source. Loop thread only.

    Args:
        counters: Counters of the source's stage.

    Attributes:
        rows_before: Number of rows that this run had emitted before the current merge.
    """

    def __init__(self, context: RunContext, node: ReadFiles | TableFile, counters: StageCounters) -> None:
        self._letters = context.services.dead_letters
        self._place, self._nth, self._node = context.place(node), context.nth(node), node
        self._counters = counters
        self._is_logged = self._letters.logs(node)
        self._is_exact = is_exact(self._letters, node.on_error)
        self._rows = 0
        self.rows_before = 0
        self._unwritten: list[Lost] = []

    @property
    def is_exact(self) -> bool:
        """True if each loss must be counted at its exact row; see :func:`is_exact`."""
        return self._is_exact

    @property
    def is_behind(self) -> bool:
        """True if losses must be logged before the source sends more rows."""
        return bool(self._unwritten)

    @property
    def is_full(self) -> bool:
        """True if losses must be logged before the source counts more losses.

        The limit on unlogged losses bounds the memory that losses use.
        """
        return len(self._unwritten) >= MOST_AT_ONCE

    def take(self, rows: int, lost: Sequence[Lost]) -> None:
        """Count the losses that come after the first ``rows`` rows of the current merge.

        Raises:
            PartlyDone: A loss exceeds the error budget. ``error`` is the ErrorBudgetError.
        """
        rows += self.rows_before
        first, self._rows = rows - self._rows, rows
        at = [first + number for number in range(len(lost))]
        allowed = self._letters.count(self._place, self._node, first + len(lost), at)
        self._counters.skipped += allowed
        if self._is_logged:
            self._unwritten += lost[:allowed]
        if allowed < len(lost):
            last = lost[allowed]
            spent = self._letters.spent(self._place, self._node, last.told(), last.error)
            spent.add_note(self._node.noted)
            raise PartlyDone(allowed, spent)

    async def write(self) -> None:
        """Log all counted losses.

        Raises:
            DeadLetterError: The log cannot be written.
        """
        lost, self._unwritten = self._unwritten, []
        if lost:
            await self._letters.write(self._nth, self._node, lambda: [each.told() for each in lost])
