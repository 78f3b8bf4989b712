"""Reserve memory for the result of a user function, from before the call until the result is emitted.

Finished results wait for earlier rows and for the next stage. Only the stage that created the results can count their
bytes, so a call waits until its expected result fits the memory limit. A call never waits if no other call is in
flight, so a result larger than the limit can still pass. In the datasets that a function of ``interleave`` returns,
many runs of one operator work at the same time. There, such a call begins only if the consumer waits for its run.

The expected size of a result is the input size times the recent maximum of the ratio of output to input. Before the
first result, the number of concurrent calls is limited as if each result had ``FIRST_NBYTES`` bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiostream_data._engine.calls.result_sizes import ResultSizes, SharedResults
from aiostream_data._engine.memory.budget import FILLED, FORGETTING, RESULTS, Budget
from aiostream_data._native import Charge

FIRST_NBYTES = 1 << 20
"""Assumed size of a result in bytes, until the first call returns."""

FIRST_CYCLES = 4
"""Cycles of the event loop between calls before the first result, in which a call that does not wait returns."""

COPIES = 2
"""Number of copies of a result that can exist at the same time: the returned object, and the columns made from it."""


class ResultBudget:
    """Memory reservations for the results of one stage's user functions.

    This class is not thread-safe: use it only on the event loop's thread.

    Args:
        in_flight: Function that returns the number of calls whose results have not been emitted.
        shared: What the run shares with other runs of the operator that work at the same time; None for a single run.
    """

    def __init__(self, budget: Budget, in_flight: Callable[[], int], shared: SharedResults | None = None) -> None:
        self._budget = budget
        self._in_flight = in_flight
        self._is_awaited = _always if shared is None else shared.is_awaited
        self._sizes = ResultSizes() if shared is None else shared.sizes
        most = max(1, int(FILLED * budget.limit) // (COPIES * FIRST_NBYTES))
        self._first_calls = most if shared is None else min(most, shared.first_calls)

    @property
    def in_flight(self) -> int:
        """Number of calls whose results have not been emitted."""
        return self._in_flight()

    async def room_for(self, nbytes: int) -> Charge:
        """Wait until the expected result of a call with ``nbytes`` bytes of input fits the memory limit.

        Return the charge.

        The charge covers the input elements, the returned objects and the columns made from them.
        """
        if not self._sizes.has_seen_one:
            await self._budget.until(self._may_begin_first)
            self._sizes.runs.add(self)
            for _ in range(FIRST_CYCLES):
                await asyncio.sleep(0)
        result = int(nbytes * self._sizes.growth)
        expected = nbytes + COPIES * result
        self._budget.leave_free(expected)
        fits = await self._budget.until_fits(expected, self._is_next)
        # A single call over the limit is charged only its result: the other copies are freed soon.
        return self._budget.charge(expected if fits else result, RESULTS)

    def _may_begin_first(self) -> bool:
        return self._sizes.has_seen_one or self._sizes.in_flight < self._first_calls or self._is_next()

    def _is_next(self) -> bool:
        """Return True if a call must not wait for the results of other calls."""
        return self._in_flight() == 0 and self._is_awaited()

    def returned(self, room: Charge | None, given: int, nbytes: int) -> Charge:
        """Record that an input of ``given`` bytes produced a result of ``nbytes`` bytes.

        Return the memory charge of the result.
        """
        sizes = self._sizes
        sizes.growth = max(nbytes / max(1, given), sizes.growth * FORGETTING)
        if not sizes.has_seen_one:
            sizes.has_seen_one = True
            self._budget.poke()
        if room is None:
            return self._budget.charge(nbytes, RESULTS)
        self._budget.warn_of(nbytes)
        room.resize(nbytes)
        return room


def _always() -> bool:
    return True
