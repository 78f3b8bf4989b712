"""Manage the subprocesses that run parts of a loader's plan.

Each ``in_subprocess()`` node has its own subprocesses (:mod:`.process_handle`). The subprocesses start at the node's
first run and stay for all epochs. The engine's event loop reads the chunks of the subprocesses (:mod:`.remote_run`).
The receiving process owns the memory of a chunk. Each run has a *window*: the maximum number of bytes that a subprocess
may send before the receiver acknowledges them.

Only the subprocess that sent a row can compute the position after this row. Therefore, the subprocess must live until
the engine has ended and the loader no longer needs positions; see :meth:`Hosting.engine_ended` and
:meth:`Hosting.let_go`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.one_time_event import Announced
from aiostream_data._engine.flow.stage_counters import Board
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.processes.job import Errand, caches_of, file_sources
from aiostream_data._engine.processes.namespace_map import Alike
from aiostream_data._engine.processes.process_handle import END_S, HostingProcess
from aiostream_data._engine.processes.server_counters import joined_counters
from aiostream_data._engine.resume.cached_epochs import CachedEpochs, cached_in_plan
from aiostream_data._engine.resume.lineage_writer import FIRST
from aiostream_data._engine.resume.origins import Origins
from aiostream_data._engine.resume.weight_changes import WeightChanges
from aiostream_data._engine.sources.listed_shards import ListedShards
from aiostream_data._engine.stages.caching.shared_caches import SharedCaches
from aiostream_data.errors import LoaderClosedError, PlanError
from aiostream_data.executors.child_process import Child, bury_all
from aiostream_data.metrics.window import Hosted
from aiostream_data.plan.base import Node, own_keys, walk
from aiostream_data.plan.mixing import Mix
from aiostream_data.plan.rewrite import batches_in_parts
from aiostream_data.plan.subprocess import InSubprocess, places_of, process_nbytes
from aiostream_data.plan.worker_share import check_shared, for_worker
from aiostream_data.transforms.batch_cuts import SHARED_NBYTES

WINDOW: Final = 16
"""Fraction (1/16) of the memory limit that the chunks in flight from all subprocesses may use."""

MAX_WINDOW_NBYTES: Final = 64 << 20
"""Maximum bytes in flight from one subprocess; a larger limit would use more memory without a benefit."""

CODES: Final = 1 << 20
"""Number of codes reserved for each subprocess. A code is the number of an object in a saved state."""


def window_nbytes(memory_limit: int, processes: int) -> int:
    """Return the maximum bytes in flight from each run of a subprocess, for a total of ``processes`` subprocesses."""
    return max(1, min(memory_limit // (WINDOW * processes), MAX_WINDOW_NBYTES))


class Hosting:
    """Subprocesses of all ``in_subprocess()`` nodes of one plan.

    Args:
        plan: Plan that the engine runs.
        options: Options of the engine.
        has_closed: Function that is called after the last subprocess has ended.

    Raises:
        PlanError: Several workers would each count and log the same failed records.
    """

    def __init__(
        self, plan: Node, options: EngineOptions, origins: Origins, budget: Budget, has_closed: Callable[[], None]
    ) -> None:
        self._options = options
        self._origins = origins
        self._budget = budget
        self._has_closed = has_closed
        self._nbytes = process_nbytes(plan, options.run.memory_limit)
        self._places: dict[InSubprocess, list[HostingProcess]] = {node: [] for node in places_of(plan)}
        for node in self._places:
            check_shared(node)
        self._starting = threading.Lock()
        self._lock = threading.RLock()  # a garbage collection while the lock is held may call let_go()
        self._engine_ended = self._let_go = False
        self.closed = Announced()
        self._children: list[Child] = []  # a separate list: the finalizer must not refer to self
        weakref.finalize(self, _end_in_background, self._children, os.getpid()).atexit = False

    @property
    def processes(self) -> list[HostingProcess]:
        """All started processes. Thread-safe."""
        with self._lock:
            return [process for of_place in self._places.values() for process in of_place]

    def processes_of(self, node: InSubprocess, context: RunContext, root_seed: int) -> list[HostingProcess]:
        """Return the subprocesses of a node.

        The first call starts the subprocesses and blocks, so do not call this method on the event loop.
        """
        with self._starting:
            if not self._places[node]:
                self._start(node, context, root_seed)
            return list(self._places[node])

    def _start(self, node: InSubprocess, context: RunContext, root_seed: int) -> None:
        alike = Alike(self._origins)
        places = list(self._places)
        before = sum(other.workers for other in places[: places.index(node)])
        with ExitStack() as started:
            processes = []
            for index in range(node.workers):
                errand = self._errand(node, index, before + index, context, root_seed)
                processes.append(HostingProcess(errand, f"asd-subprocess-{before + index}", alike, self._budget))
                started.callback(processes[-1].close)
            with self._lock:
                if self.closed.happened:
                    raise LoaderClosedError("the loader was closed while the processes of in_subprocess() started")
                self._places[node] = processes
                self._children += [process.child for process in processes]
                started.pop_all()

    def _errand(self, node: InSubprocess, index: int, number: int, context: RunContext, root_seed: int) -> Errand:
        options, services = self._options, context.services
        listed = services.features.of(ListedShards)
        resolved = tuple(listed.resolved.get(source) for source in file_sources(node.input))
        shared = tuple(cache.token in services.features.of(SharedCaches) for cache in caches_of(node.input))
        return Errand(
            plan=batches_in_parts(for_worker(node.input, index, node.workers), SHARED_NBYTES),
            keys=own_keys(node.input, context.keys),
            resolved=resolved,
            shard_numbers=listed.numbers,
            gained=listed.gained,
            shared_caches=shared,
            run=replace(options.run, memory_limit=self._nbytes),
            window_nbytes=window_nbytes(options.run.memory_limit, sum(place.workers for place in self._places)),
            first_code=FIRST + CODES * (number + 1),
            root_seed=root_seed,
            book=options.book,
            weights=options.weights,
            caches=cached_in_plan(services.features.of(CachedEpochs)),
        )

    # -- requests to processes

    def runs(self, mixture: Mix) -> bool:
        """Return True if a mixture runs in a subprocess."""
        return any(mixture in walk(node.input) for node in self._places)

    def set_weights(self, mixture: Mix, key: int, weights: Any, from_row: int | None) -> int:
        """Change the weights of a mixture that runs in a subprocess of this loader.

        Return the row from which the new weights apply.

        Raises:
            PlanError: The mixture runs in several processes, or its process has not started.
        """
        node, processes = next(item for item in self._places.items() if mixture in walk(item[0].input))
        if node.workers > 1:
            raise PlanError("cannot change the weights of a mixture that runs in several workers. Use workers=1.")
        if not processes:
            raise PlanError(
                "cannot change the weights: the process of the mixture has not started. "
                "Try again after the first element."
            )
        row: int = processes[0].ask("set_weights", key, weights, from_row)
        return row

    def tell_weights(self, weights: WeightChanges, keys: Mapping[Node, int]) -> None:
        """Add all weight changes that the subprocesses made to ``weights``."""
        for node, processes in list(self._places.items()):
            mixtures = mixtures_of(node, keys)
            if processes and mixtures:
                weights.known_elsewhere(mixtures, processes[0].ask("weights"))

    def show(self, board: Board, numbers: Mapping[Node, int]) -> None:
        """Copy the stage counters of the subprocesses to ``board``, the counters of all stages.

        If a subprocess does not answer, use its last report.
        """
        for node, processes in list(self._places.items()):
            prefix = f"{numbers[node]}/"
            for key, counters in joined_counters([process.stats()["stages"] for process in processes], prefix):
                board.put(key, counters)

    def clocks(self, numbers: Mapping[Node, int]) -> dict[str, Hosted]:
        """Return the run times that each node's subprocesses last reported.

        Each key is the prefix of a node's stages.
        """
        return {f"{numbers[node]}/": _clocks(processes) for node, processes in list(self._places.items()) if processes}

    @property
    def last_stats(self) -> list[Mapping[str, Any]]:
        """Last reported statistics of each subprocess."""
        return [process.last_stats for process in self.processes]

    def hurry(self) -> None:
        """Limit the total wait for answers of all subprocesses to ``END_S`` seconds from now."""
        deadline = monotonic() + END_S
        for process in self.processes:
            process.hurry(deadline)

    # -- shutdown

    def engine_ended(self) -> None:
        """Record that the engine has ended, and stop the subprocesses if the loader no longer needs them.

        Call this method on the engine's thread.
        """
        with self._lock:
            self._engine_ended = True
            close = self._let_go or not self.processes
        if close:
            self._close()

    def let_go(self) -> None:
        """Record that the loader no longer needs the subprocesses.

        This method never blocks, so finalizers may call it.
        """
        with self._lock:
            close = self._engine_ended and not self._let_go and not self.closed.happened
            self._let_go = True
        if close:
            threading.Thread(target=self._close, name="asd-end-processes", daemon=True).start()

    def wait_closed(self, timeout_s: float) -> None:
        """Wait until all subprocesses have ended.

        Do not wait if the engine still runs or the loader needs the subprocesses.
        """
        if self._engine_ended and self._let_go:
            self.closed.wait(timeout_s)

    def _close(self) -> None:
        processes = self.processes
        for process in processes:
            process.end_soon()
        bury_all([process.child for process in processes], END_S)
        for process in processes:
            process.close(0.0)
        self._children.clear()
        self._has_closed()
        self.closed.announce()


def _clocks(processes: Sequence[HostingProcess]) -> Hosted:
    seconds, cpu_s, loop_cpu_s = (
        sum(process.last_stats[name] for process in processes) for name in ("seconds", "cpu_s", "loop_cpu_s")
    )
    return Hosted(seconds=seconds / len(processes), cpu_s=cpu_s, loop_cpu_s=loop_cpu_s, processes=len(processes))


def _end_in_background(children: list[Child], pid: int) -> None:
    """Stop the subprocesses when their ``Hosting`` is garbage-collected.

    Do nothing in a fork of the process that started them.
    """
    if children and os.getpid() == pid:
        threading.Thread(target=_bury, args=(children,), name="asd-end-processes", daemon=True).start()


def _bury(children: list[Child]) -> None:
    for child in children:
        child.exchange.close()
    bury_all(children, END_S)


def mixtures_of(node: InSubprocess, keys: Mapping[Node, int]) -> frozenset[int]:
    """Return the keys of the mixtures that run in the subprocesses of a node."""
    return frozenset(keys[lower] for lower in walk(node.input) if isinstance(lower, Mix))
