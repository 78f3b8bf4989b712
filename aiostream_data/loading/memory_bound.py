"""The most memory that a loader takes, told before anything is read.

How this works. Whatever holds rows is charged to one budget, the memory limit; so that part of the bound is the limit,
or less where the plan alone shows that all its rows together take less. Beside rows there are costs that are known:
an interpreter for each process, blocks that wait to be used again, what the engine itself is. The C library keeps
some of what was freed; how much is measured, not proven, and what is more is given back while a loader runs
(:mod:`aiostream_data._engine.memory.trimming`). Memory that user functions keep is unknown, and the bound says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aiostream_data._engine.calls.cpu_count import cpu_count
from aiostream_data._engine.compile import fused_below
from aiostream_data._engine.diagnosis.watchdog import LOGGER
from aiostream_data._engine.memory.trimming import KEPT_SHARE
from aiostream_data._engine.processes.processes import window_nbytes
from aiostream_data._engine.resources import idle_blocks_nbytes
from aiostream_data.executors.process import idle_nbytes
from aiostream_data.loading.alone_bound import LARGE_SHARE, alone_parts, largest_record_nbytes
from aiostream_data.loading.device_bound import DeviceBound, device_facts
from aiostream_data.loading.part import LoaderPart
from aiostream_data.metrics.sizes import as_size
from aiostream_data.plan import operators as op
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.element_nbytes import all_rows_nbytes, most_nbytes, unknown_of
from aiostream_data.plan.likely_nbytes import ASSUMED_NBYTES, is_assumed, likely_nbytes
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.sources import ReadFiles, TensorSlices
from aiostream_data.plan.subprocess import InSubprocess, places_of, process_nbytes
from aiostream_data.plan.validate import reaches_processes
from aiostream_data.plan.windows import Bucket, Pack
from aiostream_data.storage.cache.options import ShardCache

ENGINE_NBYTES: Final = 24 << 20
"""Of an engine without rows: its modules, event loop, threads and connections."""

PROCESS_NBYTES: Final = 32 << 20
"""Of an interpreter of its own, with NumPy."""

INTERPRETER_NBYTES: Final = 16 << 20
"""Of a further interpreter in the same process."""

BESIDE_BUFFERS: Final = 4
"""A buffer may fill the limit; what is on its way beside it then takes at most this fraction (1/4) of it."""

PLACES: Final = 6
"""Elements on their way to the consumer beside those that wait for him: where each step of it may hold one."""


@dataclass(frozen=True, kw_only=True, repr=False)
class MemoryBound(DeviceBound):
    """The most memory that a loader takes, of all its processes together, as far as the plan tells.

    What is on a device, and what of the host's memory is page-locked for it, :class:`.device_bound.DeviceBound` says.

    Attributes:
        limit: The memory limit, in bytes.
        rows: Bytes of everything that is charged to it: ``stats().memory.peak`` stays within this.
        parts: Host memory by kind, rows first.
        likely: Bytes of host memory that it is likely to take at most, estimated from the plan.
        assumed_nbytes: Of a row whose size the plan does not tell, for ``likely``; 0 where it tells all sizes.
        unknown: Why rows are only bounded by the limit, if the plan does not tell what they take.
        alone: What may pass over the limit alone, if files have records or windows that are so large.
        not_counted: What the bound says nothing about, each a phrase.
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
        """Bytes of host memory, of all processes together, unless something passes alone."""
        return sum(part.nbytes for part in self.parts)

    @property
    def most_nbytes(self) -> int:
        """Bytes of host memory with the largest record and window that such files may have."""
        return self.host_nbytes + sum(part.nbytes for part in self.alone)

    @property
    def sentence(self) -> str:
        """One line: host and device."""
        return f"worst case: {as_size(self.host_nbytes)} host" + self.on_device()

    @property
    def likely_sentence(self) -> str:
        """One line: what is likely, and what that assumes."""
        size = as_size(self.assumed_nbytes)
        assumed = f", if rows of unknown size take {size} each" if self.assumed_nbytes else ""
        return f"likely peak: {as_size(self.likely)} host{assumed}"

    def __str__(self) -> str:
        sizes = [as_size(part.nbytes) for part in self.parts]
        width = max(map(len, sizes))
        lines = [f"  {size:>{width}}  {part.what}" for size, part in zip(sizes, self.parts, strict=True)]
        lines += [f"  the limit bounds the rows: {self.unknown}"] if self.unknown else []
        lines += [f"  up to {as_size(part.nbytes)} more: {part.what}" for part in self.alone]
        lines += [f"  {each}" for each in (*self.slot_lines(), *(f"not counted: {each}" for each in self.not_counted))]
        return "\n".join([self.sentence, self.likely_sentence, *lines])

    def __repr__(self) -> str:
        return f"<MemoryBound {self.sentence}; {self.likely_sentence}>"


