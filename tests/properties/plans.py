"""Hypothesis strategies that draw data sets over every source and operator.

``plans()`` draws a source and then operators that make sense after it. A plan prints as the program that
makes it. All functions in it can be imported, so that plans pickle; nearly every row of a plan can be told
from every other.
"""

from __future__ import annotations

from dataclasses import replace

from drawn import Draw, Drawn
from hypothesis import strategies as st
from plan_operators import IN_ORDER, applicable
from plan_sources import SOURCES


@st.composite
def plans(draw: Draw, max_operators: int = 5) -> Drawn:
    """Draw a source and up to ``max_operators`` operators after it."""
    plan = draw(st.sampled_from(SOURCES))(draw)
    for _ in range(draw(st.integers(0, max_operators))):
        operator = draw(st.sampled_from(applicable(plan)))
        made = operator(draw, plan)
        plan = replace(made, free=plan.free and made.free and operator not in IN_ORDER)
    return plan
