"""Count objects that a user function keeps between its calls against the memory budget."""

from __future__ import annotations

from math import inf
from time import perf_counter, thread_time
from typing import Any, Final

from aiostream_data._engine.memory.budget import Budget
from aiostream_data.errors import MemoryBudgetError
from aiostream_data.rows.kept_nbytes import kept_nbytes

MOST_ROWS: Final = 256
"""Maximum number of rows between two measurements, as long as a measurement takes little time."""

SHARE_OF_ROOM: Final = 0.25
"""Share of the room below the limit that objects may use, at their last rate of growth, before they are measured."""

SHARE_OF_TIME: Final = 0.05
"""Maximum share of a run's time in measurements, unless the objects could reach the limit before the next one.

Measuring millions of small objects takes long.
"""


class KeptObjects:
    """Objects that one user function keeps. They may grow up to the memory limit.

    Their size before the first row does not count: they may include a model or a table that the function needs.

    Args:
        label: Name of the operator.
        what: Name of the objects, such as "state".
        cure: What the user can do if the objects are too large, as a sentence without its full stop.

    Attributes:
        rows_left: Number of rows until :meth:`check` measures the objects. The caller subtracts the rows that passed.
    """

    def __init__(self, budget: Budget, label: str, what: str, cure: str) -> None:
        self._budget, self._label, self._what, self._cure = budget, label, what, cure
        self._held = budget.charge(0, label)
        self._first: int | None = None
        self._step = 1  # rows between two measurements
        self._rows_to_limit = 0.0  # rows after which the objects reach the limit, at their last rate of growth
        self._rows_since = 0  # rows since the last measurement
        self._not_before_s = 0.0
        self.rows_left = 0

    def check(self, value: Any) -> None:
        """Measure the objects that ``value`` refers to, if this is due. Called before a row.

        Raises:
            MemoryBudgetError: The objects have grown by more than the memory limit.
        """
        if self.rows_left > 0:
            return
        is_far = self._rows_since + self._step < self._rows_to_limit
        if is_far and perf_counter() < self._not_before_s:
            self._wait_a_step()
            return
        began = thread_time()  # other threads take no part in it
        nbytes = kept_nbytes(value)
        self._not_before_s = perf_counter() + (thread_time() - began) / SHARE_OF_TIME
        if self._first is None:
            self._first = nbytes
        else:
            self._take(nbytes - self._first)
        self._rows_since = 0
        self._wait_a_step()

    def _wait_a_step(self) -> None:
        self.rows_left = self._step
        self._rows_since += self._step

    def _take(self, nbytes: int) -> None:
        nbytes = max(0, nbytes)
        grown, room = nbytes - self._held.nbytes, self._budget.limit - nbytes
        if room < 0:
            raise MemoryBudgetError(
                f"cannot keep a larger {self._what} in {self._label}: it has grown by {nbytes} bytes, more than the "
                f"memory limit of {self._budget.limit} bytes. {self._cure}, or open the dataset with a larger "
                "memory_limit."
            )
        self._held.resize(nbytes)
        self._rows_to_limit = inf if grown <= 0 else room * self._rows_since / grown
        self._step = max(1, int(min(2 * self._step, MOST_ROWS, SHARE_OF_ROOM * self._rows_to_limit)))

    def close(self) -> None:
        """Stop counting the objects."""
        self._held.end()
