"""Report the work before the first element, if this work took most of the run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiostream_data.loading.observation import numbers_of
from aiostream_data.metrics.counters import ConsumerCounters, StageCounters
from aiostream_data.metrics.window import reader_of
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Shuffle

LEAST_S: Final = 1.0
"""The time before the first element is reported only if it is at least ``LEAST_S`` seconds."""

MOST: Final = 0.5
"""The time before the first element is reported only if it is at least ``MOST`` (50 %) of the run time."""

IDLE: Final = 0.2
"""A stage counts as idle if it was busy for less than ``IDLE`` (20 %) of the time before the first element."""


def told_of_start(consumer: ConsumerCounters, wall_s: float, stages: Mapping[str, StageCounters], plan: Node) -> str:
    """Describe the stage that was busiest before the first element; return "" if the first element arrived early.

    Args:
        consumer: Counters of the consumer, with the time to the first element.
        wall_s: Seconds from opening to the last element.
        stages: Counters by plan position at the arrival of the first element.
        plan: The rewritten plan that the engine runs.
    """
    start_s = consumer.first_s
    if start_s < max(LEAST_S, MOST * wall_s) or not stages:
        return ""
    place = max(stages, key=lambda each: stages[each].at_work_s)
    stage = stages[place]
    busy_s = stage.at_work_s
    if busy_s < IDLE * start_s:
        return f"before the first element, no stage was busy for more than {busy_s:.1f} s"
    at_once = f", {stage.workers} at once" if stage.workers > 1 else ""
    filled = _filled_behind(place, stages, plan)
    while_filling = f", while {filled} filled its buffer" if filled else ""
    return f"before the first element, {stage.title} was busy for {busy_s:.1f} s{at_once}{while_filling}"


def _filled_behind(place: str, stages: Mapping[str, StageCounters], plan: Node) -> str:
    """Return the call of the next downstream ``shuffle()`` that fills its buffer before it emits rows; "" if none."""
    nodes = {str(number): node for node, number in numbers_of(plan).items()}
    while (following := reader_of(place, stages)) is not None:
        place, node = following, nodes.get(following)
        if isinstance(node, Shuffle) and not node.growing:
            return f"shuffle({node.buffer_size})"
    return ""