def memory_bound(plan: Node, memory_limit: int, shard_cache: ShardCache | None = None) -> MemoryBound:
    """Return the most memory that a plan takes when it is opened with a memory limit in bytes. Reads nothing."""
    running = rewrite(plan)
    rows = _rows_nbytes(running, memory_limit)
    parts = tuple(part for part in _parts(running, memory_limit, rows, shard_cache) if part.nbytes)
    unlikely = max(0, rows - likely_nbytes(running, memory_limit)) * (1 + KEPT_SHARE)
    return MemoryBound(
        limit=memory_limit,
        rows=rows,
        parts=parts,
        likely=sum(part.nbytes for part in parts) - int(unlikely) - _idle_nbytes(running, memory_limit),
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


def _may_fill(node: Node, memory_limit: int) -> bool:
    """Return True if a node may keep so much that little of the limit is left for the others."""
    if isinstance(node, op.Shuffle):
        row = most_nbytes(node)
        return not node.spill and (row is None or 2 * row * node.buffer_rows > memory_limit)
    return isinstance(node, (op.Cache, Bucket, Pack))


def _large_nbytes(plan: Node, memory_limit: int) -> int:
    """Return what large elements may take over the limit where the plan tells how large they are."""
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
    yield LoaderPart(nbytes=int(rows * KEPT_SHARE), what="freed memory that the C library's allocator keeps")
    yield LoaderPart(nbytes=ENGINE_NBYTES * (1 + hosts), what="the engine" + (" of every process" if hosts else ""))
    yield LoaderPart(nbytes=PROCESS_NBYTES * processes, what=f"{processes} worker processes with Python and NumPy")
    yield LoaderPart(nbytes=INTERPRETER_NBYTES * interpreters, what=f"{interpreters} more interpreters")
    yield LoaderPart(nbytes=_cast_nbytes(plan), what="batches of images that were cast, until you have them")
    yield LoaderPart(nbytes=_idle_nbytes(plan, memory_limit), what="blocks of memory that wait to be used again")
    yield _cached(plan, shard_cache)
    yield LoaderPart(nbytes=_copied_nbytes(plan), what="arrays of from_tensor_slices, once in every process")


def _cast_nbytes(plan: Node) -> int:
    """Return the host memory of batches that a transform makes larger: as many are there at once as there are slots."""
    if not isinstance(plan, op.ToDevice) or plan.transform is None or plan.device not in ("cpu", "auto"):
        return 0
    return plan.depth * (most_nbytes(plan) or 0) * plan.transform.itemsize


def _beside_the_limit(rows: int, memory_limit: int) -> str:
    if rows < memory_limit:
        return ""
    return " (the memory limit)" if rows == memory_limit else f" (the memory limit, and {as_size(rows - memory_limit)})"


def _runs_elsewhere(plan: Node) -> Iterator[op.Call]:
    """Yield one node for each executor that is not of this process, or may become so."""
    fused = {lower for node in walk(plan) if isinstance(node, op.Call) for lower in fused_below(node)}
    for node in walk(plan):
        if isinstance(node, op.Call) and node not in fused and _kind_of(node) is not None:
            yield node


def _kind_of(node: op.Call) -> str | None:
    if node.is_coroutine:
        return None
    if node.executor == "auto":
        functions = [each.function_called for each in (node, *fused_below(node))]
        return "process" if all(map(reaches_processes, functions)) else None
    return node.executor if node.executor in ("process", "interpreter") else None


def _workers_of(node: op.Call, plan: Node) -> tuple[str, int]:
    """Return where a node's function runs, and in how many such places of all processes together."""
    hosts = sum(place.workers for place in places_of(plan) if any(lower is node for lower in walk(place)))
    concurrency = node.concurrency if isinstance(node.concurrency, int) and node.executor != "auto" else cpu_count()
    return _kind_of(node) or "", concurrency * max(1, hosts)


def _idle_nbytes(plan: Node, memory_limit: int) -> int:
    """Return what is kept to be read into, or sent in, again."""
    places = places_of(plan)
    hosts = sum(place.workers for place in places)
    each = process_nbytes(plan, memory_limit) if places else memory_limit
    idle = 2 * hosts * window_nbytes(memory_limit, hosts) if hosts else 0
    if any(isinstance(node, ReadFiles) for node in walk(plan)):
        idle += max(1, hosts) * idle_blocks_nbytes(each)
    for node in _runs_elsewhere(plan):
        kind, workers = _workers_of(node, plan)
        if kind == "process":
            idle += 2 * workers * idle_nbytes(each, max(1, workers // max(1, hosts)))
    return idle


def _cached(plan: Node, shard_cache: ShardCache | None) -> LoaderPart:
    """Return what a shard cache in memory takes: each process of in_subprocess() that reads files has its own."""
    each = 0 if shard_cache is None else shard_cache.worst_nbytes()
    reading = [place for place in places_of(plan) if any(isinstance(node, ReadFiles) for node in walk(place))]
    caches = sum(place.workers for place in reading) + _reads_here(plan)
    return LoaderPart(nbytes=each * caches, what="the shard cache in memory" + (", one per process" if reading else ""))


def _reads_here(node: Node) -> bool:
    """Return True if files are read by this process, and not only by those of in_subprocess()."""
    if isinstance(node, InSubprocess):
        return False
    return isinstance(node, ReadFiles) or any(map(_reads_here, node.inputs))


def _copied_nbytes(plan: Node) -> int:
    """Return what arrays of the program take that every process of in_subprocess() has a copy of."""
    return sum(place.workers * _sources_nbytes(place) for place in places_of(plan))


def _sources_nbytes(place: InSubprocess) -> int:
    slices = [node for node in walk(place) if isinstance(node, TensorSlices)]
    return sum(leaf.nbytes for node in slices for leaf in node.leaves)


def _not_counted(plan: Node, memory_limit: int) -> Iterator[str]:
    """Yield what the bound says nothing about."""
    nodes = list(walk(plan))
    large = as_size(memory_limit // LARGE_SHARE)
    if most_nbytes(plan) is None and len(nodes) > 1:
        yield f"a batch, result or group of rows of more than {large}, which passes over the limit, four times at most"
    if any(isinstance(node, ReadFiles) and largest_record_nbytes(node) is None for node in nodes):
        yield f"a record of more than {large}, since the format does not declare the largest"
    if any(isinstance(node, (op.Call, op.Interleave)) for node in nodes):
        yield "what functions keep for themselves, and what they import"
    if any(isinstance(node, op.Interleave) for node in nodes):
        yield "processes and files of the data sets that functions make"
    if any(isinstance(node, (op.Shuffle, Bucket, Pack)) for node in nodes):
        yield "opening with a state: rows that buffers held are there up to three times more until the first element"
    if isinstance(plan, op.ToDevice) and plan.device != "cpu":
        yield "what CUDA itself takes"
    yield "elements that you keep"


def log_memory_bound(plan: Node, memory_limit: int, shard_cache: ShardCache | None = None) -> None:
    """Log the bound of a plan that is about to be opened, at level INFO; free where nobody listens."""
    logger = logging.getLogger(LOGGER)
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", memory_bound(plan, memory_limit, shard_cache))
