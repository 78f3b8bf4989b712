"""Worst-case memory of a loader, computed before the loader reads any data.

Every row counts against the memory limit. The bound for rows is therefore the limit, or less if the plan shows that all
rows together need less memory. The bound also includes fixed costs: one interpreter per process, idle blocks kept for
reuse, and the engine itself. The bound also includes freed memory that the C library does not return to the system.
During a run, the module :mod:`aiostream_data._engine.memory.trimming` returns freed memory above this amount to the
system. Because trimming runs periodically, the amount is a measured value, not a proven maximum. The bound cannot
include memory that user functions keep, and lists this memory as not counted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aiostream_data._engine.calls.cpu_count import cpu_count
from aiostream_data._engine.compile import fused_below
from aiostream_data._engine.diagnosis.watchdog import LOGGER
from aiostream_data._engine.memory.trimming import KEPT_SHARE, kept_nbytes
from aiostream_data._engine.processes.process_manager import window_nbytes
from aiostream_data._engine.resources import idle_blocks_nbytes
from aiostream_data.executors.process import idle_nbytes
from aiostream_data.formats.base import holds_one_record
from aiostream_data.loading.bound_item import LoaderPart
from aiostream_data.loading.device_bound import DeviceBound, device_facts
from aiostream_data.loading.large_record_bound import LARGE_SHARE, alone_parts, largest_record_nbytes
from aiostream_data.metrics.sizes import as_size
from aiostream_data.plan import operators as op
from aiostream_data.plan.aggregate import Aggregate
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.element_nbytes import all_rows_nbytes, most_nbytes, unknown_of
from aiostream_data.plan.keyed import GroupByReducer, KeyedWindows
from aiostream_data.plan.likely_nbytes import ASSUMED_NBYTES, is_assumed, likely_nbytes
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.scan import Scan
from aiostream_data.plan.sources import ReadFiles, TensorSlices
from aiostream_data.plan.subprocess import InSubprocess, places_of, process_nbytes
from aiostream_data.plan.validate import reaches_processes
from aiostream_data.plan.windows import Bucket, Pack
from aiostream_data.storage.cache.options import ShardCache

ENGINE_NBYTES: Final = 24 << 20
"""Assumed memory in bytes of an engine without rows: its modules, event loop, threads and connections."""

PROCESS_NBYTES: Final = 32 << 20
"""Assumed memory in bytes of a worker process: a Python interpreter with NumPy."""

INTERPRETER_NBYTES: Final = 16 << 20
"""Assumed memory in bytes of an additional interpreter in the same process."""

BESIDE_BUFFERS: Final = 4
"""If one buffer fills the memory limit, data outside the buffer may exceed the limit by up to 1/4 of the limit."""

PLACES: Final = 6
"""Number of delivery steps. Each delivery step may hold one element, in addition to the elements in the queue for the
consumer."""


@dataclass(frozen=True, kw_only=True, repr=False)
class MemoryBound(DeviceBound):
    """Maximum memory of a loader and its processes, to the extent that the plan determines the maximum.

    :class:`.device_bound.DeviceBound` describes the device memory and the page-locked host memory.

    Attributes:
        limit: Memory limit in bytes.
        rows: Maximum number of bytes counted against the limit; ``stats().memory.peak`` never exceeds this value.
        parts: Host memory by kind; rows come first.
        likely: Estimated peak of host memory in bytes.
        assumed_nbytes: Row size assumed for ``likely`` if the plan does not determine the row size; otherwise 0.
        unknown: Reason why the plan does not determine the size of the rows; None if the plan determines the size.
        alone: Items that may exceed the limit if files contain very large records or zstd windows.
        not_counted: Descriptions of memory that the bound excludes.
    """

    limit: int
    rows: int
    parts: tuple[LoaderPart, ...]
    likely: int = 0
    assumed_nbytes: int = 0
    unknown: str | None = None
    alone: tuple[LoaderPart, ...] = ()
    not_counted: tuple[str, ...] = ()

    @property
    def host_nbytes(self) -> int:
        """Maximum host memory in bytes over all processes, without the items that may exceed the limit."""
        return sum(part.nbytes for part in self.parts)

    @property
    def most_nbytes(self) -> int:
        """Maximum host memory in bytes, including the largest possible record and zstd window."""
        return self.host_nbytes + sum(part.nbytes for part in self.alone)

    @property
    def sentence(self) -> str:
        """One-line summary of the host and device memory."""
        return f"worst case: {as_size(self.host_nbytes)} host" + self.on_device()

    @property
    def likely_sentence(self) -> str:
        """One-line summary of the estimated peak memory and the assumption behind the estimate."""
        size = as_size(self.assumed_nbytes)
        assumed = f", if rows of unknown size take {size} each" if self.assumed_nbytes else ""
        return f"likely peak: {as_size(self.likely)} host{assumed}"

    def __str__(self) -> str:
        sizes = [as_size(part.nbytes) for part in self.parts]
        width = max(map(len, sizes))
        lines = [f"  {size:>{width}}  {part.what}" for size, part in zip(sizes, self.parts, strict=True)]
        lines += [f"  only the limit bounds the rows: {self.unknown}"] if self.unknown else []
        lines += [f"  up to {as_size(part.nbytes)} more: {part.what}" for part in self.alone]
        lines += [f"  {each}" for each in (*self.slot_lines(), *(f"not counted: {each}" for each in self.not_counted))]
        return "\n".join([self.sentence, self.likely_sentence, *lines])

    def __repr__(self) -> str:
        return f"<MemoryBound {self.sentence}; {self.likely_sentence}>"


def memory_bound(plan: Node, memory_limit: int, shard_cache: ShardCache | None = None) -> MemoryBound:
    """Return the maximum memory of a loader for a plan and a memory limit in bytes. Does no I/O."""
    running = rewrite(plan)
    rows = _rows_nbytes(running, memory_limit)
    parts = tuple(part for part in _parts(running, memory_limit, rows, shard_cache) if part.nbytes)
    return MemoryBound(
        limit=memory_limit,
        rows=rows,
        parts=parts,
        likely=sum(part.nbytes for part in parts) - _unlikely_nbytes(running, memory_limit, rows),
        assumed_nbytes=ASSUMED_NBYTES if is_assumed(running) else 0,
        unknown=unknown_of(plan),
        alone=tuple(alone_parts(running, memory_limit)),
        not_counted=tuple(_not_counted(running, memory_limit)),
        **device_facts(running, memory_limit),
    )


def _rows_nbytes(plan: Node, memory_limit: int) -> int:
    large = _large_nbytes(plan, memory_limit)
    everything = all_rows_nbytes(plan)
    engines = 1 + sum(place.workers for place in places_of(plan))
    beside = memory_limit // BESIDE_BUFFERS if any(_may_fill(node, memory_limit) for node in walk(plan)) else 0
    if everything is None:
        return memory_limit + beside + large
    return min(memory_limit + beside, engines * everything) + large


def _unlikely_nbytes(plan: Node, memory_limit: int, rows: int) -> int:
    """Return the bytes of the maximum that a typical run does not need."""
    likely = min(rows, likely_nbytes(plan, memory_limit))
    freed = _freed_nbytes(plan, memory_limit, rows)
    typical = min(freed, int(likely * KEPT_SHARE))
    return rows - likely + freed - typical + _idle_nbytes(plan, memory_limit)


def _freed_nbytes(plan: Node, memory_limit: int, rows: int) -> int:
    """Return the bytes of freed memory that malloc may keep, in all processes together.

    Malloc cannot keep more memory than the rows needed.
    """
    hosts = sum(place.workers for place in places_of(plan))
    elsewhere = hosts * kept_nbytes(process_nbytes(plan, memory_limit))
    return min(rows, kept_nbytes(max(rows, memory_limit)) + elsewhere)


def _may_fill(node: Node, memory_limit: int) -> bool:
    """Return True if a node may use nearly the whole limit for its buffer."""
    if isinstance(node, op.Shuffle):
        row = most_nbytes(node)
        return not node.spill and (row is None or 2 * row * node.buffer_rows > memory_limit)
    return isinstance(node, (op.Cache, Bucket, Pack, KeyedWindows, GroupByReducer))


def _large_nbytes(plan: Node, memory_limit: int) -> int:
    """Return the bytes by which large elements may exceed the limit; 0 if elements are small or of unknown size."""
    element = most_nbytes(plan) or 0
    slots = 2 * plan.depth * element if isinstance(plan, op.ToDevice) else 0
    last = plan.input if isinstance(plan, op.ToDevice) else plan
    waiting = last.buffer_size if isinstance(last, op.Prefetch) and isinstance(last.buffer_size, int) else 1
    is_large = element * LARGE_SHARE > memory_limit
    return slots + (waiting + PLACES) * element if is_large else 0


def _parts(plan: Node, memory_limit: int, rows: int, shard_cache: ShardCache | None) -> Iterator[LoaderPart]:
    hosts = sum(place.workers for place in places_of(plan))
    workers = [worker for node in _runs_elsewhere(plan) for worker in [_workers_of(node, plan)]]
    processes = hosts + sum(number for kind, number in workers if kind == "process")
    interpreters = sum(number for kind, number in workers if kind == "interpreter")
    yield LoaderPart(nbytes=rows, what="rows, in queues and buffers" + _beside_the_limit(rows, memory_limit))
    freed = _freed_nbytes(plan, memory_limit, rows)
    yield LoaderPart(nbytes=freed, what="freed memory that the C library's allocator keeps")
    yield LoaderPart(nbytes=ENGINE_NBYTES * (1 + hosts), what="the engine" + (" of every process" if hosts else ""))
    yield LoaderPart(nbytes=PROCESS_NBYTES * processes, what=f"{processes} worker processes with Python and NumPy")
    yield LoaderPart(nbytes=INTERPRETER_NBYTES * interpreters, what=f"{interpreters} additional interpreters")
    yield LoaderPart(nbytes=_cast_nbytes(plan), what="batches of cast images, until you receive them")
    yield LoaderPart(nbytes=_idle_nbytes(plan, memory_limit), what="idle blocks of memory, kept for reuse")
    yield _cached(plan, shard_cache)
    yield LoaderPart(nbytes=_copied_nbytes(plan), what="arrays of from_tensor_slices, one copy per process")


def _cast_nbytes(plan: Node) -> int:
    """Return the host memory in bytes of batches enlarged by an image transform.

    One enlarged batch per slot can exist at once.
    """
    if not isinstance(plan, op.ToDevice) or plan.transform is None or plan.device not in ("cpu", "auto"):
        return 0
    return plan.depth * (most_nbytes(plan) or 0) * plan.transform.itemsize


def _beside_the_limit(rows: int, memory_limit: int) -> str:
    if rows < memory_limit:
        return ""
    return " (the memory limit)" if rows == memory_limit else f" (the memory limit plus {as_size(rows - memory_limit)})"


def _runs_elsewhere(plan: Node) -> Iterator[op.Call | op.Interleave]:
    """Yield one node for each executor that runs functions in another process or interpreter, or may switch to one."""
    fused = {lower for node in walk(plan) if isinstance(node, op.Call) for lower in fused_below(node)}
    for node in walk(plan):
        if isinstance(node, (op.Call, op.Interleave)) and node not in fused and _kind_of(node) is not None:
            yield node


def _kind_of(node: op.Call | op.Interleave) -> str | None:
    if isinstance(node, op.Interleave):
        return "process" if node.executor == "process" else None
    if node.is_coroutine:
        return None
    if node.executor == "auto":
        functions = [each.function_called for each in (node, *fused_below(node))]
        return "process" if all(map(reaches_processes, functions)) else None
    return node.executor if node.executor in ("process", "interpreter") else None


def _workers_of(node: op.Call | op.Interleave, plan: Node) -> tuple[str, int]:
    """Return the executor type of a node's function, and the total number of its workers across all processes."""
    hosts = sum(place.workers for place in places_of(plan) if any(lower is node for lower in walk(place)))
    concurrency = node.concurrency if isinstance(node.concurrency, int) and node.executor != "auto" else cpu_count()
    return _kind_of(node) or "", concurrency * max(1, hosts)


