"""Report of the work before the first element, if that took most of the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiostream_data.loading.observation import numbers_of
from aiostream_data.metrics.counters import ConsumerCounters, StageCounters
from aiostream_data.metrics.window import reader_of
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Shuffle

LEAST_S: Final = 1.0
"""Minimum seconds before the first element for a report."""

MOST: Final = 0.5
"""Minimum share of the total time before the first element for a report."""

IDLE: Final = 0.2
"""Below this share of the time before the first element, a stage counts as idle."""


def told_of_start(consumer: ConsumerCounters, wall_s: float, stages: Mapping[str, StageCounters], plan: Node) -> str:
    """Describe the busiest stage before the first element; return "" if that time was short.

    Args:
        consumer: Counters of the consumer, with the time to the first element.
        wall_s: Seconds from opening to the last element.
        stages: Counters by place, at the arrival of the first element.
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
    """Name the next downstream ``shuffle()`` that fills its buffer before emitting; "" if none does."""
    nodes = {str(number): node for node, number in numbers_of(plan).items()}
    while (following := reader_of(place, stages)) is not None:
        place, node = following, nodes.get(following)
        if isinstance(node, Shuffle) and not node.growing:
            return f"shuffle({node.buffer_size})"
    return ""
