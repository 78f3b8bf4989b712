"""Nodes of sources that never end: ``counter`` and ``random``."""

from __future__ import annotations

from dataclasses import dataclass

from aiostream_data.plan.base import Node
from aiostream_data.plan.written import call_arguments

MAX_INT64 = (1 << 63) - 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Counter(Node):
    """Source that emits ``start``, ``start + step``, and so on, as int64."""

    start: int
    step: int

    def detail(self) -> str:
        return call_arguments(*((self.start, self.step) if self.step != 1 else (self.start,)))

    @property
    def fitting(self) -> int:
        """Number of leading elements that int64 can represent."""
        if self.step == 0:
            return MAX_INT64
        room = MAX_INT64 - self.start if self.step > 0 else self.start + MAX_INT64 + 1
        return room // abs(self.step) + 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Random(Node):
    """Source that emits uniformly random int64 numbers from 0 to 2**32 (exclusive).

    Attributes:
        seed: Seed of the numbers; None to use the seed of the loader.
        rerandomize_each_iteration: True to use new numbers in every epoch.
    """

    seed: int | None
    rerandomize_each_iteration: bool

    def detail(self) -> str:
        return call_arguments(
            *(() if self.seed is None else (self.seed,)),
            rerandomize_each_iteration=(self.rerandomize_each_iteration, False),
        )
