"""Objects that all stages of a run share: the services of the loader, the epoch, and the position in the plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np

from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.failures.carried_error import as_raisable
from aiostream_data._engine.failures.dead_letters import DeadLetters
from aiostream_data._engine.failures.shard_losses import ShardLosses
from aiostream_data._engine.flow.channel import Receiver
from aiostream_data._engine.flow.drained import Drained
from aiostream_data._engine.flow.executors import Workers
from aiostream_data._engine.flow.features import Features
from aiostream_data._engine.flow.row_sink import RowSink
from aiostream_data._engine.flow.stage_counters import Board
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.resume.damaged_state import resuming
from aiostream_data._engine.resume.lineage_reader import TABLE, Book
from aiostream_data._engine.resume.origins import Locate, Namespace, ObjectOf, Origins, source_of
from aiostream_data._engine.resume.position import Position, State
from aiostream_data.executors.base import Executor, Outcome
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.base import Node
from aiostream_data.plan.shown import subject_of
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.storage.stores import StoreSet
from aiostream_data.transforms.randomness import key_of

CROWD: Final = 16
"""Number of inputs of a mixture from which on each input reads little ahead, starts when its first row is near, and
shares its threads with the other inputs."""


class Runner(Protocol):
    """Interface that runs the data sets that stages open, and recomputes single rows."""

    def open(self, context: RunContext, node: Node, state: State) -> AbstractAsyncContextManager[Receiver[Chunk]]:
        """Run a node and its inputs, starting from the saved state ``state``."""

    def play(
        self, context: RunContext, node: Node, state: State, outlet: RowSink, begun: Callable[[Position], None]
    ) -> Awaitable[int]:
        """Run a node and its inputs, with the node's stage in the calling task; see :meth:`RunContext.play`."""

    def recall(self, context: RunContext, node: Node, lineage: Lineage) -> Awaitable[Chunk]:
        """Recompute rows that a node emitted; see :mod:`aiostream_data._engine.flow.recall`."""

    def check_inner(self, node: Node, state: State, given: int) -> None:
        """Validate the part of a saved state that belongs to a data set created by a user function.

        Raises:
            DamagedStateError: A value in the state is missing, of the wrong type, or out of range.
        """