def _idle_nbytes(plan: Node, memory_limit: int) -> int:
    """Return the bytes of idle memory that file reading and transfers between processes keep for reuse."""
    places = places_of(plan)
    hosts = sum(place.workers for place in places)
    each = process_nbytes(plan, memory_limit) if places else memory_limit
    idle = 2 * hosts * window_nbytes(memory_limit, hosts) if hosts else 0
    reading = [node for node in walk(plan) if isinstance(node, ReadFiles)]
    pools = bool(reading) + any(holds_one_record(node.format) for node in reading)
    idle += pools * max(1, hosts) * idle_blocks_nbytes(each)
    for node in _runs_elsewhere(plan):
        kind, workers = _workers_of(node, plan)
        if kind == "process":
            idle += 2 * workers * idle_nbytes(each, max(1, workers // max(1, hosts)))
    return idle


def _cached(plan: Node, shard_cache: ShardCache | None) -> LoaderPart:
    """Return the memory of all shard caches.

    Each process of in_subprocess() that reads files has its own shard cache.
    """
    each = 0 if shard_cache is None else shard_cache.worst_nbytes()
    reading = [place for place in places_of(plan) if any(isinstance(node, ReadFiles) for node in walk(place))]
    caches = sum(place.workers for place in reading) + _reads_here(plan)
    return LoaderPart(nbytes=each * caches, what="the shard cache in memory" + (", one per process" if reading else ""))


def _reads_here(node: Node) -> bool:
    """Return True if this process reads files itself, instead of leaving all reading to in_subprocess() processes."""
    if isinstance(node, InSubprocess):
        return False
    return isinstance(node, ReadFiles) or any(map(_reads_here, node.inputs))


def _copied_nbytes(plan: Node) -> int:
    """Return the total size of the copies of from_tensor_slices() arrays in all processes of in_subprocess()."""
    return sum(place.workers * _sources_nbytes(place) for place in places_of(plan))


def _sources_nbytes(place: InSubprocess) -> int:
    slices = [node for node in walk(place) if isinstance(node, TensorSlices)]
    return sum(leaf.nbytes for node in slices for leaf in node.leaves)


def _not_counted(plan: Node, memory_limit: int) -> Iterator[str]:
    """Yield descriptions of memory that the bound excludes."""
    nodes = list(walk(plan))
    large = as_size(memory_limit // LARGE_SHARE)
    if most_nbytes(plan) is None and len(nodes) > 1:
        yield f"a batch, result or group of rows larger than {large}: up to four copies of it may exceed the limit"
    if any(isinstance(node, ReadFiles) and largest_record_nbytes(node) is None for node in nodes):
        yield f"a record larger than {large}, because the format declares no maximum size"
    if any(isinstance(node, (op.Call, op.Interleave, Scan, Aggregate)) for node in nodes):
        yield "memory that user functions keep, and modules that they import"
    if any(isinstance(node, op.Interleave) for node in nodes):
        yield "processes and files of datasets that user functions create"
    if any(isinstance(node, (op.Shuffle, Bucket, Pack, KeyedWindows)) for node in nodes):
        yield "resuming from a state: up to three additional copies of the buffered rows, until the first element"
    if isinstance(plan, op.ToDevice) and plan.device != "cpu":
        yield "memory that CUDA itself allocates"
    yield "elements that you keep"


def log_memory_bound(plan: Node, memory_limit: int, shard_cache: ShardCache | None = None) -> None:
    """Log the memory bound of a plan at level INFO. If level INFO is disabled, do not compute the bound."""
    logger = logging.getLogger(LOGGER)
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", memory_bound(plan, memory_limit, shard_cache))
