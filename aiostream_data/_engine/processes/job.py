"""What a process is told that hosts part of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiostream_data._engine.resume.shard_numbers import ShardNumbers
from aiostream_data._engine.run_options import RunOptions
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Cache
from aiostream_data.plan.sources import ListFiles, ReadFiles
from aiostream_data.rows.records import ShardRef


@dataclass(frozen=True, kw_only=True)
class Errand:
    """A plan, and all that its run depends on. Picklable when the plan is.

    Attributes:
        plan: What the process runs.
        keys: Numbers of its nodes in the whole plan, without those that decide nothing about rows; inputs first.
        resolved: What was found for the patterns of its sources, in order; None where nothing was asked.
        shard_numbers, gained: Of these sources, as in :class:`~aiostream_data._engine.flow.context.Services`.
        shared_caches: Which of its caches, in order, are read in several places of the whole plan.
        run: Options of the run, with the process's share of the memory limit.
        window_nbytes: Bytes that may be on their way to the other process, for each run.
        first_code: From where on the process numbers what states refer to.
        root_seed, book, weights, caches: As in :class:`.EngineOptions`.
    """

    plan: Node
    keys: tuple[int, ...]
    resolved: tuple[list[ShardRef] | None, ...]
    shard_numbers: dict[int, Sequence[ShardNumbers]]
    gained: set[int]
    shared_caches: tuple[bool, ...]
    run: RunOptions
    window_nbytes: int
    first_code: int
    root_seed: int
    book: Any
    weights: Any
    caches: Any


def file_sources(plan: Node) -> list[ListFiles | ReadFiles]:
    """Return the sources that a plan reads from a store, in order."""
    return [node for node in walk(plan) if isinstance(node, (ListFiles, ReadFiles))]


def caches_of(plan: Node) -> list[Cache]:
    """Return the caches of a plan, in order."""
    return [node for node in walk(plan) if isinstance(node, Cache)]
