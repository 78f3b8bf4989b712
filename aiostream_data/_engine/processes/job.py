"""Message that starts a subprocess: the plan that the subprocess runs, and all inputs of the run."""

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
    """Plan that a subprocess runs, and all inputs of the run. This message can be pickled if the plan can be pickled.

    For fields that are not listed here, see :class:`.EngineOptions`.

    Attributes:
        plan: Plan that the subprocess runs.
        keys: For each node of this plan, the number of the node in the complete plan; inputs come first. Nodes that do
            not affect rows have no number of their own.
        resolved: Listed shards of each file source, in order; None for sources that were not listed.
        shard_numbers: Shard numbers from earlier shard lists; see :class:`.ListedShards`.
        gained: Keys of nodes that have new shards or inputs; see :class:`.ListedShards`.
        shared_caches: For each cache, in order, True if several nodes of the complete plan read the cache.
        run: Options of the run, with the memory limit reduced to the subprocess's share.
        window_nbytes: Maximum number of bytes in flight to the loader's process, for each run.
        first_code: First of the numbers that the subprocess may assign to objects in saved states.
    """

    plan: Node
    keys: tuple[int, ...]
    resolved: tuple[Sequence[ShardRef] | None, ...]
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
