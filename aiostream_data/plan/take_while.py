"""Node of the operator ``take_while``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiostream_data.plan.base import SameElements
from aiostream_data.plan.written import function_name


@dataclass(frozen=True, eq=False, kw_only=True)
class TakeWhile(SameElements):
    """The elements before the first one for which ``predicate`` is false."""

    predicate: Callable[..., Any]

    @property
    def label(self) -> str:
        return "take_while"

    def detail(self) -> str:
        return function_name(self.predicate)
