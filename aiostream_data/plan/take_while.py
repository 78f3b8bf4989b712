"""Node of the operator ``take_while``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiostream_data.plan.base import SameElements
from aiostream_data.plan.written import function_name


@dataclass(frozen=True, eq=False, kw_only=True)
class TakeWhile(SameElements):
    """Node that emits elements until ``predicate`` is false for an element."""

    predicate: Callable[..., Any]

    @property
    def label(self) -> str:
        return "take_while"

    def detail(self) -> str:
        return function_name(self.predicate)
