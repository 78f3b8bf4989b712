"""Worker processes of PyTorch's DataLoader, which share the elements of their rank among them."""

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
    """One of several worker processes that share what a rank gets.

    Attributes:
        number: Of this process, from 0.
        count: How many processes there are; 1 where nothing is shared.
        seed: The same in all of them, and another one in every epoch of a DataLoader; None where nobody says.
    """

    number: int = 0
    count: int = 1
    seed: int | None = None

    def among(self, ranks: Ranks) -> Ranks:
        """Return which of the workers of all ranks this is, as if each was a rank."""
        if self.count == 1:
            return ranks
        share = ranks.share * self.count + self.number
        return Ranks(share, ranks.shares * self.count, source=ranks.source)

    def __str__(self) -> str:
        return f"worker {self.number} of {self.count}"


ALONE: Final = LoaderWorkers()


def find_workers(modules: Mapping[str, ModuleType] | None = None) -> LoaderWorkers:
    """Return which worker of a DataLoader over an IterableDataset this process is; :data:`ALONE` where it is none.

    Args:
        modules: Loaded modules; those of the process by default. None is imported.
    """
    found = torch_worker(sys.modules if modules is None else modules)
    return ALONE if found is None else LoaderWorkers(*found)


def choose_workers(
    worker: tuple[int, int] | None,
    rank: int | None = None,
    world_size: int | None = None,
    shards: Iterable[tuple[int, int]] = (),
) -> LoaderWorkers:
    """Return what ``open(worker=)`` means: this number and count, or what is found where none are given.

    Args:
        rank, world_size: As given to ``open``.
        shards: Number of parts and number of the part, of every ``shard()`` that the user wrote.

    Raises:
        PlanError: The numbers do not fit together, or the other arguments may count workers already.
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
        raise ArgumentTypeError(
            f"worker must be the number and the count of workers, as in (0, 4), got {shown(worker)}"
        )
    count = integer("the count of worker", worker[1], 1)
    return LoaderWorkers(integer("the number of worker", worker[0], 0, count - 1), count, seed)


def _besides_shards(found: LoaderWorkers, shards: list[tuple[int, int]]) -> LoaderWorkers:
    """Return who shares rows that the user has cut by ``shard()``: nobody, where that counts the workers.

    One that does not is refused by all workers but one at most, since its number is the same in all of them.
    """
    if any(_may_count(found, *shard) for shard in shards):
        return LoaderWorkers(seed=found.seed)
    num_shards, index = shards[0]
    raise _unclear(f"shard({num_shards}, {index})", found)


def _may_count(found: LoaderWorkers, parts: int, part: int) -> bool:
    """Return True if a part has the number that PyTorch's documentation gives it: rank * num_workers + worker."""
    return parts % found.count == 0 and part % found.count == found.number


def _is_launched_as(rank: int, world_size: int) -> bool:
    with suppress(RankError, PlanError):
        launched = find_ranks()
        return (launched.rank, launched.world_size) == (rank, world_size)
    return False


def _unclear(what: str, found: LoaderWorkers) -> PlanError:
    return PlanError(
        f"this is {found} of a DataLoader, and {what} may count its workers already: pass worker=(0, 1) to open() if "
        f"it does, and worker={found.number, found.count} if it does not"
    )
