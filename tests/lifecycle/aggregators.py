"""Aggregators of the plans that tests interrupt and resume."""

from __future__ import annotations


class Held:
    """Aggregator that emits the numbers that it holds, when their sum is large."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def add(self, number: int) -> list[int]:
        self.held.append(int(number))
        return self.flush() if sum(self.held) > 12 else []

    def flush(self) -> list[int]:
        held, self.held = self.held, []
        return held


class StoredHeld(Held):
    """The same with a state that is stored."""

    def state(self) -> list[int]:
        return list(self.held)

    def restore(self, state: list[int]) -> None:
        self.held = list(state)
