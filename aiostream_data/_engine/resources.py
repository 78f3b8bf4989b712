"""Resources that one engine owns and closes: executors, stores, devices, and memory blocks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiostream_data._engine.calls.cpu_count import cpu_count
from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.engine_state import EngineState
from aiostream_data._engine.failures.dead_letters import DeadLetters
from aiostream_data._engine.flow.context import RunContext, Services, value_of
from aiostream_data._engine.flow.drained import Drained
from aiostream_data._engine.flow.executors import Workers
from aiostream_data._engine.flow.stage_counters import Board
from aiostream_data._engine.flow.stage_runs import StageRuns
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.memory.buffers import BlockPool
from aiostream_data._engine.memory.trimming import Trimmer
from aiostream_data._engine.running import PlanRunner
from aiostream_data._engine.stages.caching.shared_caches import shared_caches
from aiostream_data._engine.stages.to_device.open_devices import Devices
from aiostream_data._engine.state_against_plan import InnerStates
from aiostream_data.errors import CloseError
from aiostream_data.executors.inline import InlineExecutor
from aiostream_data.executors.native_threads import NativeThreads
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.metrics.allocator import trim
from aiostream_data.metrics.report import SHARD_CACHE
from aiostream_data.plan.base import Node, walk
from aiostream_data.storage.counters import joined
from aiostream_data.storage.stores import StoreSet

if TYPE_CHECKING:
    from aiostream_data.device.stage import DeviceStage

READER_THREADS = 4
"""Number of threads for blocking reads: from local files, and from stores without an asynchronous client."""

IDLE_NBYTES = 256 << 20
"""Maximum bytes of unused read blocks, and of unused ``bytes`` objects, that are kept for reuse.

Unused blocks may also use at most 1/32 of the memory limit (:func:`idle_blocks_nbytes`).

If a store is faster than the training loop, reading happens in bursts. Many read blocks are unused between two bursts
of reading.
"""


def idle_blocks_nbytes(memory_limit: int) -> int:
    """Return the maximum bytes of unused read blocks for a memory limit in bytes."""
    return min(IDLE_NBYTES, memory_limit // 32)


class Resources:
    """Resources of one engine: created before the engine's thread starts, then used and closed on that thread.

    Attributes:
        budget, board: Memory budget, and the counters of all stages.
        cpus: Number of CPUs that this process may use.
        blocks: Pool of reusable memory.
        pool: Threads for the engine's own work and for cheap user functions.
        stores: Opened object stores, keyed by their options as JSON.
        devices: The open devices, keyed by their ``to_device`` node.
        workers: All executors.
        runs: Stages that are currently running.
        trimmer: Object that returns unused memory of malloc to the operating system.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.budget = Budget(options.run.memory_limit)
        self.board = Board()
        self._options = options
        self.cpus = cpu_count()
        self.pool = InlineExecutor() if options.run.debug else ThreadExecutor(self.cpus, "asd-pool")
        self.stores: dict[str, StoreSet] = {}
        self.devices = Devices()
        self.runs = StageRuns()
        self.trimmer = Trimmer(options.run.memory_limit)
        self._letters: DeadLetters | None = None
        self._closing = threading.Event()
        self.blocks = BlockPool(idle_blocks_nbytes(options.run.memory_limit))
        most = None if options.run.debug else options.run.native_threads
        native_threads = None if most is None else NativeThreads(most)
        self.workers = Workers(self.pool, one_at_a_time=options.run.debug, native_threads=native_threads)
        # Separate from the pool, so that threads blocked on a slow disk do not delay decoding.
        self._readers = (
            InlineExecutor()  # separate from the pool: an interrupt may be raised in a user function, not in a read
            if self.workers.one_at_a_time
            else self.workers.at("readers", lambda: ThreadExecutor(READER_THREADS, "asd-read"))
        )

    def context(self, plan: Node, state: EngineState) -> RunContext:
        """Create the context that the stages of ``plan`` share. Call this method on the engine's event loop."""
        self._letters = DeadLetters(self._options.run.failing.dead_letters, state.origins, state.root_seed, self.pool)
        services = Services(
            options=self._options,
            runner=PlanRunner(InnerStates(self._options.state, state.book)),
            pool=self.pool,
            workers=self.workers,
            budget=self.budget,
            blocks=self.blocks,
            stores=self._stores,
            origins=state.origins,
            book=state.book,
            board=self.board,
            dead_letters=self._letters,
            pause=self._closing.wait,
            root_seed=state.root_seed,
            cpus=self.cpus,
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
            readers = self._readers  # a reference to this object would be part of a cycle

            async def run_blocking(function: Callable[..., Any], *args: Any) -> Any:
                return value_of(await readers.submit(function, *args))

            self.stores[key] = StoreSet(options, run_blocking, self._options.run.shard_cache, self.budget.room_for)
        return self.stores[key]

    def storage_counters(self) -> dict[str, dict[str, float]]:
        """Return the request counters of each store, keyed by URL scheme. Safe from any thread."""
        return joined(stores.counters_by_store() for stores in list(self.stores.values()))

    def holders(self) -> dict[str, tuple[int, int]]:
        """Return the current and peak bytes of each memory category, including the shard cache."""
        held = None if self._options.run.shard_cache is None else self._options.run.shard_cache.held_nbytes()
        return dict(self.budget.holders) | ({} if held is None else {SHARD_CACHE: held})

    async def aclose(self) -> None:
        """Close all devices and stores while the event loop still runs.

        Raises:
            CloseError: A device or store could not be closed.
        """
        devices = (self._close(device) for device in self.devices.values())
        results = await asyncio.gather(
            *devices, *(stores.aclose() for stores in self.stores.values()), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, Exception)]
        if failures:
            raise CloseError("closing devices and stores failed", failures)

    async def _close(self, device: DeviceStage) -> None:
        """Close a device on a worker thread, because closing waits for copies and would block the event loop."""
        if self.workers.one_at_a_time:
            device.close()
            return
        with self.workers.thread("asd-device") as thread:
            value_of(await thread.submit(device.close))

    def close_executors(self, timeout_s: float) -> bool:
        """Close all executors before the event loop closes.

        Return False if a function still runs after ``timeout_s`` seconds.
        """
        self._closing.set()  # end the pauses between retries
        ended = self.workers.close(timeout_s)
        if self._letters is not None:  # after the workers, which write to these logs
            self._letters.close()
        return ended

    def look_after_memory(self) -> None:
        """Schedule a check of malloc's memory if one is due; do not wait for the check."""
        if self.trimmer.is_due():
            self.pool.submit(self.trimmer.look)

    def drop_blocks(self) -> None:
        """Return unused read blocks to the operating system."""
        self.blocks.close()
        trim()  # otherwise malloc keeps the memory that threads of closed loaders freed in their arenas
