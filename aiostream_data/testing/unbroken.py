"""One pass over a data set from its begin to its end, with the state of its loader after every element."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any, Self

from aiostream_data.dataset.dataset import Dataset
from aiostream_data.loading.loader import Loader
from aiostream_data.testing.comparing import shown


@dataclass(frozen=True, slots=True)
class SavedState:
    """A state as text, and where it was taken.

    Attributes:
        after: Elements of the unbroken pass that were given before it, or before the run it was taken of.
        how: What was done to come to it, for messages.
        text: The state as JSON.
        taken_s: Seconds that ``state_dict()`` took.
    """

    after: int
    how: str
    text: str
    taken_s: float

    @classmethod
    def of(cls, loader: Loader[Any], after: int, how: str) -> Self:
        """Take the state of a loader.

        Raises:
            AssertionError: It is not JSON.
        """
        return cls._timed(loader, after, how)[0]

    @classmethod
    def _timed(cls, loader: Loader[Any], after: int, how: str) -> tuple[Self, Any]:
        started = perf_counter()
        taken = loader.state_dict()
        taken_s = perf_counter() - started
        try:
            text = json.dumps(taken, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"{how}: the state is not JSON ({error}): {shown(taken)}") from error
        return cls(after, how, text, taken_s), taken

    def value(self) -> dict[str, Any]:
        """Return the state as it comes back from JSON."""
        state: dict[str, Any] = json.loads(self.text)
        return state


@dataclass(frozen=True, slots=True)
class UnbrokenPass:
    """What one pass gave.

    Attributes:
        elements: In the order in which they came.
        states: After 0, 1, 2, ... elements, and once more at the end when the pass is ``complete``.
        complete: There are no more elements than these.
    """

    elements: list[Any]
    states: list[SavedState]
    complete: bool

    @classmethod
    def over(cls, dataset: Dataset[Any], options: Mapping[str, Any], max_elements: int) -> Self:
        """Open ``dataset`` and read at most ``max_elements``, taking the state after each.

        Raises:
            AssertionError: A state is not JSON, or has changed after it was taken.
        """
        elements: list[Any] = []
        states: list[SavedState] = []
        taken: list[Any] = []

        def save(how: str) -> None:
            state, value = SavedState._timed(loader, len(elements), how)
            states.append(state)
            taken.append(value)

        with dataset.open(**options) as loader:
            rows = iter(loader)
            save("saved before the first element")
            for element in islice(rows, max_elements):
                elements.append(element)
                save(f"saved after {len(elements)} elements")
            complete = not list(islice(rows, 1))
            if complete:
                save("saved at the end")
        _check_unchanged(states, taken)
        return cls(elements, states, complete)

    def every(self, step: int) -> Iterator[SavedState]:
        """Yield the states after every ``step`` elements, after one, after the last and at the end."""
        for state in self.states:
            if state.after % step == 0 or state.after in (1, len(self.elements)):
                yield state


def _check_unchanged(states: list[SavedState], taken: list[Any]) -> None:
    for state, value in zip(states, taken, strict=True):
        if json.dumps(value) != state.text:
            raise AssertionError(f"{state.how}: the state has changed since it was taken: {shown(value)}")
