"""One uninterrupted run over a dataset, with the state of its loader after every element."""

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
    """Saved loader state as text, with the number of elements before this state.

    Attributes:
        after: Number of elements of the uninterrupted run before the state. If a resumed run saved the state, the
            number refers to the state from which that run resumed.
        how: Description of the steps that led to the state, for error messages.
        text: The saved state as JSON.
        taken_s: Duration of the ``state_dict()`` call in seconds.
    """

    after: int
    how: str
    text: str
    taken_s: float

    @classmethod
    def of(cls, loader: Loader[Any], after: int, how: str) -> Self:
        """Save the state of a loader.

        Raises:
            AssertionError: The state is not JSON-compatible.
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
        """Parse the saved state from JSON."""
        state: dict[str, Any] = json.loads(self.text)
        return state


@dataclass(frozen=True, slots=True)
class UnbrokenPass:
    """Elements and saved states of one uninterrupted run.

    Attributes:
        elements: Elements in the order in which the loader returned them.
        states: States after 0, 1, 2, ... elements, and another state at the end if the run is ``complete``.
        complete: True if the run reached the end of the dataset.
    """

    elements: list[Any]
    states: list[SavedState]
    complete: bool

    @classmethod
    def over(cls, dataset: Dataset[Any], options: Mapping[str, Any], max_elements: int) -> Self:
        """Open ``dataset`` and read at most ``max_elements`` elements; save the state before the first and after each.

        Raises:
            AssertionError: A state is not JSON-compatible, or changed after it was saved.
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
        """Yield every ``step``-th saved state, the states after the first and last element, and the final state."""
        for state in self.states:
            if state.after % step == 0 or state.after in (1, len(self.elements)):
                yield state


def _check_unchanged(states: list[SavedState], taken: list[Any]) -> None:
    for state, value in zip(states, taken, strict=True):
        if json.dumps(value) != state.text:
            raise AssertionError(f"{state.how}: the state has changed since it was taken: {shown(value)}")
