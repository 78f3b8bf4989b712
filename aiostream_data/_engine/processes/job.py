"""Message that starts a subprocess: the plan it runs and all inputs of the run."""

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
    """Plan of a subprocess and all inputs of its run. Picklable if the plan is.

    Fields that are not listed here are those of :class:`.EngineOptions`.

    Attributes:
        plan: Plan that the process runs.
        keys: Numbers of the plan's nodes in the whole plan, inputs first. Nodes that do not affect rows have no number.
        resolved: Listed shards of each file source, in order; None for sources that were not listed.
        shard_numbers: Shard numbers of earlier shard lists; see :class:`.ListedShards`.
        gained: Keys of nodes with new shards or inputs; see :class:`.ListedShards`.
        shared_caches: For each cache, in order, True if several nodes of the whole plan read it.
        run: Options of the run, with the process's share of the memory limit.
        window_nbytes: Maximum bytes in flight to the loader's process, for each run.
        first_code: First number that the process uses for objects in states.
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
    """Return the file sources of a plan, in order."""
    return [node for node in walk(plan) if isinstance(node, (ListFiles, ReadFiles))]


def caches_of(plan: Node) -> list[Cache]:
    """Return the caches of a plan, in order."""
    return [node for node in walk(plan) if isinstance(node, Cache)]
