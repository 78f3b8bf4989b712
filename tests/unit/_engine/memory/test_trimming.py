"""When malloc's unused memory is returned to the operating system, and how often that is checked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiostream_data._engine.memory import trimming
from aiostream_data._engine.memory.trimming import Trimmer, kept_nbytes
from aiostream_data.metrics.allocator import MIB, AllocatorState


class Allocator:
    """Says what malloc holds, as it is told, and notes what was given back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.other, self.trims = 0, 100 * MIB, 0
        monkeypatch.setattr(trimming, "allocator_state", self.state)
        monkeypatch.setattr(trimming, "trim", self.trim)

    def state(self) -> AllocatorState:
        return AllocatorState(self.other + self.free, self.free, 0, self.free, 0)

    def trim(self) -> None:
        self.trims += 1
        self.free = 0


def test_memory_is_given_back_only_when_much_is_kept_and_not_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator, trimmer = Allocator(monkeypatch), Trimmer(100 * MIB)
    allocator.free = kept_nbytes(100 * MIB) - 1
    trimmer.look()
    assert allocator.trims == 0
    allocator.free += 2
    trimmer.look()
    trimmer.look()
    assert (allocator.trims, trimmer.trimmed) == (1, 1)
    allocator.other -= 90 * MIB
    allocator.free = 60 * MIB  # it says so still, and nothing more is in memory than before
    trimmer.look()
    assert allocator.trims == 1
    allocator.free = 200 * MIB
    trimmer.look()
    assert allocator.trims == 2


def test_under_a_small_limit_malloc_may_keep_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator, trimmer = Allocator(monkeypatch), Trimmer(8 * MIB)
    allocator.free = trimming.LEAST_NBYTES - 1
    trimmer.look()
    assert allocator.trims == 0
    allocator.free += 1
    trimmer.look()
    assert allocator.trims == 1


def test_nothing_is_looked_at_twice_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(trimming, "monotonic", lambda: now[0])
    trimmer = Trimmer(100 * MIB)
    due: Callable[[], bool] = trimmer.is_due
    assert not due()
    now[0] += 0.6
    assert due()
    assert not due()


def test_looks_that_take_long_are_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(trimming, "monotonic", lambda: now[0])
    monkeypatch.setattr(trimming, "perf_counter", lambda: now[0])

    def slow_state() -> None:
        now[0] += 0.1

    monkeypatch.setattr(trimming, "allocator_state", slow_state)
    trimmer = Trimmer(100 * MIB)
    now[0] += 0.6
    assert trimmer.is_due()
    trimmer.look()
    now[0] += 10.0
    assert not trimmer.is_due()
    now[0] += 10.0
    assert trimmer.is_due()


def test_where_the_allocator_says_nothing_nothing_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator(monkeypatch)
    monkeypatch.setattr(trimming, "allocator_state", lambda: None)
    Trimmer(1).look()
    assert allocator.trims == 0
