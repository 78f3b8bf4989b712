"""Bottleneck diagnosis: combines measurements of the engine with advice derived from the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aiostream_data._engine.calls.cpu_count import cpu_count
from aiostream_data._engine.memory.memory_limit import default_limit
from aiostream_data.loading.observation import numbers_of
from aiostream_data.loading.opening import Opening
from aiostream_data.metrics.bottleneck import find_limit
from aiostream_data.metrics.bottleneck_result import Limit
from aiostream_data.metrics.causes import loop_share_held
from aiostream_data.metrics.counters import SHARDS, StageCounters
from aiostream_data.metrics.window import MeasuredWindow, reader_of
from aiostream_data.plan.advice import Case, advise
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Interleave
from aiostream_data.plan.subprocess import InSubprocess
from aiostream_data.plan.worker_share import for_worker

IDLE_CORES: Final = 0.75
"""If less than ``IDLE_CORES`` of all cores are in use, the machine has idle cores for more parallel work."""

BLOCKS_LOOP: Final = 0.3
"""If coroutine steps use more than ``BLOCKS_LOOP`` of the time, the diagnosis reports that steps are slow, not that
there are many steps."""


def diagnosed(opening: Opening, plan: Node, window: MeasuredWindow | None) -> Limit:
    """Find the bottleneck of a loader.

    Args:
        plan: The rewritten plan that the engine runs.
        window: Measurements since the first element; None before the first element.
    """
    verdict = find_limit(window)
    case = Case(
        cause=verdict.cause,
        plan=plan,
        cpus=cpu_count(),
        memory_limit=opening.run.memory_limit,
        memory_default=default_limit(),
        caches_shards=opening.run.shard_cache is not None,
    )
    if window is not None and verdict.place:
        case = _with_stage(case, verdict.place, window)
    found = advise(case)
    return Limit(
        stage=verdict.stage,
        what=verdict.what,
        cause=verdict.cause,
        detail=verdict.detail,
        evidence=verdict.evidence,
        advice="; ".join(advice.sentence for advice in found),
        changes=tuple(advice.change for advice in found if advice.change is not None),
    )


def _with_stage(case: Case, place: str, window: MeasuredWindow) -> Case:
    stage = window.stages[place]
    node, outer = _node_at(case.plan, place)
    shards = stage.extra.get(SHARDS)
    rows = max(1, stage.rows + stage.dropped + stage.skipped)
    return replace(
        case,
        node=node,
        outer=outer,
        has_idle_cores=not window.is_contended and window.cores_used < IDLE_CORES * case.cpus,
        dropped=_dropped_behind(place, window),
        workers=stage.workers,
        cores=stage.cpu_s / window.seconds_of(place),
        cores_of_process=window.cores_used,
        cores_of_others=window.cores_of_others or 0.0,
        loop_cores=window.loop_share_of(place),
        cpu_share=stage.cpu_s / max(1e-9, stage.busy_s),
        row_cpu_s=stage.cpu_s / rows,
        row_nbytes=stage.nbytes / rows + _input_row_nbytes(stage, window),
        blocks_loop=loop_share_held(place, window) > BLOCKS_LOOP,
        transfer=stage.transfer_s / max(1e-9, stage.busy_s),
        shards=None if shards is None else int(shards),
    )


def _input_row_nbytes(stage: StageCounters, window: MeasuredWindow) -> float:
    inputs = [window.stages[place] for place in stage.inputs if place in window.stages]
    return sum(each.nbytes / max(1, each.rows) for each in inputs)


def _dropped_behind(place: str, window: MeasuredWindow) -> float:
    """Return the fraction of a stage's rows that are dropped by the filters directly after the stage."""
    kept = 1.0
    while (after := reader_of(place, window.stages)) is not None:
        place, stage = after, window.stages[after]
        if not stage.name.endswith("filter"):
            break
        kept *= stage.rows / max(1, stage.rows + stage.dropped)
    return 1.0 - kept


def _node_at(plan: Node, place: str) -> tuple[Node | None, Interleave | None]:
    """Return the node at a plan position and None, as a pair.

    For a node of a dataset that a function created, return None and the interleave operator that called the function.
    """
    number, _, below = place.partition("/")
    node = next(node for node, its in numbers_of(plan).items() if its == int(number))
    if not below:
        return node, None
    if isinstance(node, InSubprocess):
        return _node_at(for_worker(node.input, 0, node.workers), below)
    return None, node if isinstance(node, Interleave) else None
