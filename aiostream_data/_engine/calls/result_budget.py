"""Room in the budget for what functions return: taken before they are called, kept until it is handed on.

How this works. Results wait for their turn, and for the stages after them, where nobody sees them but the
stage that made them: as many as there are calls in flight. So a call that would not be the only one in
flight waits until what it is expected to return fits into the limit; a lone one never waits, so that a
result larger than everything passes alone. What calls return is expected to stand in the proportion to what
they are given in which the largest of late did. As long as none has returned, only so many calls are begun
that results of ``FIRST_NBYTES`` would fit.
"""

from __future__ import annotations

from collections.abc import Callable

from aiostream_data._engine.memory.budget import FILLED, FORGETTING, RESULTS, Budget, Charge

FIRST_NBYTES = 1 << 20
"""Size that results are taken for before one was seen."""

COPIES = 2
"""How often a result may be there at once: as it was returned, and as columns."""


class ResultBudget:
    """Room for the results of one stage. Loop thread only.

    Args:
        in_flight: Returns how many calls were begun and have not been handed on.
    """

    def __init__(self, budget: Budget, in_flight: Callable[[], int]) -> None:
        self._budget = budget
        self._in_flight = in_flight
        self._growth = 1.0
        self._has_seen_one = False
        self._first_calls = max(1, int(FILLED * budget.limit) // (COPIES * FIRST_NBYTES))

    async def room_for(self, nbytes: int) -> Charge:
        """Wait for room for the result of a call that is given so many bytes; it ends with the charge.

        While the call runs there are the elements that it is given, what it returns, and that as columns.
        """
        result = int(nbytes * self._growth)
        expected = nbytes + COPIES * result
        self._budget.leave_free(expected)
        if not self._has_seen_one:
            await self._budget.until(lambda: self._has_seen_one or self._in_flight() < self._first_calls)
        fits = await self._budget.until_fits(expected, lambda: self._in_flight() == 0)
        # What a lone call takes beside its result, over the limit, is soon gone.
        return self._budget.charge(expected if fits else result, RESULTS)

    def returned(self, room: Charge | None, given: int, nbytes: int) -> Charge:
        """Note how large a result is that a call made of ``given`` bytes; return what it is charged with from now."""
        self._growth = max(nbytes / max(1, given), self._growth * FORGETTING)
        if not self._has_seen_one:
            self._has_seen_one = True
            self._budget.poke()
        if room is None:
            return self._budget.charge(nbytes, RESULTS)
        self._budget.warn_of(nbytes)
        room.resize(nbytes)
        return room
