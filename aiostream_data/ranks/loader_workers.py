"""Detect worker processes of PyTorch's DataLoader. The workers of a rank divide the elements of the rank among
themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from aiostream_data.arguments import integer, shown
from aiostream_data.errors import ArgumentTypeError, PlanError, RankError
from aiostream_data.ranks.find import find_ranks
from aiostream_data.ranks.frameworks import torch_worker
from aiostream_data.ranks.world import Ranks


@dataclass(frozen=True)
class LoaderWorkers:
    """One of several worker processes that share the elements of a rank.

    Attributes:
        number: Number of this worker, from 0.
        count: Number of workers, or 1 if the elements are not shared.
        seed: Seed common to all workers, or None if unknown. The seed changes with each epoch of a DataLoader.
    """

    number: int = 0
    count: int = 1
    seed: int | None = None

    def among(self, ranks: Ranks) -> Ranks:
        """Return the position of this worker among all workers of all ranks. Each worker counts as a rank."""
        if self.count == 1:
            return ranks
        share = ranks.share * self.count + self.number
        return Ranks(share, ranks.shares * self.count, source=ranks.source)

    def __str__(self) -> str:
        return f"worker {self.number} of {self.count}"


ALONE: Final = LoaderWorkers()


def find_workers(modules: Mapping[str, ModuleType] | None = None) -> LoaderWorkers:
    """Detect which worker of PyTorch's DataLoader this process is. Return :data:`ALONE` outside a worker.

    Args:
        modules: Loaded modules. Default: ``sys.modules``. No module is imported.
    """
    found = torch_worker(sys.modules if modules is None else modules)
    return ALONE if found is None else LoaderWorkers(*found)


def choose_workers(
    worker: tuple[int, int] | None,
    rank: int | None = None,
    world_size: int | None = None,
    shards: Iterable[tuple[int, int]] = (),
) -> LoaderWorkers:
    """Convert the argument ``open(worker=)`` to :class:`LoaderWorkers`. If ``worker`` is None, detect the worker.

    Args:
        worker: Pair (number of this worker, count of workers), or None.
        rank, world_size: Arguments of ``open``.
        shards: Pair (number of parts, part number) for every ``shard()`` call in the plan.

    Raises:
        PlanError: A number is invalid, or ``rank``, ``world_size`` or ``shard()`` may already divide the rows among the
            workers.
    """
    found = find_workers()
    if worker is not None:
        return _given(worker, found.seed)
    if found.count == 1:
        return found
    shards = list(shards)
    if shards:
        return _besides_shards(found, shards)
    if rank is None or world_size is None or _is_launched_as(rank, world_size):
        return found
    if _may_count(found, world_size, rank):
        raise _unclear(f"rank={rank} and world_size={world_size}", found)
    return found


def _given(worker: Any, seed: int | None) -> LoaderWorkers:
    if not isinstance(worker, (tuple, list)) or len(worker) != 2:
        raise ArgumentTypeError(f"worker must be (number, count), such as (0, 4), got {shown(worker)}")
    count = integer("the count of worker", worker[1], 1)
    return LoaderWorkers(integer("the number of worker", worker[0], 0, count - 1), count, seed)


def _besides_shards(found: LoaderWorkers, shards: list[tuple[int, int]]) -> LoaderWorkers:
    """Return a single worker if a ``shard()`` call may already divide the rows among the workers; otherwise raise an
    error.

    If ``shard()`` does not depend on the worker, all workers read the same part. The part number then corresponds to at
    most one worker, and all other workers raise an error.
    """
    if any(_may_count(found, *shard) for shard in shards):
        return LoaderWorkers(seed=found.seed)
    num_shards, index = shards[0]
    raise _unclear(f"shard({num_shards}, {index})", found)


def _may_count(found: LoaderWorkers, parts: int, part: int) -> bool:
    """Return True if ``part`` may be computed as rank * num_workers + worker, as in PyTorch's documentation."""
    return parts % found.count == 0 and part % found.count == found.number


def _is_launched_as(rank: int, world_size: int) -> bool:
    with suppress(RankError, PlanError):
        launched = find_ranks()
        return (launched.rank, launched.world_size) == (rank, world_size)
    return False


def _unclear(what: str, found: LoaderWorkers) -> PlanError:
    return PlanError(
        f"this is {found} of a DataLoader, and {what} may already count its workers. Pass worker=(0, 1) to open() if "
        f"it does, or worker={found.number, found.count} if it does not"
    )
