"""Run a plan, with one asyncio task per stage in one TaskGroup.

The caller reads the elements from the last stage's channel.

How a run ends:

- Success: the consumer receives every element. Then the consumer's loop ends, and the stages close their outlets.
- Failure of a stage: the consumer receives every element emitted before the failure. Then the consumer receives the
  root error with notes, but without an exception group around the error. Each stage passes the error on only after the
  rows that were sent before the failure.
- Early exit of the consumer: the run raises no error, and an error of the consumer itself propagates. The run cancels,
  awaits and closes all stages.
- Cancellation or Ctrl-C: the consumer receives CancelledError or KeyboardInterrupt. The run cancels, awaits and closes
  all stages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import NamedTuple

from aiostream_data._engine.compile import STEPS, build, fused_below, stage_node, steps_after
from aiostream_data._engine.failures.carried_error import CarriedError
from aiostream_data._engine.flow.channel import Receiver, Sender, open_channel
from aiostream_data._engine.flow.context import CROWD, RunContext
from aiostream_data._engine.flow.demand_channel import OnDemand, OneByOne, Patient, open_demand_channel
from aiostream_data._engine.flow.forwarding import forward
from aiostream_data._engine.flow.fused_steps import Step, Tail
from aiostream_data._engine.flow.inputs import reads_inlets
from aiostream_data._engine.flow.relay import Relay
from aiostream_data._engine.flow.root_cause import forget_frames, root_error
from aiostream_data._engine.flow.row_sink import RowSink
from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.flow.stage_runs import StageRuns
from aiostream_data._engine.flow.stage_tasks import Launch, StageTasks, Work
from aiostream_data._engine.flow.task_errors import carrying
from aiostream_data._engine.resume.damaged_state import resuming
from aiostream_data._engine.resume.position import POSITION, Position, State
from aiostream_data._engine.stages.prefetch import CHANNEL_ITEMS, channel_items
from aiostream_data._engine.state_against_plan import InnerStates
from aiostream_data.errors import CardinalityError
from aiostream_data.plan.base import Node
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.rows.row_ids import RowIds


@asynccontextmanager
async def open_plan(context: RunContext, node: Node, state: State = None) -> AsyncIterator[Receiver[Chunk]]:
    """Start every stage of the plan ``node``, and yield a receiver of its chunks.

    The receiver's ``position`` attribute is the run's position.

    On exit, this context manager cancels every stage and waits until all stages have ended.

    Raises:
        BaseException: The first error of the run, without the errors that this error caused in other stages.
        ReceiverClosed: The ``async with`` block raised ReceiverClosed. The caller must not treat the run as complete.
    """
    async with StageTasks(context.drained) as launch:
        with _start(node, context, launch, state) as receiver:
            yield receiver


async def play(
    context: RunContext, node: Node, state: State, outlet: RowSink, begun: Callable[[Position], None]
) -> int:
    """Run the plan ``node``, and send its rows through ``outlet``. Return the number of rows.

    The last stage of the plan runs in the calling task, so a plan of one stage needs no task of its own.

    Args:
        begun: Function that receives the run's position before the run sends a row.

    Raises:
        InputFailed: A stage of the plan failed, after all rows before the failure were sent.
        StreamAborted: The run was cut short.
    """
    if channel_items(stage_node(node)) > CHANNEL_ITEMS:  # prefetch(): its stage works ahead in its own task
        async with open_plan(context, node, state) as receiver:
            begun(position_of(receiver))
            receiver.wanted_for(outlet.is_awaited)
            return await forward(receiver, outlet)
    relay = Relay(outlet)
    async with StageTasks(context.drained) as launch:
        position, work, _ = _prepare(node, context, launch, state, relay)
        begun(position)
        await work()
    return relay.rows_at_the_end()


def _start(
    node: Node, context: RunContext, launch: Launch, state: State, *, is_on_demand: bool = False
) -> Receiver[Chunk]:
    sender, receiver = _channel_after(node, context, is_on_demand)
    receiver.on_wait = context.services.budget.look_soon
    receiver.position, work, name = _prepare(node, context, launch, state, sender)
    launch(work, name)
    return receiver


class _LastStage(NamedTuple):
    """Last stage of a plan, which was not launched: its position, its work, and its name."""

    position: Position
    work: Work
    name: str


def _prepare(node: Node, context: RunContext, launch: Launch, state: State, sender: Sender[Chunk]) -> _LastStage:
    """Launch all stages of a plan except the last one, which will send through ``sender``."""
    node, steps = steps_after(node, context)
    for step in reversed(steps):
        if state is None:  # the remaining steps start from the beginning
            break
        with resuming(POSITION, f"does not fit {step.node.label}"):
            state = step.resume(state)
    counters = context.counters(node)
    fused = fused_below(node)
    stage = build(node, context, counters, fused)
    lowest = fused[0] if fused else node
    states: Sequence[State] = [None] * len(lowest.inputs)
    if state is not None:
        with resuming(POSITION, f"does not fit {node.label}"):
            states = stage.resume(state)
    children = lowest.inputs if reads_inlets(lowest) else ()
    beside = stage.inputs_side_by_side
    is_large_mixture = 1 < beside >= CROWD and not context.services.workers.one_at_a_time
    start_input = _start_later if is_large_mixture else _start
    crowd = context.beside(beside)
    receivers = [
        start_input(child, crowd if number < beside else context, launch, its)
        for number, (child, its) in enumerate(zip(children, states, strict=False))
    ]
    stage.inputs = [position_of(receiver) for receiver in receivers]
    ends_epoch = not children or stage.counts_losses
    if ends_epoch:
        context.drained.begin()
    services = context.services
    outlet = Outlet(sender, counters, services.budget, services.pool, Tail(steps) if steps else None)
    for before in receivers:
        before.wanted_for(outlet.is_awaited)
    inlets = [Inlet(before, context.counters(lowest), outlet.until_it_may_receive) for before in receivers]
    work = partial(supervise, stage, inlets, outlet, node.label, context if ends_epoch else None)
    return _LastStage(_joined_positions(stage, steps), work, node.label)


def _channel_after(node: Node, context: RunContext, is_on_demand: bool) -> tuple[Sender[Chunk], Receiver[Chunk]]:
    services = context.services
    if services.workers.one_at_a_time:
        return open_demand_channel(OneByOne)
    items, nbytes = channel_items(stage_node(node)), services.budget.channel_nbytes
    if items > CHANNEL_ITEMS or not context.is_crowded:
        return open_channel(items, nbytes)
    return open_demand_channel(OnDemand if is_on_demand else Patient, nbytes)


def _start_later(node: Node, context: RunContext, launch: Launch, state: State) -> Receiver[Chunk]:
    """Build the stages of an input. Their tasks start when the receiver's ``begin`` is called, and work on demand."""
    waiting: list[tuple[Work, str]] = []
    has_begun = False

    def launch_later(work: Work, name: str) -> None:
        if has_begun:  # an input of a mixture in this input
            launch(work, name)
        else:
            waiting.append((work, name))

    def begin() -> None:
        nonlocal has_begun
        has_begun = True
        for work, name in waiting:
            launch(work, name)

    receiver = _start(node, context, launch_later, state, is_on_demand=True)
    receiver.begin = begin
    return receiver


