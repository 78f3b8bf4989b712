"""Read rank and world size from the environment variables that launchers set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiostream_data.errors import PlanError, RankError
from aiostream_data.ranks.world import Ranks

TORCHRUN_MARKS: Final = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
"""Environment variables set by torchrun. Workers of torchrun often inherit the variables of another launcher, such as
SLURM."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """Names of the environment variables of one launcher.

    Attributes:
        rank, world_size: Names of the variables for the rank and for the world size.
        sets_halves: True if the launcher may set only one of the two variables, as SLURM does in a batch script. If
            ``sets_halves`` is True, a single variable is ignored and raises no error.
    """

    rank: str
    world_size: str
    sets_halves: bool = False

    @property
    def names(self) -> str:
        return f"{self.rank}, {self.world_size}"

    def read(self, environ: Mapping[str, str]) -> Ranks | None:
        """Read rank and world size from this launcher's variables, or None if the variables are not set.

        Raises:
            RankError: Only one of the two variables is set, or the values are not a valid rank and world size.
        """
        found = [name for name in (self.rank, self.world_size) if environ.get(name, "").strip()]
        if not found:
            return None
        if len(found) == 1:
            if self.sets_halves:
                return None
            missing = self.world_size if found == [self.rank] else self.rank
            raise RankError(f"{found[0]} is set, but {missing} is not. Set both, or pass open(rank=, world_size=)")
        try:
            rank, world_size = (int(environ[name]) for name in found)
            return Ranks(rank, world_size, source=self.names)
        except (ValueError, PlanError) as error:
            values = ", ".join(f"{name}={environ[name]!r}" for name in found)
            raise RankError(
                f"invalid rank in the variables {values}: {error}. Correct them, or pass open(rank=, world_size=)"
            ) from None


TORCHRUN: Final = Launcher("RANK", "WORLD_SIZE")
LAUNCHERS: Final = (
    TORCHRUN,
    Launcher("JAX_PROCESS_INDEX", "JAX_PROCESS_COUNT"),
    Launcher("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    Launcher("PMI_RANK", "PMI_SIZE"),
    Launcher("SLURM_PROCID", "SLURM_NTASKS", sets_halves=True),
)


def ranks_from_environment(environ: Mapping[str, str]) -> Ranks | None:
    """Read the ranks from the variables of any launcher, or None if no launcher set any.

    In workers of torchrun, only the variables of torchrun count. A launcher with world size 1 is ignored if another
    launcher reports a larger world size.

    Raises:
        RankError: The variables of one launcher are incomplete or invalid, or two launchers report different ranks.
    """
    if any(mark in environ for mark in TORCHRUN_MARKS):
        own = TORCHRUN.read(environ)
        if own is not None:
            return own
    found = [ranks for launcher in LAUNCHERS if (ranks := launcher.read(environ)) is not None]
    return agreed([ranks for ranks in found if ranks.world_size > 1] or found)


def agreed(found: list[Ranks]) -> Ranks | None:
    """Return the common rank and world size in ``found``, or None for an empty list.

    Raises:
        RankError: Two entries have different ranks. The error message names the sources of both ranks.
    """
    for other in found[1:]:
        first = found[0]
        if (other.rank, other.world_size) != (first.rank, first.world_size):
            raise RankError(f"conflicting ranks: {first}, but {other}. Pass open(rank=, world_size=)")
    return found[0] if found else None