@dataclass(frozen=True, kw_only=True)
class Services:
    """Services shared by all runs of one loader.

    Attributes:
        options: Options of the engine.
        runner: Object that runs inner data sets and recomputes rows.
        pool: Executor for the engine's own work and for cheap user functions.
        workers: All executors.
        budget: Memory budget.
        blocks: Pool of reusable read blocks.
        stores: Function that returns the object stores for the given storage options.
        origins: Table that maps row ids to sources.
        book: Rows that are named in the saved state from which the loader resumed.
        board: Counters of stages.
        dead_letters: Log of skipped and replaced records of all stages.
        pause: Function that blocks a worker thread for the given seconds, or until the loader is closed.
        root_seed: Seed for operators without their own seed.
        cpus: Number of cores that this process may use.
        features: Objects that all runs of one operator share throughout the loader.
    """

    options: EngineOptions
    runner: Runner
    pool: Executor
    workers: Workers
    budget: Budget
    blocks: BlockPool
    stores: Callable[[Any], StoreSet]
    origins: Origins
    book: Book
    board: Board
    dead_letters: DeadLetters
    pause: Callable[[float], Any]
    root_seed: int
    cpus: int
    features: Features = field(default_factory=Features)


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """One run of a plan or of an inner data set.

    Attributes:
        epoch: Number of the epoch, which random draws depend on.
        path: Key of the position in the plan that opened this run; it differs for each inner data set.
        numbers: Number of each node of the plan. The inputs of a node have lower numbers than the node.
        keys: Numbers that count only the nodes that influence rows, so that other nodes do not change random orders.
        prefix: Prefix for the keys of nodes in an inner data set.
        made_by: Prefix for the names of stages in an inner data set: the operator that created the data set.
        crowd: Number of inputs of a mixture that this run belongs to and that are read side by side; 1 outside of
            mixtures.
        sharers: Number of runs that share the memory limit: the crowd, and inner data sets that are open at the same
            time.
        made_from: Ids of the element from which an operator made this inner data set; None for other runs.
        losses: Receives the lost records of a source whose rows another stage merges and counts. None if the source
            counts its lost records itself.
    """

    services: Services
    epoch: int
    path: int
    numbers: dict[Node, int]
    keys: dict[Node, int]
    drained: Drained
    prefix: str = ""
    made_by: str = ""
    crowd: int = 1
    sharers: int = 1
    made_from: RowIds | None = None
    losses: ShardLosses | None = None

    def for_epoch(self, epoch: int) -> RunContext:
        """Return a copy of this context for another epoch."""
        return replace(self, epoch=epoch, drained=Drained())

    def beside(self, others: int) -> RunContext:
        """Return a copy of this context for one of ``others`` inputs that are read side by side."""
        return self if others == 1 else replace(self, crowd=self.crowd * others, sharers=self.sharers * others)

    def sharing(self, others: int) -> RunContext:
        """Return a copy of this context for one of ``others`` inner runs that share the memory limit."""
        return self if others == 1 else replace(self, sharers=self.sharers * others)

    @property
    def is_crowded(self) -> bool:
        """True if so many inputs are read side by side that each of them reads as little ahead as possible."""
        return self.crowd >= CROWD

    @property
    def is_inner(self) -> bool:
        """True if this is a run of an inner data set, beside which other inner data sets may run."""
        return bool(self.prefix)

    def open(self, node: Node, state: State = None) -> AbstractAsyncContextManager[Receiver[Chunk]]:
        """Return a context manager that runs ``node`` and its inputs; it provides a receiver for the node's chunks.

        Args:
            state: Position to resume from; None starts at the beginning.
        """
        return self.services.runner.open(self, node, state)

    def play(self, node: Node, state: State, outlet: RowSink, begun: Callable[[Position], None]) -> Awaitable[int]:
        """Run ``node`` and its inputs, and send the rows through ``outlet``. Return the number of rows.

        The stage of ``node`` runs in the calling task.

        Args:
            state: Position to resume from; None starts at the beginning.
            begun: Function that receives the run's position before the run sends a row.

        Raises:
            InputFailed: A stage of the run failed, after all rows before the failure were sent.
            StreamAborted: The run was cut short.
        """
        return self.services.runner.play(self, node, state, outlet, begun)

    def recall(self, node: Node, lineage: Lineage) -> Awaitable[Chunk]:
        """Recompute rows of ``node``, in the order of ``lineage``; see :mod:`aiostream_data._engine.flow.recall`."""
        return self.services.runner.recall(self, node, lineage)

    async def recall_held(self, node: Node, lineage: Lineage) -> Chunk:
        """Recompute rows of ``node`` that a saved state names.

        Raises:
            StateMismatchError: ``node`` cannot produce the named rows.
        """
        with resuming(TABLE.path, f"lists rows that {node.label} cannot recompute"):
            return await self.recall(node, lineage)

    def counters(self, node: Node) -> StageCounters:
        """Return the counters of a node; all runs of the node share these counters."""

        def make() -> StageCounters:
            inputs = tuple(self.place(child) for child in node.inputs)
            return StageCounters(self.made_by + node.label, what=subject_of(node), inputs=inputs)

        return self.services.board.of(self.place(node), make)

    def place(self, node: Node) -> str:
        """Return the key of the node's position in the plan. The key is equal in every run."""
        return f"{self.prefix}{self.numbers[node]}"

    def nth(self, node: Node) -> int:
        """Return the number of the node among all nodes of the plan with the same label, counted from 0."""
        mine = self.numbers[node]
        return sum(other.label == node.label and number < mine for other, number in self.numbers.items())

    def namespace(
        self,
        node: Node,
        url_of: Callable[[int], str],
        locate: Locate | None = None,
        listed: str = "",
        times: int | None = None,
        object_of: ObjectOf | None = None,
    ) -> Namespace:
        """Create a namespace (a range of row ids) for one run of a source. See :class:`.Namespace`."""
        number = self.keys[node]
        source = source_of(self.path, number)
        return self.services.origins.open(
            source, number, self.epoch, url_of, locate=locate, listed=listed, times=times, object_of=object_of
        )

    def key(self, node: Node, seed: int | None, *names: Any) -> np.uint64:
        """Compute the random key of a node from its seed, its position in the plan, and ``names``."""
        base = self.services.root_seed if seed is None else seed
        return key_of(base, self.path, self.keys[node], *names)


async def hop(counters: StageCounters, submitted: Awaitable[Outcome]) -> Any:
    """Await a hop (one call on a worker) and add its cost to the counters.

    Return the value of the hop or raise its error.
    """
    return settle(counters, await submitted)


def settle(counters: StageCounters, outcome: Outcome) -> Any:
    """Add the cost of a finished hop (one call on a worker) to the counters.

    Return the value of the hop or raise its error.
    """
    counters.busy_s += outcome.busy_s
    counters.cpu_s += outcome.cpu_s
    return value_of(outcome)


def value_of(outcome: Outcome) -> Any:
    """Return the value of a finished call on a worker, or raise the error of the call."""
    if outcome.error is not None:
        raise as_raisable(outcome.error)
    return outcome.value
