"""Measurement window of one engine, from the first received element to the last."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any

from aiostream_data._engine.calls.cpu_count import own_cores
from aiostream_data._engine.engine import Engine
from aiostream_data._engine.flow.stage_runs import StageRun
from aiostream_data.metrics.counters import ConsumerCounters, StageCounters
from aiostream_data.metrics.machine import cpu_pressure_s, machine_cpu_s
from aiostream_data.metrics.window import CounterMark, Hosted, MeasuredWindow, between
from aiostream_data.plan.base import Node, walk
from aiostream_data.storage.counters import summed


class Observation:
    """Measurement of one engine: snapshots of its counters at the first element and at the end.

    Args:
        engine: Engine to measure. Reading the engine's counters does not block.
        consumer: Counters of the consumer's wait times and received elements.
    """

    def __init__(self, engine: Engine, consumer: ConsumerCounters) -> None:
        self._engine = engine
        self._consumer = consumer
        self._begin: CounterMark | None = None
        self._end: CounterMark | None = None
        self._start: Mapping[str, StageCounters] = {}

    @property
    def has_begun(self) -> bool:
        """True after the consumer received the first element."""
        return self._begin is not None

    @property
    def start(self) -> Mapping[str, StageCounters]:
        """Counters by plan position at the arrival of the first element; empty before the first element."""
        return self._start

    def begin(self) -> None:
        """Record a snapshot of the counters at the first element."""
        mark = self._mark(self._consumer.last_at, {})
        self._start = mark.stages
        own = {place: counters for place, counters in mark.stages.items() if not _is_hosted(place, self._hosted())}
        self._begin = replace(mark, stages=own)

    def end(self, *, is_busy: bool) -> None:
        """Record a snapshot of the counters at the end of the measurement. Later events are not counted. Calling
        :meth:`end` again has no effect."""
        if self._begin is not None and self._end is None and not sys.is_finalizing():  # not needed at exit
            self._end = self._now(is_busy)

    def until(self, *, is_busy: bool) -> float:
        """Return the end time of the measurement (``perf_counter()``), or the current time if the consumer is busy."""
        if self._end is not None:
            return self._end.at
        return perf_counter() if is_busy or self._begin is None else self._consumer.last_at

    def window(self, *, is_busy: bool) -> MeasuredWindow | None:
        """Return the measurements from the first element to the last; None before the first element.

        Args:
            is_busy: True if the consumer is processing elements of the current parcel (group of delivered elements). If
                False, the window ends at the last delivery, because the consumer may now do unrelated work.
        """
        if self._begin is None:
            return None
        return between(self._begin, self._end or self._now(is_busy), self._engine.resources.cpus)

    def _now(self, is_busy: bool) -> CounterMark:
        return self._mark(perf_counter() if is_busy else self._consumer.last_at, self._hosted())

    def _mark(self, at: float, hosted: dict[str, Hosted]) -> CounterMark:
        engine, resources = self._engine, self._engine.resources
        now = perf_counter()
        stages = {place: replace(counters, extra=dict(counters.extra)) for place, counters in resources.board.items()}
        for run in resources.runs:
            _add_waits(stages, run, at)
        storage = summed([*resources.storage_counters().values(), *_storage_elsewhere(engine)])
        budget = resources.budget
        waiting_s = sum(max(0.0, at - began) for began in budget.waiting.copy().values())
        waited_s = sum(stats["memory"][2] for stats in _stats_elsewhere(engine))
        return CounterMark(
            at=at,
            read_at=now,
            process_cpu_s=process_time(),
            loop_cpu_s=engine.loop_cpu_s,
            pressure_s=cpu_pressure_s(),
            elements=self._consumer.elements,
            consumer_wait_s=self._consumer.wait_s,
            memory_wait_s=budget.wait_s + waiting_s + waited_s,
            stages=stages,
            storage=storage,
            hosted=hosted,
            machine_cpu_s=machine_cpu_s(own_cores(), resources.cpus),
        )

    def _hosted(self) -> dict[str, Hosted]:
        engine = self._engine
        return {} if engine.hosting is None else engine.hosting.clocks(numbers_of(engine.plan))


def numbers_of(plan: Node) -> dict[Node, int]:
    """Return the number of every node of a plan. Each stage is identified by the number of its node."""
    return {node: number for number, node in enumerate(walk(plan))}


def _is_hosted(place: str, hosted: dict[str, Hosted]) -> bool:
    return any(place.startswith(prefix) for prefix in hosted)


def _stats_elsewhere(engine: Engine) -> list[Mapping[str, Any]]:
    return [] if engine.hosting is None else engine.hosting.last_stats


def _storage_elsewhere(engine: Engine) -> Iterator[dict[str, float]]:
    for stats in _stats_elsewhere(engine):
        yield from stats["storage"].values()


def _add_waits(stages: dict[str, StageCounters], run: StageRun, until: float) -> None:
    """Add a stage's unfinished waits to its counters, because the stage itself counts only finished waits."""
    context = run.stage.context
    nodes = [*getattr(run.stage, "nodes", [run.stage.node]), *(step.node for step in run.outlet.steps)]
    counters = [stages[place] for node in nodes if (place := context.place(node)) in stages]
    for_input = next((began for inlet in run.inlets if (began := inlet.waits.for_input) is not None), until)
    for_room = run.outlet.waits.for_room
    for each in counters:
        each.input_wait_s += max(0.0, until - for_input)
        each.output_wait_s += max(0.0, until - (until if for_room is None else for_room))
