"""Node of the operator ``scan``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiostream_data.plan.base import Operator
from aiostream_data.plan.written import call_arguments


@dataclass(frozen=True, eq=False, kw_only=True)
class Scan(Operator):
    """Node that emits the outputs of ``function``, which receives a state and each element in order.

    Attributes:
        function: Function that takes the state and an element, and returns the next state and the output.
        initial: State before the first element.
    """

    function: Callable[[Any, Any], tuple[Any, Any]]
    initial: Any

    def detail(self) -> str:
        return call_arguments(self.function, self.initial)