def _joined_positions(stage: Stage, steps: Sequence[Step]) -> Position:
    place: Position = stage
    for step in steps:
        step.before = place
        place = step
    return place


def position_of(receiver: Receiver[Chunk]) -> Position:
    """Return the position of the run that sends rows to ``receiver``."""
    assert receiver.position is not None, "only a run has a place"
    return receiver.position


async def recall(context: RunContext, node: Node, lineage: Lineage) -> Chunk:
    """Recompute the rows of ``node`` that ``lineage`` lists, in the order of ``lineage``."""
    if not len(lineage):
        return Items([], RowIds.none())
    if STEPS.has(node):
        return await STEPS.of(node)(node, context, context.counters(node)).recall(lineage)
    return await build(node, context, context.counters(node)).recall(lineage)


async def supervise(
    stage: Stage, inlets: Sequence[Inlet], outlet: Outlet, label: str, source_of: RunContext | None
) -> None:
    """Run one stage, check its row counts, and close its channels.

    If the stage fails, send its error through the outlet after its rows.
    """
    with ExitStack() as ends:
        for inlet in inlets:
            ends.enter_context(inlet)
        ends.enter_context(outlet)
        ends.enter_context(stage.context.services.features.of(StageRuns).running(stage, inlets, outlet))
        ends.enter_context(carrying(outlet))
        with _noted(stage.node):
            try:
                await outlet.until_wanted()
                if not stage.refills:
                    await outlet.refill()
                await stage.run(inlets, outlet)
            except asyncio.CancelledError as error:
                forget_frames(error)
                raise
            finally:
                if source_of is not None:  # flushing the tail below needs no source, and counts no loss of one
                    source_of.drained.end()
            check_account(stage, inlets, outlet, label)
            await outlet.finish()


def check_account(stage: Stage, inlets: Sequence[Inlet], outlet: Outlet, label: str) -> None:
    """Raise CardinalityError unless a stage's input rows equal its output rows plus the rows dropped on purpose."""
    rows_in = sum(inlet.rows + inlet.held for inlet in inlets)
    rows_out = stage.rows_accounted(outlet)
    if rows_out is not None and rows_in != rows_out + outlet.dropped:
        raise CardinalityError(
            f"stage {label} received {rows_in} rows but accounts for {rows_out} + {outlet.dropped} left out. "
            "This is a bug in aiostream_data: report it, and discard this epoch."
        )


@contextmanager
def _noted(node: Node) -> Iterator[None]:
    """If the ``with`` block raises an error without a stage note, add the stage's name to the error as a note."""
    try:
        yield
    except Exception as error:
        root = root_error(error)
        subject = root.error if isinstance(root, CarriedError) else root
        if subject is not None and not any(note.startswith("stage: ") for note in getattr(subject, "__notes__", ())):
            subject.add_note(node.noted)
        raise


class PlanRunner:
    """Implementation of :class:`~aiostream_data._engine.flow.context.Runner` for the stages of one loader."""

    def __init__(self, inner: InnerStates) -> None:
        """Create a runner. ``inner`` checks the saved positions of datasets that user functions create."""
        self._inner = inner

    def open(self, context: RunContext, node: Node, state: State) -> AbstractAsyncContextManager[Receiver[Chunk]]:
        """Run a plan; see :func:`open_plan`."""
        return open_plan(context, node, state)

    def play(
        self, context: RunContext, node: Node, state: State, outlet: RowSink, begun: Callable[[Position], None]
    ) -> Awaitable[int]:
        """Run a plan in the calling task; see :func:`play`."""
        return play(context, node, state, outlet, begun)

    def recall(self, context: RunContext, node: Node, lineage: Lineage) -> Awaitable[Chunk]:
        """Recompute rows; see :func:`recall`."""
        return recall(context, node, lineage)

    def check_inner(self, node: Node, state: State, given: int) -> None:
        """Check a saved position; see :meth:`~aiostream_data._engine.state_against_plan.InnerStates.check`."""
        self._inner.check(node, state, given)
