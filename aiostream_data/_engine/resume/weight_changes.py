"""Changes of mixture weights during a run, shared by all runs of a mixture.

How this works. A mixture runs once per epoch, and the runs of consecutive epochs can overlap. In a current run, a
weight change applies from the first row whose input is not yet chosen. In later runs, the change applies from the first
row. The saved state stores each weight change with its epoch and row. A resumed loader thus changes the weights at the
same rows. ``forget`` discards weight changes that affect only rows that the consumer has already received.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

from aiostream_data.errors import StateMismatchError
from aiostream_data.transforms.mixing import MixOrder
from aiostream_data.weights import Schedule, Vector

Run: TypeAlias = tuple[int, int]
"""A run of a mixture: the key of the mixture in its plan, and the epoch."""


@dataclass
class _Running:
    """One run of a mixture (one epoch), with its weights.

    ``order`` chooses the input of each row, and is None after the last row. ``schedule`` stores only the weight changes
    for rows that were not received yet; ``whole`` stores all weight changes. ``is_over`` is True after the consumer has
    received the last row of the run.
    """

    schedule: Schedule
    whole: Schedule
    order: MixOrder | None
    is_over: bool = False


class _Last(NamedTuple):
    """Last weight change of a mixture. The change applies to runs from epoch ``first_epoch`` on."""

    change: list[Any]
    first_epoch: int


class WeightChanges:
    """Weight changes of all mixtures of one loader. Safe from any thread.

    Args:
        saved: Result of :meth:`state`; None if the saved state has no weight changes.

    Attributes:
        lock: Hold this lock while a mixture chooses the inputs of its next rows.

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
        """Register a run of a mixture that starts or resumes, and apply earlier weight changes to this run."""
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
        """Record that a run of a mixture has chosen the inputs of all its rows."""
        with self.lock:
            if run in self._runs:
                self._runs[run].order = None

    def set(self, mixture: int, planned: Schedule, weights: Vector, from_row: int | None = None) -> int:
        """Change the weights of a mixture. Return the first row number with the new weights.

        If several runs of the mixture overlap, row numbers refer to the earliest run. In later runs, the new weights
        apply from the first row whose input is not yet chosen.

        Args:
            planned: Weight schedule of the mixture, as written in the plan.
            from_row: First row with the new weights; None for the first row whose input is not yet chosen.

        Raises:
            PlanError: The mixture has already chosen the input of row ``from_row``.
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
        """Discard all weight changes of a run that affect only rows before ``row``.

        Also mark the mixture's runs of earlier epochs as completed.
        """
        with self.lock:
            mixture, epoch = run
            for known in [known for known in self._runs if known[0] == mixture and known[1] < epoch]:
                self._runs[known].is_over = True
                if not self._runs[known].whole.changes:
                    del self._runs[known]
            if run in self._runs:
                self._runs[run].schedule = self._runs[run].schedule.since(row)

    def known_elsewhere(self, mixtures: frozenset[int], state: dict[str, Any] | None) -> None:
        """Store the result of :meth:`state` that a worker process returned for its mixtures."""
        with self.lock:
            self._elsewhere[mixtures] = state

    def state(self, from_the_beginning: bool = False) -> dict[str, Any] | None:
        """Return the weight changes for rows that were not received yet, as JSON-compatible data, or None.

        Args:
            from_the_beginning: True to include all weight changes since the loader was opened.
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
            raise StateMismatchError(
                [f"the saved weight changes are damaged: {error}"], "Open the dataset without this state."
            ) from None


def _checked(change: Any) -> list[Any]:
    row, weights, planned = change
    return [int(row), [float(weight) for weight in weights], [float(weight) for weight in planned]]
