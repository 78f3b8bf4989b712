"""Draw a plan from a seed: any source, any operator, joins up to three deep."""

from __future__ import annotations

from random import Random

from metamorphic.drawing import MOST, STACKABLE, Drawn, chance, one_of
from metamorphic.joins import join_itself, tower
from metamorphic.operators import cut_again, draw_numbers, one_more, shuffle
from metamorphic.sources import numbers, source


def draw_plan(random: Random) -> Drawn:
    """Draw a plan."""
    kind = random.random()
    if kind < 0.45:
        plan = source(random)
    elif kind < 0.6:
        plan = cut_again(random, numbers(random))
    else:
        plan = tower(random, one_of(random, 1, 1, 2, 2, 3))
    number = random.randint(0, 4)
    hosted = random.randint(0, 2 * number)
    for place in range(number):
        plan = plan.within("@0.apply(HOST)") if place == hosted else plan
        plan = _one_more(random, plan)
    return _finished(random, plan if hosted < number else plan.within("@0.apply(HOST)"))


def _one_more(random: Random, plan: Drawn) -> Drawn:
    if chance(random, 0.08) and 2 * plan.most <= MOST and plan.step.size < 8 and plan.kind != "batch":
        return join_itself(random, plan)
    return one_more(random, plan)


def _finished(random: Random, plan: Drawn) -> Drawn:
    """Append what shows wrong names of rows: draws, an order, a process of its own, a device."""
    in_any_order = plan.kind == "batch" and (plan.free or not plan.ordered)
    if plan.may_draw and not in_any_order and chance(random, 0.5):
        plan = draw_numbers(random, plan)
    if chance(random, 0.35):
        plan = shuffle(random, plan)
    plan = plan.within("@0.apply(AHEAD)")
    if plan.kind in STACKABLE and plan.ordered and chance(random, 0.15):
        plan = plan.depending_on_order().then(f"batch({random.randint(1, 5)})", kind="batch", grouped=True)
    if plan.kind == "batch" and plan.row_kind in ("number", "row") and chance(random, 0.3):
        plan = plan.then('to_device("cpu")')
    return plan
