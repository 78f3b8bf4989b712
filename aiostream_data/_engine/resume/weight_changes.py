"""Weights of mixtures that were changed while running: what every run of a mixture has to know of them.

How this works. A mixture may run several times in one loader: once per epoch, and the next one begins
while the rows of the one before are still on their way. A change holds from the next row that a running
one decides, and from the first row of those that begin later. All of it is in the state, by epoch and row,
so that a resumed loader changes weights at the same rows. What no row still to be received is under is
forgotten as the consumer goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

from aiostream_data.errors import StateMismatchError
from aiostream_data.transforms.mixing import MixOrder
from aiostream_data.weights import Schedule, Vector

Run: TypeAlias = tuple[int, int]
"""Number of a mixture in its plan, and the epoch."""


@dataclass
class _Running:
    """One run of a mixture; ``order`` decides its rows, and is None once all are decided.

    ``schedule`` has the changes for rows still to be received, ``whole`` all of them. It is over when no
    row is to be received any more.
    """

    schedule: Schedule
    whole: Schedule
    order: MixOrder | None
    is_over: bool = False


class _Last(NamedTuple):
    """The last change of a mixture, for the runs from an epoch on: none of them has begun."""

    change: list[Any]
    first_epoch: int


class WeightChanges:
    """The changes of all mixtures of one loader. Safe from any thread.

    Args:
        saved: What :meth:`state` gave; None for no changes.

    Attributes:
        lock: To be held while an order decides.

    Raises:
        StateMismatchError: ``saved`` is damaged.
    """

    def __init__(self, saved: Any = None) -> None:
        self.lock = Lock()
        self._saved: dict[Run, list[Any]] = {}
        self._last: dict[int, _Last] = {}
        self._set_here: set[int] = set()
        self._runs: dict[Run, _Running] = {}
        self._elsewhere: dict[frozenset[int], Any] = {}
        if saved is not None:
            self._read(saved)

    def begin(self, run: Run, order: MixOrder) -> None:
        """Give the order of a run that begins, or goes on, the changes it is under, and those that follow."""
        with self.lock:
            mixture, epoch = run
            planned = order.schedule
            saved = self._saved.pop(run, None)
            if saved is not None:
                order.schedule = planned.with_changes_of(saved)
            last = self._last.get(mixture)
            if last is not None and (mixture in self._set_here if saved is not None else epoch >= last.first_epoch):
                for change in planned.with_changes_of([last.change]).changes:
                    order.schedule = order.schedule.changed(max(change.first_row, order.row), change.weights)
                    at_once = planned.changed(0, change.weights).changes_state[0]
                    self._last[mixture] = last._replace(change=at_once)
            self._runs[run] = _Running(order.schedule, order.schedule, order)

    def end(self, run: Run) -> None:
        """Record that all rows of a run are decided."""
        with self.lock:
            if run in self._runs:
                self._runs[run].order = None

    def set(self, mixture: int, planned: Schedule, weights: Vector, from_row: int | None = None) -> int:
        """Change the weights of a mixture, and return the first row that is under them.

        Of several runs, the earliest counts; those that follow it change as soon as they can.

        Args:
            planned: The mixture's schedule.
            from_row: The row, or None for the next one that is decided; 0 where none has been yet.

        Raises:
            PlanError: ``from_row`` is decided already.
        """
        with self.lock:
            rows: list[int] = []
            runs = sorted(run for run in self._runs if run[0] == mixture)
            for run in runs:
                running = self._runs[run]
                if running.order is not None:
                    row = running.order.set_weights(weights, None if rows else from_row)
                    running.schedule = running.schedule.changed(row, weights)
                    running.whole = running.whole.changed(row, weights)
                    rows.append(row)
            row = rows[0] if rows else from_row or 0
            self._set_here.add(mixture)
            change = planned.changed(0 if rows else row, weights).changes_state[0]
            self._last[mixture] = _Last(change, runs[-1][1] + 1 if runs else 0)
            return row

    def forget(self, run: Run, row: int) -> None:
        """Discard history of a run before ``row``, and of earlier epochs."""
        with self.lock:
            mixture, epoch = run
            for known in [known for known in self._runs if known[0] == mixture and known[1] < epoch]:
                self._runs[known].is_over = True
                if not self._runs[known].whole.changes:
                    del self._runs[known]
            if run in self._runs:
                self._runs[run].schedule = self._runs[run].schedule.since(row)

    def known_elsewhere(self, mixtures: frozenset[int], state: dict[str, Any] | None) -> None:
        """Record what :meth:`state` gives in the process that runs these mixtures."""
        with self.lock:
            self._elsewhere[mixtures] = state

    def state(self, from_the_beginning: bool = False) -> dict[str, Any] | None:
        """Return all changes for rows still to be received as plain data; None where there are none.

        Args:
            from_the_beginning: Return also those for rows received since the loader was opened.
        """
        here = self._state_here(from_the_beginning)
        if not self._elsewhere:
            return here
        with self.lock:
            elsewhere = frozenset().union(*self._elsewhere)
            known = [found for found in self._elsewhere.values() if found is not None]
        joined: dict[str, list[Any]] = {"runs": [], "last": []}
        for part, entries in joined.items():
            entries += [entry for entry in (here or joined)[part] if entry[0] not in elsewhere]
            for found in known:
                entries += found[part]
            entries.sort(key=lambda entry: entry[:1])
        return joined if joined["last"] else None

    def _state_here(self, from_the_beginning: bool) -> dict[str, Any] | None:
        with self.lock:
            if not self._last:
                return None
            if from_the_beginning:
                schedules = {run: running.whole for run, running in self._runs.items()}
            else:
                schedules = {run: running.schedule for run, running in self._runs.items() if not running.is_over}
            changes = {run: schedule.changes_state for run, schedule in schedules.items()} | self._saved
            return {
                "runs": [[*run, found] for run, found in sorted(changes.items()) if found],
                "last": [[mixture, *last] for mixture, last in sorted(self._last.items())],
            }

    def _read(self, saved: Any) -> None:
        try:
            for mixture, epoch, changes in saved["runs"]:
                self._saved[int(mixture), int(epoch)] = [_checked(change) for change in changes]
            for mixture, change, first_epoch in saved["last"]:
                self._last[int(mixture)] = _Last(_checked(change), int(first_epoch))
        except (TypeError, ValueError, KeyError) as error:
            raise StateMismatchError([f"its changes of weights are damaged: {error}"]) from None


def _checked(change: Any) -> list[Any]:
    row, weights, planned = change
    return [int(row), [float(weight) for weight in weights], [float(weight) for weight in planned]]
