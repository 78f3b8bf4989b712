"""Drawn plans over every source and operator resume at every element, however the work is cut before and after.

``ASD_EXAMPLES=10`` in the environment draws ten times as many, as before a release or a change of how runs are resumed.
"""

from __future__ import annotations

import itertools
from typing import Any

from drawn import Drawn
from drawn_cases import CASE_S, cases, ends_within, in_time
from hypothesis import given
from hypothesis import strategies as st
from plans import plans
from small_chunks import Recut, small_chunks

from aiostream_data.testing.resume import resumes_everywhere

PLACES = 8
"""Places of a plan that are tried, about."""

STATE_NBYTES = 16 << 10
"""More than a state may be large otherwise: drawn plans nest what hardly anyone nests."""

SIZES = st.lists(st.tuples(st.integers(1, 12), st.integers(5, 300)), min_size=1, max_size=3)


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    drawn: dict[str, Any] = {"seed": draw(st.sampled_from([None, 4])), "epoch": draw(st.integers(0, 2))}
    if draw(st.booleans()):
        drawn["memory_limit"] = "1MB"
    return drawn


def resumes(plan: Drawn, sizes: list[tuple[int, int]], unordered: bool, **options: Any) -> None:
    with ends_within(CASE_S, plan, sizes, options), small_chunks() as cut:
        recut: Any = Recut(plan.dataset, cut, itertools.cycle(sizes))
        every = max(1, plan.most // PLACES)
        resumes_everywhere(recut, open_options=options, every=every, unordered=unordered, max_state_nbytes=STATE_NBYTES)


@in_time
@cases(60)
@given(plans(), SIZES, options())
def test_a_drawn_plan_resumes(plan: Drawn, sizes: list[tuple[int, int]], options: dict[str, Any]) -> None:
    resumes(plan, sizes, unordered=not plan.ordered, **options)


@in_time
@cases(60)
@given(plans().filter(lambda plan: plan.free), SIZES, options())
def test_a_drawn_plan_that_may_give_its_elements_in_any_order_resumes(
    plan: Drawn, sizes: list[tuple[int, int]], options: dict[str, Any]
) -> None:
    resumes(plan, sizes, unordered=True, deterministic=False, **options)
