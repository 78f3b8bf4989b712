"""Draw how a plan is run: sizes of chunks, memory, places, stops, ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from metamorphic.drawing import Drawn, chance, one_of
from metamorphic.program import Places, Short
from metamorphic.running import Leg

GLOBAL_BATCH = 12
"""Rows of a batch of all ranks together: 1, 2, 3 and 4 ranks can share them."""

MEMORY = (None, None, None, "64KB", "256KB", "1MB", "16MB")
"""Limits. Most files are compressed, and the least of these has no room for the window of one."""


@dataclass(frozen=True, repr=False)
class Stops(Short):
    """One process that is stopped and taken up again.

    Attributes:
        legs: What runs between the stops, with the elements that each receives; the last one to the end.
        deterministic: For ``open``.
    """

    legs: tuple[Leg, ...]
    deterministic: bool = True

    @property
    def processes(self) -> int:
        """Processes that are started, about."""
        return sum(leg.processes for leg in self.legs)


@dataclass(frozen=True, repr=False)
class Ranks(Short):
    """So many ranks, all of which stop after as many steps, and others that go on.

    Attributes:
        before, after: Number of ranks.
        steps: Elements that each of the first ones receives.
        batched: Elements are batches of GLOBAL_BATCH rows of all ranks together, otherwise rows.
        all_states: The others go on from the list of all states, otherwise from one of them.
        legs: One for each rank before the stop, then one for each after it.
    """

    before: int
    after: int
    steps: int
    batched: bool
    all_states: bool
    legs: tuple[Leg, ...]
    processes: ClassVar[int] = 0

    def program(self, code: str, ranks: int) -> str:
        """Return the program that each of so many ranks runs."""
        return f"{code}.batch({GLOBAL_BATCH // ranks})" if self.batched else code


@dataclass(frozen=True, repr=False)
class Workers(Short):
    """So many workers of a DataLoader, each of which is stopped and taken up again.

    Attributes:
        count: Number of workers.
        steps: Elements that each receives before it stops.
        legs: One for each worker before its stop, then one for each after it.
    """

    count: int
    steps: int
    legs: tuple[Leg, ...]
    processes: ClassVar[int] = 0


Run = Stops | Ranks | Workers


def draw_runs(random: Random, plan: Drawn, elements: int, slow: float, hosted: bool = True) -> list[Run]:
    """Draw one or two ways to run a plan that gives so many elements.

    Args:
        slow: Share of legs that start a process.
        hosted: Whether part of the plan may run in processes of its own.
    """
    runs: list[Run] = [_stops(random, plan, elements, slow, hosted)]
    if plan.ordered and not plan.grouped and elements >= 2 and chance(random, 0.3):
        runs.append(_ranks(random, plan, elements))
    elif chance(random, 0.25):
        runs.append(_stops(random, plan, elements, slow, hosted))
    if plan.ordered and chance(random, 0.2):
        runs.append(_workers(random, elements))
    return runs


def _stops(random: Random, plan: Drawn, elements: int, slow: float, hosted: bool) -> Stops:
    number = random.choices([0, 1, 2, 3], [0.3, 0.45, 0.15, 0.1])[0]
    stops = sorted(random.randint(0, elements) for _ in range(number))
    takes = [stop - before for before, stop in zip([0, *stops], stops, strict=False)]
    legs = [replace(_leg(random, plan, slow, hosted), take=take) for take in [*takes, None]]
    return Stops(tuple(legs), deterministic=not (plan.free and chance(random, 0.2)))


def _ranks(random: Random, plan: Drawn, elements: int) -> Ranks:
    most = min(4, elements)
    before, after = random.randint(1, most), random.randint(1, most)
    batched = plan.kind in ("number", "row", "text") and chance(random, 0.4)
    rows = GLOBAL_BATCH if batched else before
    steps = random.randint(0, elements // rows)
    legs = tuple(_light_leg(random) for _ in range(before + after))
    return Ranks(before, after, steps, batched, chance(random, 0.5), legs)


def _workers(random: Random, elements: int) -> Workers:
    count = random.randint(2, 4)
    steps = random.randint(0, elements // count + 1)
    return Workers(count, steps, tuple(_light_leg(random) for _ in range(2 * count)))


def _light_leg(random: Random) -> Leg:
    cut = random.randrange(1 << 20) if chance(random, 0.7) else None
    return Leg(cut=cut, memory_limit=one_of(random, *MEMORY))


def _leg(random: Random, plan: Drawn, slow: float, hosted: bool) -> Leg:
    leg = replace(_light_leg(random), debug=chance(random, 0.12))
    how = _how(random)
    if not chance(random, slow):
        return replace(leg, places=_places(random, how, 0))
    kind = one_of(random, "process", "elsewhere", *(("subprocess", "subprocesses") if hosted else ()))
    if kind == "process":
        how = {"executor": "process", "concurrency": random.randint(1, 2)}
    workers = {"subprocess": 1, "subprocesses": 3}.get(kind, 0)
    places = _places(random, how, workers)
    return replace(leg, places=places, elsewhere=kind == "elsewhere", debug=leg.debug and chance(random, 0.3))


def _how(random: Random) -> Mapping[str, Any]:
    if chance(random, 0.4):
        return {}
    return {"concurrency": random.randint(1, 3)} if chance(random, 0.75) else {"executor": "inline"}


def _places(random: Random, how: Mapping[str, Any], workers: int) -> Places:
    return Places(
        how=how,
        awaited={"concurrency": random.randint(1, 4)} if chance(random, 0.4) else {},
        read={"read_ahead": random.randint(1, 4)} if chance(random, 0.3) else {},
        spill={"spill": True} if chance(random, 0.2) else {},
        workers=workers,
        ahead=random.randint(1, 3) if chance(random, 0.2) else 0,
    )
