"""What the stages of one run share: loop-wide services, and the place of this run in its loader."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aiostream_data._engine.budget import Budget, Charge
from aiostream_data._engine.buffers import BlockPool
from aiostream_data._engine.cache_pass import CachePass
from aiostream_data._engine.channel import Receiver
from aiostream_data._engine.dead_letters import DeadLetters
from aiostream_data._engine.failures import as_raisable
from aiostream_data._engine.loop_states import LoopStates
from aiostream_data._engine.origins import Locate, Namespace, Origins, source_of
from aiostream_data._engine.position import State
from aiostream_data._engine.resuming import resuming
from aiostream_data._engine.shard_numbers import ShardNumbers
from aiostream_data._engine.shard_offsets import ShardOffsets
from aiostream_data._engine.stage_runs import StageRuns
from aiostream_data._engine.state_book import TABLE, Book
from aiostream_data._engine.weight_changes import WeightChanges
from aiostream_data._engine.worker_state import StateKeys
from aiostream_data._engine.workers import Workers
from aiostream_data.device.stage import DeviceStage
from aiostream_data.executors.base import Executor, Outcome
from aiostream_data.lineage import Lineage
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.base import TRANSPARENT, Node, walk
from aiostream_data.plan.operators import CacheToken
from aiostream_data.plan.shown import subject_of
from aiostream_data.ranks.listing import ListOnce
from aiostream_data.records import Chunk, ShardRef
from aiostream_data.storage.stores import StoreSet
from aiostream_data.transforms.randomness import key_of

if TYPE_CHECKING:
    from aiostream_data._engine.hosting import Hosting


class Drained:
    """Tells when every source of a run has read its last row, so that the next epoch may begin."""

    def __init__(self) -> None:
        self._reading = 0
        self._event = asyncio.Event()

    def begin(self) -> None:
        self._reading += 1

    def end(self) -> None:
        self._reading -= 1
        if self._reading == 0:
            self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    def release(self) -> None:
        """Let waiters go whatever the sources do, as when the run is over."""
        self._event.set()


class OneShotRows:
    """Rows of iterables that can be read once only: kept by whoever reads past them, for whoever asks for them."""

    def __init__(self) -> None:
        self._kept: dict[Node, asyncio.Future[dict[int, Any]]] = {}

    def of(self, node: Node) -> asyncio.Future[dict[int, Any]]:
        """Return the future that gets the elements by ordinal. Call from the loop."""
        if node not in self._kept:
            self._kept[node] = asyncio.get_running_loop().create_future()
        return self._kept[node]


class Board:
    """The counters of every stage, sources first."""

    def __init__(self) -> None:
        self._counters: dict[str, StageCounters] = {}

    def of(self, key: str, make: Callable[[], StageCounters]) -> StageCounters:
        """Return the counters of a stage, made when first asked for."""
        found = self._counters.get(key)
        return self._counters.setdefault(key, make()) if found is None else found

    def put(self, key: str, counters: StageCounters) -> None:
        """Show the counters of a stage that runs elsewhere, as they are now."""
        self._counters[key] = counters

    def items(self) -> list[tuple[str, StageCounters]]:
        """Return the counters of every stage with the name of its place."""
        return list(self._counters.copy().items())

    def __iter__(self) -> Iterator[StageCounters]:
        known = dict(self._counters)  # a copy: the loop may add a stage meanwhile
        entries = sorted(known.items(), key=lambda entry: order_of(entry[0]))
        return iter([counters for _, counters in entries])


def order_of(key: str) -> tuple[float, ...]:
    """Return where the key of a place stands in the plan: inputs, and inner data sets, before what reads them."""
    return (*(int(number) for number in key.split("/")), math.inf)


OpenPlan = Callable[["RunContext", Node, State], AbstractAsyncContextManager[Receiver[Chunk]]]
Recall = Callable[["RunContext", Node, Lineage], Awaitable[Chunk]]
CheckInner = Callable[[Node, State, int], None]


@dataclass(frozen=True, kw_only=True)
class Services:
    """One per loader: what all its runs use."""

    pool: Executor
    budget: Budget
    blocks: BlockPool
    origins: Origins
    board: Board
    root_seed: int
    cpus: int
    stores: Callable[[Any], StoreSet]
    workers: Workers
    open_plan: OpenPlan
    recall: Recall
    check_inner: CheckInner
    devices: dict[Node, DeviceStage]
    dead_letters: DeadLetters
    book: Book
    """The rows that the state mentions with which the loader was opened."""
    weights: WeightChanges = field(default_factory=WeightChanges)
    """Weights of mixtures that were changed while running."""
    offsets: dict[tuple[int, int, int | None], ShardOffsets] = field(default_factory=dict)
    """Byte offsets of records, for each source, and for each way in which its shards are numbered."""
    shared_caches: frozenset[CacheToken] = frozenset()
    """Caches that several places of the plan read."""
    cached_epochs: dict[tuple[int, int], int] = field(default_factory=dict)
    """The repetition in which the rows of a cache were read first, by the cache's place: all later ones give them."""
    cached: dict[CacheToken, Charge] = field(default_factory=dict)
    """What caches hold that another loader has filled."""
    once: OneShotRows = field(default_factory=OneShotRows)
    profile: bool = False
    """Copies to devices are timed by the device."""
    current_gpu: int | None = None
    """GPU that was current in the thread that opened the loader; None where none was chosen."""
    one_at_a_time: bool = False
    """Every row goes through everything before the next one is begun, in the thread that asks for it."""
    runs: StageRuns = field(default_factory=StageRuns)
    """Which stages run now."""
    resolved: dict[Node, list[ShardRef]] = field(default_factory=dict)
    shard_numbers: dict[int, Sequence[ShardNumbers]] = field(default_factory=dict)
    """Numbers of shards in epochs that began before the list changed, by source, of the earliest epochs first."""
    gained: set[int] = field(default_factory=set)
    """Sources that read new shards behind their place in the state, and mixtures with new inputs, by their keys."""
    list_once: ListOnce | None = None
    """Which rank lists for all; None where each does."""
    hosting: Hosting | None = None
    """The processes that run parts of the plan."""
    pause: Callable[[float], Any] = time.sleep
    """Waits some seconds on a worker thread, or until the loader is closed."""
    passes: dict[Any, CachePass] = field(default_factory=dict)
    state_keys: StateKeys = field(default_factory=StateKeys)
    """Names of what ``init`` functions made on workers, the same in every epoch."""
    loop_states: LoopStates = field(default_factory=LoopStates)
    """What the ``init`` functions of coroutine functions made."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """One run of one (sub)plan.

    Attributes:
        epoch: Which repetition this is.
        path: Key of the place in the plan where this run was opened; differs per inner data set.
        numbers: Number of every node of the plan, inputs first.
        keys: The same without the nodes that decide nothing about rows, so that adding one changes no order.
        prefix: Put before the names of places, for inner data sets.
        made_by: Put before the names of stages, for inner data sets: who made them.
    """

    services: Services
    epoch: int
    path: int
    numbers: dict[Node, int]
    keys: dict[Node, int]
    drained: Drained
    prefix: str = ""
    made_by: str = ""

    def for_epoch(self, epoch: int) -> RunContext:
        """Return the context of another repetition."""
        return replace(self, epoch=epoch, drained=Drained())

    def open(self, node: Node, state: State = None) -> AbstractAsyncContextManager[Receiver[Chunk]]:
        """Run ``node`` and everything it reads; the block's receiver gives its chunks.

        Args:
            state: Where to go on; None begins at the beginning.
        """
        return self.services.open_plan(self, node, state)

    def recall(self, node: Node, lineage: Lineage) -> Awaitable[Chunk]:
        """Make rows of ``node`` again, in the order asked for; see :mod:`aiostream_data._engine.recall`."""
        return self.services.recall(self, node, lineage)

    async def recall_held(self, node: Node, lineage: Lineage) -> Chunk:
        """Make rows again that a state names.

        Raises:
            StateMismatchError: ``node`` has no such rows.
        """
        with resuming(TABLE.path, f"names rows that {node.label} cannot give again"):
            return await self.recall(node, lineage)

    def counters(self, node: Node) -> StageCounters:
        """Return the counters that every run of this node adds to."""

        def make() -> StageCounters:
            inputs = tuple(self.place(child) for child in node.inputs)
            return StageCounters(self.made_by + node.label, what=subject_of(node), inputs=inputs)

        return self.services.board.of(self.place(node), make)

    def place(self, node: Node) -> str:
        """Return the name of the node's place in the plan, the same in every run."""
        return f"{self.prefix}{self.numbers[node]}"

    def nth(self, node: Node) -> int:
        """Return the number of the node among those of its label in the plan."""
        mine = self.numbers[node]
        return sum(other.label == node.label and number < mine for other, number in self.numbers.items())

    def namespace(
        self, node: Node, url_of: Callable[[int], str], locate: Locate | None = None, listed: str = ""
    ) -> Namespace:
        """Open the row ids of one run of a source."""
        number = self.keys[node]
        source = source_of(self.path, number)
        return self.services.origins.open(source, number, self.epoch, url_of, locate=locate, listed=listed)

    def shard_numbers(self, node: Node) -> ShardNumbers | None:
        """Return the numbers of a source's shards in this epoch; None if they are the places in its list."""
        known = () if self.path else self.services.shard_numbers.get(self.keys[node], ())
        return next((numbers for numbers in known if self.epoch <= numbers.epoch), None)

    def gains_rows(self, node: Node) -> bool:
        """Return True if ``node`` gives rows of shards, or of inputs, that are new since the state was saved."""
        gained = self.services.gained
        if self.path or not gained:
            return False
        return any(self.keys[lower] in gained for lower in walk(node) if lower.label not in TRANSPARENT)

    def key(self, node: Node, seed: int | None, *names: Any) -> np.uint64:
        """Return the random key of a node: a function of seed, place in the plan, and names."""
        base = self.services.root_seed if seed is None else seed
        return key_of(base, self.path, self.keys[node], *names)


async def hop(counters: StageCounters, submitted: Awaitable[Outcome]) -> Any:
    """Await one hop, note its cost, and return its value or raise its error."""
    return settle(counters, await submitted)


def settle(counters: StageCounters, outcome: Outcome) -> Any:
    """Note the cost of a finished hop, and return its value or raise its error."""
    counters.busy_s += outcome.busy_s
    counters.cpu_s += outcome.cpu_s
    return value_of(outcome)


def value_of(outcome: Outcome) -> Any:
    """Return the value of a finished hop or raise its error."""
    if outcome.error is not None:
        raise as_raisable(outcome.error)
    return outcome.value
