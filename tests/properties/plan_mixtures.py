"""Draw a mixture of a data set with a part of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import plan_functions as fn
from drawn import SEEDS, Draw, Drawn, written
from hypothesis import strategies as st

from aiostream_data import Dataset


def weights_of(row: int) -> list[int]:
    return [1 + row % 3, 2]


STOPS: Sequence[Literal["first", "all"]] = ("first", "all")
WEIGHTS: Sequence[Any] = (None, [4, 1], [(0, [1, 2]), (5, [3, 1])], weights_of)


def sample_all(draw: Draw, plan: Drawn) -> Drawn:
    """Mix a plan with a part of itself until both are exhausted."""
    options: dict[str, Any] = {"weights": draw(st.sampled_from(WEIGHTS)), "stop": "all", "schedule_every": 4}
    if draw(st.booleans()):
        options |= {"random": True, "seed": draw(SEEDS)}
    mixed = Dataset.sample_from([plan.dataset, plan.dataset.filter(fn.is_kept)], **options)
    call = written("apply(lambda d: sample_from([d, d.filter(is_kept)]", options)
    return plan.then(f"{call})", mixed, most=2 * plan.most)


def sample_first(draw: Draw, plan: Drawn) -> Drawn:
    """Mix a plan with a part of itself until one is exhausted."""
    weights, count = draw(st.sampled_from(WEIGHTS)), draw(st.integers(0, 40))
    repeated = plan.dataset.filter(fn.is_kept).repeat(3)
    mixed = Dataset.sample_from([plan.dataset, repeated], weights, schedule_every=4).take(count)
    call = f"apply(lambda d: sample_from([d, d.filter(is_kept).repeat(3)], {weights}, schedule_every=4)).take({count})"
    return plan.then(call, mixed, most=count)


def choose_from(draw: Draw, plan: Drawn) -> Drawn:
    """Take elements from a plan and a part of itself as other elements say."""
    count, stop = draw(st.integers(0, 20)), draw(st.sampled_from(STOPS))
    choices = Dataset.range(2).repeat(count).shuffle(3, seed=1)
    chosen = Dataset.choose_from([plan.dataset, plan.dataset.filter(fn.is_kept)], choices, stop=stop)
    call = f"choose_from([d, d.filter(is_kept)], range(2).repeat({count}).shuffle(3, seed=1), stop={stop!r})"
    return plan.then(f"apply(lambda d: {call})", chosen, most=2 * count)
