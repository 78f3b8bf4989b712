"""Reserve memory for the result of a user function, from before the call until the result is emitted.

Finished results wait for earlier rows and for the next stage. Only the stage that created the results can count their
bytes, so a call waits until its expected result fits the memory limit. A call never waits if no other call is in
flight, so a result larger than the limit can still pass. The expected size of a result is the input size times the
recent maximum of the ratio of output to input. Before the first result, the number of concurrent calls is limited as if
each result had ``FIRST_NBYTES`` bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
    """

    def __init__(self, budget: Budget, in_flight: Callable[[], int]) -> None:
        self._budget = budget
        self._in_flight = in_flight
        self._growth = 1.0
        self._has_seen_one = False
        self._first_calls = max(1, int(FILLED * budget.limit) // (COPIES * FIRST_NBYTES))

    async def room_for(self, nbytes: int) -> Charge:
        """Wait until the expected result of a call with ``nbytes`` bytes of input fits the memory limit.

        Return the charge.

        The charge covers the input elements, the returned objects and the columns made from them.
        """
        result = int(nbytes * self._growth)
        expected = nbytes + COPIES * result
        self._budget.leave_free(expected)
        if not self._has_seen_one:
            await self._budget.until(lambda: self._has_seen_one or self._in_flight() < self._first_calls)
            for _ in range(FIRST_CYCLES):
                await asyncio.sleep(0)
        fits = await self._budget.until_fits(expected, lambda: self._in_flight() == 0)
        # A single call over the limit is charged only its result: the other copies are freed soon.
        return self._budget.charge(expected if fits else result, RESULTS)

    def returned(self, room: Charge | None, given: int, nbytes: int) -> Charge:
        """Record that an input of ``given`` bytes produced a result of ``nbytes`` bytes.

        Return the memory charge of the result.
        """
        self._growth = max(nbytes / max(1, given), self._growth * FORGETTING)
        if not self._has_seen_one:
            self._has_seen_one = True
            self._budget.poke()
        if room is None:
            return self._budget.charge(nbytes, RESULTS)
        self._budget.warn_of(nbytes)
        room.resize(nbytes)
        return room
