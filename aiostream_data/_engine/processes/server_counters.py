"""Combine the counters of several processes that run the same plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

from aiostream_data.metrics.counters import StageCounters

PREFIX: Final = "in_subprocess/"
"""Prefix of the names of stages that run in a subprocess."""

WAITS: Final = ("input_wait_s", "output_wait_s")
"""Counters of seconds that are averaged over all processes instead of summed."""


def joined_counters(
    processes: Sequence[Sequence[tuple[str, StageCounters]]], prefix: str
) -> list[tuple[str, StageCounters]]:
    """Combine the counters of each stage from all processes. Return a pair (stage key, counters) for each stage.

    Counters are summed over the processes; only waiting times are averaged.

    Args:
        prefix: Prefix that is added to the stage keys.
    """
    found: dict[str, list[StageCounters]] = {}
    for stages in processes:
        for key, counters in stages:
            found.setdefault(key, []).append(counters)
    return [(prefix + key, _joined(of_stage, prefix)) for key, of_stage in found.items()]


def _joined(stages: Sequence[StageCounters], prefix: str) -> StageCounters:
    extra: dict[str, float] = {}
    for stage in stages:
        for name, value in stage.extra.items():
            extra[name] = extra.get(name, 0.0) + value
    values = {part.name: [getattr(stage, part.name) for stage in stages] for part in fields(StageCounters)}
    sums = {name: sum(found) for name, found in values.items() if isinstance(found[0], (int, float))}
    waits = {name: sums[name] / len(stages) for name in WAITS}
    inputs = tuple(prefix + key for key in stages[0].inputs)
    return replace(stages[0], **(sums | waits), name=PREFIX + stages[0].name, inputs=inputs, extra=extra)
