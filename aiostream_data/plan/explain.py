"""Describe a plan before it runs: its stages, its files, and its maximum memory."""

from __future__ import annotations

from typing import Final

from aiostream_data.metrics.sizes import as_size
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.element_nbytes import most_nbytes
from aiostream_data.plan.operators import AUTO_BUFFER_NBYTES, Interleave, Prefetch, Shuffle, ToDevice
from aiostream_data.plan.rewrite import rewrite
from aiostream_data.plan.shown import count_of, elements_of, steps_of
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.plan.subprocess import own_nbytes, places_of, process_nbytes
from aiostream_data.plan.tables import reads_files
from aiostream_data.plan.windows import Bucket, Pack
from aiostream_data.plan.worker_share import place_of_sharing
from aiostream_data.safe_url import safe_url

WIDEST_CALL: Final = 60
"""Comments in the output are aligned. Calls longer than ``WIDEST_CALL`` characters do not affect the alignment."""


def explain(plan: Node, memory_limit: int, worst_case: str = "") -> str:
    """Describe how a plan will run, and its worst-case memory, without sending requests to stores.

    Args:
        memory_limit: Memory limit of the loader in bytes.
        worst_case: Line of text about the total memory of the loader; "" to omit the line.
    """
    running = rewrite(plan)
    lines = ["plan (sources first):"]
    lines += _tree(plan)
    lines += [f"elements: {count_of(cardinality(plan))}", f"each element: {elements_of(plan)}"]
    lines += _reads(running) + _chosen(running)
    lines += [worst_case] if worst_case else []
    lines += _of_the_limit(running, memory_limit)
    lines += _written(running)
    lines += _in_place(running, memory_limit)
    return "\n".join(lines)


def _tree(plan: Node) -> list[str]:
    rows = [("  " * (step.depth + 1) + step.node.call(), step.where) for step in steps_of(plan)]
    width = max((len(call) for call, _ in rows if len(call) <= WIDEST_CALL), default=0)
    return [f"{call:<{width}}  # {where}" if where else call for call, where in rows]


def _chosen(running: Node) -> list[str]:
    lines = []
    of_tables = {node.input for node in walk(running) if isinstance(node, Interleave) and reads_files(node.function)}
    for node in walk(running):
        if node in of_tables and getattr(node, "permuted", None) is not None:
            lines.append("shuffle: the files are opened in a random order")
        elif getattr(node, "permuted", None) is not None:
            lines.append(f"shuffle: {node.method} reads all its rows in a random order, so no buffer is needed")
        elif isinstance(node, ReadFiles) and node.spread:
            lines.append(f"shuffle: {node.method} reads {node.cycle_length} files at once, in a random order")
        elif isinstance(node, ReadFiles) and node.format.whole and node.shuffle_shards:
            lines.append(f"shuffle: {node.method} reads all files in a random order, so no buffer is needed")
        elif isinstance(node, Bucket) and node.max_cost is not None:
            lines.append(f"{node.method}: batches of {', '.join(map(str, node.batch_sizes))} rows, by bucket")
    return lines


def _reads(plan: Node) -> list[str]:
    patterns = [pattern for node in walk(plan) if isinstance(node, (ReadFiles, ListFiles)) for pattern in node.patterns]
    return [f"reads: {safe_url(pattern)}" for pattern in patterns]


def _of_the_limit(plan: Node, memory_limit: int) -> list[str]:
    held = [*_buffers(plan), *_processes(plan, memory_limit)]
    return [f"within the memory limit of {as_size(memory_limit)}:", *held] if held else []


def _buffers(plan: Node) -> list[str]:
    lines = []
    for node in walk(plan):
        if isinstance(node, Shuffle):
            lines.append(f"  {_shuffle(node)}")
        elif isinstance(node, Bucket):
            row = most_nbytes(node.input)
            size = "of unknown size" if row is None else f"of {row} bytes = {as_size(row * node.rows_held)}"
            lines.append(f"  {node.label} holds up to {node.rows_held:,} rows {size}")
        elif isinstance(node, Pack):
            lines.append(f"  pack fills up to {node.open_bins:,} rows of {node.max_length:,} values")
    return lines


def _shuffle(node: Shuffle) -> str:
    row = most_nbytes(node)
    rows = _buffer_rows(node, row)
    size = "of unknown size" if row is None else f"of {row} bytes = {as_size(row * rows)}"
    most = f", {as_size(AUTO_BUFFER_NBYTES)} at most" if node.growing and row is None else ""
    folder = node.spill_folder
    spills = "" if folder is None else f"; beyond an eighth of the limit, rows are written to a file in {folder}"
    return f"shuffle holds up to {rows:,} rows {size}{most}{spills}"


def _processes(plan: Node, memory_limit: int) -> list[str]:
    lines = []
    for node in places_of(plan):
        each = as_size(process_nbytes(plan, memory_limit))
        lines.append(f"  {node.processes} of in_subprocess may hold {each}" + (" each" * (node.workers > 1)))
        if node.workers > 1:
            place = place_of_sharing(node.input)
            works = "all of it" if place is node.input else f"all up to {place.method}"
            lines.append(f"    each process runs {works}, and its own part of the rest: elements in turn")
    return lines


def _buffer_rows(node: Shuffle, row_nbytes: int | None) -> int:
    if not node.growing or not row_nbytes:
        return node.buffer_rows
    return min(node.buffer_rows, AUTO_BUFFER_NBYTES // row_nbytes)


def _written(plan: Node) -> list[str]:
    if not isinstance(plan, ToDevice) or places_of(plan):
        return []
    last = plan.input.input if isinstance(plan.input, Prefetch) else plan.input
    if getattr(last, "parts_from", None) == 0:
        return ["slots: batches are assembled directly in the slots"]
    return [
        "slots: batches are assembled first, then copied into the slots; to_device() directly after batch() avoids "
        "this copy"
    ]


def _in_place(plan: Node, memory_limit: int) -> list[str]:
    if not isinstance(plan, ToDevice) or not places_of(plan):
        return []
    most = as_size(own_nbytes(plan, memory_limit))
    locked = "used" if plan.device == "cpu" else "page-locked"
    return [
        f"in place: large arrays are copied to {plan.device} directly from the memory of in_subprocess: at most "
        f"{most} of that memory is {locked} at once; the host slots hold the rest"
    ]
