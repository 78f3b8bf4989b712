"""Test that a dataset resumes correctly at every element, without lost, repeated or changed elements.

from aiostream_data.testing.resume import resumes_everywhere

def test_my_data_set_resumes() -> None:
    report = resumes_everywhere(my_data_set.take(1_000), open_options={"seed": 7})
    assert report.largest_state_nbytes < 4096
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from aiostream_data.dataset.dataset import Dataset
from aiostream_data.errors import PlanError
from aiostream_data.testing.comparing import Compare, multiset_difference, same, sequence_difference
from aiostream_data.testing.state_size import allowed_state_nbytes
from aiostream_data.testing.unbroken import SavedState, UnbrokenPass

KEPT_IN_STATE = ("seed", "epoch")
"""Options of ``open`` that the resume test omits when resuming, because the state must contain these options."""


@dataclass(frozen=True, slots=True)
class ResumeReport:
    """Summary of all resumes tested by :func:`resumes_everywhere`.

    Attributes:
        elements: Number of elements in the uninterrupted run.
        states: Number of saved states from which the test resumed.
        resumes: Total number of resumes, including resumes of resumed runs.
        largest_state_nbytes: Size of the largest state as JSON, in bytes.
        slowest_state_s: Duration of the slowest ``state_dict()`` in seconds.
    """

    elements: int
    states: int
    resumes: int
    largest_state_nbytes: int
    slowest_state_s: float


def resumes_everywhere(
    dataset: Dataset[Any],
    *,
    open_options: Mapping[str, Any] | None = None,
    every: int = 1,
    max_elements: int = 10_000,
    max_state_nbytes: int | None = None,
    unordered: bool = False,
    compare: Compare | None = None,
    twice: bool = True,
) -> ResumeReport:
    """Read a dataset without interruption, then resume after 0, 1, 2, ... elements and compare the remaining elements.

    The test converts every state to JSON and back. The test opens the state with a pickled copy of the dataset (if
    possible), as another process would. For n elements, the test reads about ``n ** 2 / every`` elements. Use a small
    dataset or a large ``every``.

    Args:
        dataset: Dataset to test.
        open_options: Arguments of ``Dataset.open``. The test passes the seed and the epoch only to the uninterrupted
            run, because a state must contain both values.
        every: Resume after every ``every``-th element. Always resume before and after the first element, and after the
            last.
        max_elements: Maximum number of elements to compare, for example of an infinite dataset.
        max_state_nbytes: Maximum size of a state as JSON, in bytes. The default is 4 KB, plus 8 bytes for each row that
            the plan's operators may buffer.
        unordered: Allow a different order of elements in each run. The elements before and after resuming must together
            contain each element exactly once. The dataset must end, and the values of its elements must not depend on
            the order.
        compare: Function (expected, found) that returns True if both elements count as equal. The default function
            compares types, dtypes, shapes and bits. Ignored with ``unordered``.
        twice: Also save states in the resumed run, directly after resuming and later, and resume from these states.

    Returns:
        A summary of the resumes that the test performed.

    Raises:
        AssertionError: Resuming failed. The error message describes the element, the first difference and the state.
        ValueError: An ``unordered`` dataset does not end within ``max_elements``.
    """
    options = dict(open_options or {})
    unbroken = UnbrokenPass.over(dataset, options, max_elements)
    if unordered and not unbroken.complete:
        raise PlanError(f"unordered needs a data set that ends; this one has more than {max_elements} elements")
    again = {name: value for name, value in options.items() if name not in KEPT_IN_STATE}
    resuming = _Resuming(dataset, again, unbroken, unordered, compare or same, twice)
    limit = allowed_state_nbytes(dataset.plan) if max_state_nbytes is None else max_state_nbytes
    states = list(unbroken.every(every))
    for state in states:
        _check_size(state, limit)
        resuming.try_state(state)
    return ResumeReport(
        elements=len(unbroken.elements),
        states=len(states),
        resumes=resuming.resumes,
        largest_state_nbytes=max(len(state.text) for state in unbroken.states),
        slowest_state_s=max(state.taken_s for state in unbroken.states),
    )


def _check_size(state: SavedState, limit: int) -> None:
    if len(state.text) > limit:
        raise AssertionError(f"{state.how}: the state is {len(state.text)} bytes of JSON, over {limit}: {state.text}")


@dataclass(slots=True)
class _Resuming:
    """Resumes saved states of one uninterrupted run and compares the elements with that run."""

    dataset: Dataset[Any]
    options: dict[str, Any]
    unbroken: UnbrokenPass
    unordered: bool
    compare: Compare
    twice: bool
    resumes: int = 0
    pickled: bytes | None = field(init=False)

    def __post_init__(self) -> None:
        self.pickled = _pickled(self.dataset)

    def try_state(self, state: SavedState) -> None:
        """Resume a state. With ``twice``, also resume states that the resumed run saves at its start and later."""
        left = len(self.unbroken.elements) - state.after
        further = (5 * state.after + 1) % left + 1 if left else 0
        saved = self._resume(self._copy(), state, [], (0, further) if self.twice else ())
        for later, since in saved:
            if later.text != state.text:
                self._resume(self.dataset, later, since, ())

    def _copy(self) -> Dataset[Any]:
        return self.dataset if self.pickled is None else pickle.loads(self.pickled)

    def _resume(
        self, dataset: Dataset[Any], state: SavedState, since: list[Any], save_at: tuple[int, ...]
    ) -> list[tuple[SavedState, list[Any]]]:
        """Resume from a state and compare the remaining elements.

        Return the states that the resumed run saved, each with that run's elements before the state.

        Args:
            since: Elements that a resumed run emitted before ``state``, if a resumed run saved ``state``.
            save_at: Numbers of elements after which the resumed run saves a state.
        """
        self.resumes += 1
        saved: list[tuple[SavedState, list[Any]]] = []
        rest: list[Any] = []
        wanted = len(self.unbroken.elements) - state.after - len(since)

        def save() -> None:
            if len(rest) in save_at:
                how = f"{state.how}, resumed, and saved after {len(rest)} more"
                saved.append((SavedState.of(loader, state.after, how), list(rest)))

        with dataset.open(state=state.value(), **self.options) as loader:
            rows = iter(loader)
            save()
            for element in islice(rows, wanted + self.unbroken.complete):
                rest.append(element)
                save()
        self._check(state, since, rest)
        return saved

    def _check(self, state: SavedState, since: list[Any], rest: list[Any]) -> None:
        elements = self.unbroken.elements
        if self.unordered:
            found = multiset_difference(elements, [*elements[: state.after], *since, *rest])
        else:
            found = sequence_difference(elements[state.after + len(since) :], rest, self.compare)
        if found is not None:
            raise AssertionError(f"{state.how} (of {len(elements)}) and resumed: {found}\nstate: {state.text}")


def _pickled(dataset: Dataset[Any]) -> bytes | None:
    """Pickle the dataset, or return None if it contains objects that cannot be pickled, such as a lambda."""
    try:
        return pickle.dumps(dataset)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
