"""Report the current activity of an engine as text: stages, functions, memory and stacks. Safe from any thread."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from textwrap import indent
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeGuard

from aiostream_data._engine.calls.running_calls import running_calls
from aiostream_data._engine.consumer.bridge import Bridge
from aiostream_data._engine.diagnosis.stacks import task_stacks, thread_stacks
from aiostream_data._engine.flow.executors import Workers
from aiostream_data._engine.flow.inputs import reads_inlets
from aiostream_data._engine.flow.stage_counters import order_of
from aiostream_data._engine.flow.stage_runs import StageRun, StageRuns
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.processes.process_manager import Hosting
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.metrics.stuck import StageState, find_stuck
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Interleave
from aiostream_data.plan.written import function_name

if TYPE_CHECKING:
    from aiostream_data._engine.calls.map_coroutine import CoroutineStage
    from aiostream_data.device.stage import DeviceStage


class RunningResources(Protocol):
    """Executors, stages and memory of a running engine, used to create a report."""

    budget: Budget
    runs: StageRuns
    workers: Workers

    @property
    def devices(self) -> Mapping[Node, DeviceStage]:
        """The open devices, keyed by their ``to_device`` node."""


class RunningEngine(Protocol):
    """Interface through which a report reads a running engine."""

    bridge: Bridge
    loop: asyncio.AbstractEventLoop | None
    thread: threading.Thread

    @property
    def resources(self) -> RunningResources:
        """Resources that the engine's stages share."""

    @property
    def hosting(self) -> Hosting | None:
        """Worker processes that run parts of the plan; None without ``in_subprocess()``."""


ANSWER_S = 0.25
"""Seconds to wait for an answer of the event loop before reporting the loop as blocked."""

CHILD_S = 1.0
"""Seconds to wait for the activity report of a worker process."""

MAX_CALLS = 20
"""Maximum number of running user-function calls listed in a report."""


def dump_of(engine: RunningEngine) -> str:
    """Return a text report about the activity of a running engine.

    Creating the report takes a fraction of a second, or longer with worker processes.
    """
    now = perf_counter()
    resources = engine.resources
    states = stage_states(resources, now)
    calls = _calls(resources, now)
    processes = _processes(engine)
    stuck = [_stuck(find_stuck(states), calls), *_stuck_in(processes)]
    parts = [
        ("", [_consumer(engine, now), *stuck, _loop(engine)]),
        ("stages, sources first", _table(states)),
        ("memory", _memory(engine, now)),
        ("functions that run now", [call.text for call in calls[:MAX_CALLS]]),
        ("tasks of the event loop", _stacks(task_stacks(engine.loop) if engine.loop is not None else ())),
        ("threads", _stacks(thread_stacks(_threads(engine), ThreadExecutor._work.__code__))),
        ("worker processes", processes),
    ]
    return "\n".join(_part(title, lines) for title, lines in parts if lines)


def stuck_of(engine: RunningEngine) -> tuple[str, str]:
    """Return the name of the stuck stage, and a sentence about what the stage is doing.

    If no stage has started, the returned name is "".
    """
    now = perf_counter()
    stage = find_stuck(stage_states(engine.resources, now))
    if stage is None:
        return "", "no stage has started yet"
    inside = _stuck_in(_processes(engine)) if stage.name.endswith("in_subprocess") else []
    told = [_stuck(stage, _calls(engine.resources, now)).removeprefix("stuck: "), *inside]
    return stage.name, "; ".join(told)


def stages_text(resources: RunningResources) -> str:
    """Return the report of a worker process about its stages and running functions."""
    now = perf_counter()
    states = stage_states(resources, now)
    calls = _calls(resources, now)
    parts = [
        ("", [_stuck(find_stuck(states), calls)]),
        ("stages, sources first", _table(states)),
        ("functions that run now", [call.text for call in calls[:MAX_CALLS]]),
    ]
    return "\n".join(_part(title, lines) for title, lines in parts if any(lines))


def _stuck_in(processes: Iterable[str]) -> Iterator[str]:
    """Yield the line about the stuck stage from each worker process's report."""
    for text in processes:
        name, _, rest = text.partition("\n")
        if rest.startswith("stuck: "):
            yield f"{name}: {rest.partition(chr(10))[0]}"


def _part(title: str, lines: list[str]) -> str:
    body = "\n".join(line.rstrip("\n") for line in lines if line)
    return f"{title}:\n{indent(body, '  ')}" if title else body


# -- stages


def stage_states(resources: RunningResources, now: float) -> list[StageState]:
    """Return the state of every running stage, sources first."""
    runs = sorted(resources.runs, key=lambda run: order_of(run.stage.context.place(run.stage.node)))
    return [_state(run, resources, now) for run in runs]


def _state(run: StageRun, resources: RunningResources, now: float) -> StageState:
    stage, outlet = run.stage, run.outlet
    node, context = stage.node, stage.context
    queued = outlet.queued
    inputs = [inlet.waits.for_input for inlet in run.inlets]
    return StageState(
        name=context.made_by + " + ".join(each.label for each in _nodes(run)),
        place=context.place(node),
        written_at=str(node.written_at or ""),
        rows_in=sum(inlet.rows for inlet in run.inlets),
        rows_out=outlet.rows,
        queued=queued.items,
        queued_nbytes=queued.nbytes,
        wanted_s=_since(outlet.waits.for_input, now),
        input_s=_since(next((since for since in inputs if since is not None), None), now),
        room_s=_since(outlet.waits.for_room, now),
        under_way=max(_rows_held(run), resources.workers.unfinished(context.place(node))),
        opens_inputs=bool(node.inputs) and (not reads_inlets(node) or isinstance(node, Interleave)),
    )


