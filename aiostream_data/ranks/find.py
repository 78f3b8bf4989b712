"""Detect the rank of this process, and print the detected rank once."""

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
    """Detect the rank of this process.

    The search starts with torch.distributed, JAX and Ray Train, if these libraries are loaded and initialized. Then the
    function reads the environment variables of torchrun, JAX, Open MPI, PMI and SLURM. If no rank is found, the result
    is rank 0 of 1.

    Args:
        environ: Environment variables; by default, the variables of this process.
        modules: Loaded Python modules by name. Default: ``sys.modules``.
        replicate: Number of consecutive ranks that get the same rows.

    Raises:
        RankError: Two sources report different ranks, or the variables of a launcher are incomplete.
        PlanError: ``replicate`` does not divide the number of processes.
    """
    found = agreed(ranks_from_frameworks(sys.modules if modules is None else modules))
    found = found or ranks_from_environment(os.environ if environ is None else environ)
    return replace(found or Ranks(source="no launcher found"), replicate=replicate)


def choose_ranks(rank: int | None, world_size: int | None, replicate: int = 1) -> Ranks:
    """Convert the arguments of ``open(rank=, world_size=)`` to ranks.

    If ``rank`` and ``world_size`` are None, detect the rank.

    A detected rank is printed to stderr once per process.

    Raises:
        PlanError: Only one of ``rank`` and ``world_size`` is given, or the rank is not below the world size.
        RankError: Detection failed; see :func:`find_ranks`.
    """
    if rank is None and world_size is None:
        found = find_ranks(replicate=replicate)
        if found.world_size > 1:
            _announce(found)
        return found
    if rank is None or world_size is None:
        given, missing = ("world_size", "rank") if rank is None else ("rank", "world_size")
        raise PlanError(f"{given} is given, but {missing} is not. Pass both, or neither to detect them")
    return Ranks(rank, world_size, replicate)


_announced: set[int] = set()


def _announce(ranks: Ranks) -> None:
    if os.getpid() in _announced:  # a forked child may have another rank than its parent
        return
    _announced.add(os.getpid())
    sys.stderr.write(f"aiostream_data: {ranks}\n")
