"""Prove that a data set resumes at every element: nothing lost, nothing repeated, nothing changed.

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
"""Options of ``open`` that are not given again to resume: the state must hold them."""


@dataclass(frozen=True, slots=True)
class ResumeReport:
    """What :func:`resumes_everywhere` has tried.

    Attributes:
        elements: Elements of the unbroken pass.
        states: Places it was resumed from.
        resumes: How often anything was resumed, resumed runs included.
        largest_state_nbytes: Of a state as JSON.
        slowest_state_s: The longest that one ``state_dict()`` took.
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
    """Read a data set unbroken, then resume it after 0, 1, 2, ... elements and compare what is left.

    Every state goes through JSON, and is opened by a pickled copy of the data set where it can be pickled,
    as in another process. With n elements that is about ``n ** 2 / every`` elements to read, so give it a
    small data set or a large ``every``.

    Args:
        open_options: For ``Dataset.open``. Seed and epoch are given to the unbroken pass only: a state
            has to hold them.
        every: Resume after every so many elements; besides always after none, one, the last, and at the end.
        max_elements: Compare no more than these, as of a data set that never ends.
        max_state_nbytes: What a state may be large as JSON; by default 4 KB and 8 bytes for each row that
            the plan's operators may hold back.
        unordered: The order may differ between runs: what was given before and after must be each element
            exactly once, in any order. The data set must end, and the elements be the same whatever the order.
        compare: (expected, found) -> True for the same element; by default same types, dtypes, shapes
            and bits. Not asked with ``unordered``.
        twice: Also save right after resuming and resume that, and resume a resumed run further on.

    Raises:
        AssertionError: It does not resume: after which element, the first difference, and the state.
        ValueError: An ``unordered`` data set does not end within ``max_elements``.
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
    """Resumes states of one unbroken pass and holds what comes against it."""

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
        """Resume a state and, with ``twice``, what the resumed run saves at its begin and further on."""
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
        """Read what a state leaves, compare it, and return states saved on the way, with what came before.

        Args:
            since: What a resumed run has given after the unbroken pass was left, before ``state``.
            save_at: After how many elements to save.
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
    """Return the data set as bytes; None when it holds what no other process could find, such as a lambda."""
    try:
        return pickle.dumps(dataset)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
