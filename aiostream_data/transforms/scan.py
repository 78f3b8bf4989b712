"""Call a function with its last state and the next element, as ``scan`` does."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aiostream_data.errors import PlanError


class Scanning:
    """One pass of a function over elements, with a state.

    Args:
        function: Function that takes the state and an element, and returns the next state and the output.
        state: State before the first element. The pass copies the state, because the function may modify it.

    Attributes:
        state: State after the elements whose outputs were yielded.
    """

    def __init__(self, function: Callable[[Any, Any], tuple[Any, Any]], state: Any) -> None:
        self._function = function
        self.state = copy.deepcopy(state)

    def push(self, elements: Iterable[Any]) -> Iterator[Any]:
        """Yield one output for each element.

        Raises:
            PlanError: The function did not return a pair (state, output).
        """
        for element in elements:
            pair = self._function(self.state, element)
            if type(pair) is not tuple or len(pair) != 2:
                found = f"a tuple of {len(pair)}" if type(pair) is tuple else type(pair).__name__
                raise PlanError(f"the function of scan() must return a pair (state, output), but returned {found}.")
            self.state, output = pair
            yield output
