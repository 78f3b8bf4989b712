"""What one engine owns and has to close: executors, stores, devices, blocks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from aiostream_data._engine.calls.cpu_count import cpu_count
from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.engine_state import EngineState
from aiostream_data._engine.failures.dead_letters import DeadLetters
from aiostream_data._engine.flow.board import Board
from aiostream_data._engine.flow.context import RunContext, Services, value_of
from aiostream_data._engine.flow.drained import Drained
from aiostream_data._engine.flow.executors import Workers
from aiostream_data._engine.flow.stage_runs import StageRuns
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.memory.trimming import Trimmer
from aiostream_data._engine.running import PlanRunner
from aiostream_data._engine.stages.caching.shared_caches import shared_caches
from aiostream_data._engine.stages.to_device.open_devices import Devices
from aiostream_data._engine.state_schema import InnerStates
from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import CloseError
from aiostream_data.executors.inline import InlineExecutor
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.metrics.allocator import trim
from aiostream_data.metrics.report import SHARD_CACHE
from aiostream_data.plan.base import Node, walk
from aiostream_data.storage.counters import joined
from aiostream_data.storage.stores import StoreSet

READER_THREADS = 4
"""Threads for blocking reads of local files and of stores without an asynchronous client."""

IDLE_NBYTES = 256 << 20
"""Most bytes of blocks that were read into and wait to be read into again; at most 1/32 of the limit.

A store that is quicker than training is read in bursts, after each of which many blocks wait for the next.
"""


def idle_blocks_nbytes(memory_limit: int) -> int:
    """Return how much may wait to be read into again, under a memory limit in bytes."""
    return min(IDLE_NBYTES, memory_limit // 32)


class Resources:
    """Made before the engine's thread starts; used and closed on that thread.

    Attributes:
        budget, board: Bytes, and the counters of stages.
        pool: Threads for the engine's own work and the user's functions.
        stores: Those that were used, by their options.
        devices: Where batches are copied to, by the node that says so.
        workers: All executors.
        runs: Which stages run now.
        trimmer: Looks after what malloc keeps.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.budget = Budget(options.run.memory_limit)
        self.board = Board()
        self._options = options
        self._cpus = cpu_count()
        self.pool = InlineExecutor() if options.run.debug else ThreadExecutor(self._cpus, "asd-pool")
        self.stores: dict[str, StoreSet] = {}
        self.devices = Devices()
        self.runs = StageRuns()
        self.trimmer = Trimmer(options.run.memory_limit)
        self._letters: DeadLetters | None = None
        self._closing = threading.Event()
        self._blocks = BlockPool(idle_blocks_nbytes(options.run.memory_limit))
        self.workers = Workers(self.pool, only_pool=options.run.debug)
        # Apart from the pool: threads that wait for a slow disk must not keep decoding waiting.
        self._readers = (
            InlineExecutor()  # another than the pool: a read is no function that an interrupt may be raised in
            if options.run.debug
            else self.workers.at("readers", lambda: ThreadExecutor(READER_THREADS, "asd-read"))
        )

    def context(self, plan: Node, state: EngineState) -> RunContext:
        """Return what the stages of ``plan`` are given. On the engine's loop."""
        self._letters = DeadLetters(self._options.run.failing.dead_letters, state.origins, state.root_seed, self.pool)
        services = Services(
            options=self._options,
            runner=PlanRunner(InnerStates(self._options.state, state.book)),
            pool=self.pool,
            workers=self.workers,
            budget=self.budget,
            blocks=self._blocks,
            stores=self._stores,
            origins=state.origins,
            book=state.book,
            board=self.board,
            dead_letters=self._letters,
            pause=self._closing.wait,
            root_seed=state.root_seed,
            cpus=self._cpus,
        )
        for feature in (state.weights, state.cached_epochs, shared_caches(plan), self.devices, self.runs):
            services.features.put(feature)
        if state.hosting is not None:
            services.features.put(state.hosting)
        return RunContext(
            services=services,
            epoch=self._options.epoch,
            path=0,
            numbers={node: number for number, node in enumerate(walk(plan))},
            keys=state.keys,
            drained=Drained(),
        )

    def _stores(self, options: Mapping[str, Any]) -> StoreSet:
        key = json.dumps(options, sort_keys=True, default=id)
        if key not in self.stores:

            async def run_blocking(function: Callable[..., Any], *args: Any) -> Any:
                return value_of(await self._readers.submit(function, *args))

            self.stores[key] = StoreSet(options, run_blocking, self._options.run.shard_cache, self.budget.room_for)
        return self.stores[key]

    def storage_counters(self) -> dict[str, dict[str, float]]:
        """Return what was asked of each store, by its scheme. From any thread."""
        return joined(stores.counters_by_store() for stores in list(self.stores.values()))

    def holders(self) -> dict[str, tuple[int, int]]:
        """Return who holds how many bytes, and held at most: those of the budget, and the shard cache beside it."""
        held = None if self._options.run.shard_cache is None else self._options.run.shard_cache.held_nbytes()
        return dict(self.budget.holders) | ({} if held is None else {SHARD_CACHE: held})

    async def aclose(self) -> None:
        """Close devices and stores, while the loop runs.

        Raises:
            CloseError: They could not be closed.
        """
        devices = (self._close(device) for device in self.devices.values())
        results = await asyncio.gather(
            *devices, *(stores.aclose() for stores in self.stores.values()), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, Exception)]
        if failures:
            raise CloseError("closing devices and stores failed", failures)

    async def _close(self, device: DeviceStage) -> None:
        """Close a device on a thread, since that waits for copies, and a loop never calls a device."""
        if self._options.run.debug:
            device.close()
            return
        with self.workers.thread("asd-device") as thread:
            value_of(await thread.submit(device.close))

    def close_executors(self, timeout_s: float) -> bool:
        """Close what runs functions, before the loop is; False when some are still in one after ``timeout_s``."""
        self._closing.set()  # nobody waits for another attempt any more
        ended = self.workers.close(timeout_s)
        if self._letters is not None:  # now that nobody writes any more, unless he is stuck in it
            self._letters.close()
        return ended

    def look_after_memory(self) -> None:
        """Have what malloc keeps looked at, when it is time to. Does not wait for that."""
        if self.trimmer.is_due():
            self.pool.submit(self.trimmer.look)

    def drop_blocks(self) -> None:
        """Give up the blocks that wait to be read into again."""
        self._blocks.close()
        trim()  # or loaders that come and go would leave what their threads freed in the arenas of these