def _nodes(run: StageRun) -> list[Node]:
    """Return the nodes that run in the same hops (calls on a worker) as a stage, in stream order."""
    return [*getattr(run.stage, "nodes", [run.stage.node]), *(step.node for step in run.outlet.steps)]


def _since(began: float | None, now: float) -> float | None:
    return None if began is None else max(0.0, now - began)


def _rows_held(run: StageRun) -> int:
    """Return the number of rows that a stage has received but not emitted; 0 if the number cannot be computed."""
    accounted = run.stage.rows_accounted(run.outlet)
    if accounted is None:
        return 0
    return max(0, sum(inlet.rows + inlet.held for inlet in run.inlets) - accounted - run.outlet.dropped)


def _table(states: Iterable[StageState]) -> list[str]:
    rows = [
        (state.name, f"{state.rows_in:,} in", f"{state.rows_out:,} out", _queue(state), state.sentence, _line(state))
        for state in states
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(6)] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _line(state: StageState) -> str:
    return f"# {state.written_at}" if state.written_at else ""


def _queue(state: StageState) -> str:
    return f"queue {state.queued} ({state.queued_nbytes / (1 << 20):.1f} MiB)" if state.queued else "queue empty"


# -- consumer, event loop and memory


def _consumer(engine: RunningEngine, now: float) -> str:
    waiting = engine.bridge.consumer
    if waiting is not None:
        return f"the consumer has waited for {now - waiting.since:.1f} s"
    return f"the consumer does not wait; {engine.bridge.waiting} elements are ready for it"


def _stuck(state: StageState | None, calls: list[_Call]) -> str:
    if state is None:
        return ""
    written = f", written at {state.written_at}" if state.written_at else ""
    call = next((call.text for call in calls if call.place == state.place), "")
    return f"stuck: {state.name}{written}, which {state.sentence}" + (f": {call}" if call else "")


def _loop(engine: RunningEngine) -> str:
    loop = engine.loop
    if loop is None or loop.is_closed():
        return "the event loop has ended"
    answered = threading.Event()
    with suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(answered.set)
    if threading.current_thread() is engine.thread or answered.wait(ANSWER_S):
        return ""
    return f"the event loop has not answered within {ANSWER_S:g} s: something blocks its thread, {engine.thread.name}"


def _memory(engine: RunningEngine, now: float) -> list[str]:
    budget = engine.resources.budget
    lines = [f"{budget.used / (1 << 20):.1f} MiB of {budget.limit / (1 << 20):.0f} MiB held"]
    waits = sorted(budget.waiting.copy().items())
    return lines + [f"{name} waits for room {now - since:.1f} s" for name, since in waits]


# -- running calls and stacks


class _Call(NamedTuple):
    """A running call of a user function.

    Calls that block the event loop sort before other calls, and older calls sort before newer calls.
    """

    waits: bool
    since: float
    place: str
    text: str


def _calls(resources: RunningResources, now: float) -> list[_Call]:
    return sorted([*_calls_on_threads(resources, now), *_awaited_calls(resources, now)])


def _calls_on_threads(resources: RunningResources, now: float) -> Iterator[_Call]:
    workers = resources.workers
    places = {ident: place for place, idents in workers.threads_by_place().items() for ident in idents}
    names = {thread.ident: thread.name for thread in workers.threads()}
    for call in running_calls():
        if call.thread in names:
            taken = f"for {now - call.started_at:.1f} s on thread {names[call.thread]}"
            text = f"{function_name(call.function)}, {call.record}, {taken}"
            yield _Call(True, call.started_at, places.get(call.thread, ""), text)


def _awaited_calls(resources: RunningResources, now: float) -> Iterator[_Call]:
    for run in resources.runs:
        if _is_coroutine_stage(run.stage):
            place, name = run.stage.context.place(run.stage.node), function_name(run.stage.node.function)
            for record, since, blocks in run.stage.awaited():
                how = "running" if blocks else "awaited"
                yield _Call(not blocks, since, place, f"{name}, {record}, {how} for {now - since:.1f} s")


def _is_coroutine_stage(stage: object) -> TypeGuard[CoroutineStage]:
    """Return True for a stage that awaits coroutines. Its module is imported only if a plan has such a stage."""
    module = sys.modules.get("aiostream_data._engine.calls.map_coroutine")
    return module is not None and isinstance(stage, module.CoroutineStage)


def _threads(engine: RunningEngine) -> list[threading.Thread]:
    consumer = engine.bridge.consumer
    waiting = [thread for thread in threading.enumerate() if consumer and thread.ident == consumer.thread]
    of_devices = [thread for device in engine.resources.devices.values() for thread in device.threads]
    return [engine.thread, *engine.resources.workers.threads(), *of_devices, *waiting]


def _stacks(stacks: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}:\n{stack}" if "\n" in stack else f"{name}: {stack}" for name, stack in stacks]


def _processes(engine: RunningEngine) -> list[str]:
    texts = [engine.resources.workers.stacks(CHILD_S)]
    if engine.hosting is not None:
        texts += [process.child.stacks(CHILD_S) for process in engine.hosting.processes]
    return [text for text in texts if text]
