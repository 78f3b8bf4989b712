"""Find out which rank this process is, and say so once."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType

from aiostream_data.errors import PlanError
from aiostream_data.ranks.environment import agreed, ranks_from_environment
from aiostream_data.ranks.frameworks import ranks_from_frameworks
from aiostream_data.ranks.world import Ranks


def find_ranks(
    environ: Mapping[str, str] | None = None, modules: Mapping[str, ModuleType] | None = None, replicate: int = 1
) -> Ranks:
    """Return which rank this process is, as far as can be known.

    Asked first are torch.distributed, JAX and Ray Train, where they are loaded and initialised; then the
    variables of torchrun, JAX, Open MPI, PMI and SLURM. A process of which nobody knows is rank 0 of 1.

    Args:
        environ: Variables; those of the process by default.
        modules: Loaded modules; those of the process by default.

    Raises:
        RankError: Two sources disagree, or variables are half set; names both.
        PlanError: ``replicate`` does not divide the number of processes.
    """
    found = agreed(ranks_from_frameworks(sys.modules if modules is None else modules))
    found = found or ranks_from_environment(os.environ if environ is None else environ)
    return replace(found or Ranks(source="no launcher found"), replicate=replicate)


def choose_ranks(rank: int | None, world_size: int | None, replicate: int = 1) -> Ranks:
    """Return what ``open(rank=, world_size=)`` means: these numbers, or what is found where none are given.

    What was found is written to stderr, once per process.

    Raises:
        PlanError: Only one of the two is given, or they do not fit together.
        RankError: See :func:`find_ranks`.
    """
    if rank is None and world_size is None:
        found = find_ranks(replicate=replicate)
        if found.world_size > 1:
            _announce(found)
        return found
    if rank is None or world_size is None:
        given, missing = ("world_size", "rank") if rank is None else ("rank", "world_size")
        raise PlanError(f"{given} is given and {missing} is not; give both, or neither to have them found")
    return Ranks(rank, world_size, replicate)


_announced: set[int] = set()


def _announce(ranks: Ranks) -> None:
    if os.getpid() in _announced:  # a forked child may be another rank than its parent
        return
    _announced.add(os.getpid())
    sys.stderr.write(f"aiostream_data: {ranks}\n")
