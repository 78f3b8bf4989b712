"""Node of the operator ``unique``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiostream_data.plan.base import SameElements, Spills
from aiostream_data.plan.written import call_arguments


@dataclass(frozen=True, eq=False, kw_only=True)
class Unique(Spills, SameElements):
    """Node that emits the first element with each key.

    Attributes:
        key: Function that returns the key of an element; None if the element itself is the key.
    """

    key: Callable[..., Any] | None

    def detail(self) -> str:
        return call_arguments(*(() if self.key is None else (self.key,)), spill=self.spill_argument)
