"""Read rank and world size from the environment variables that launchers set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiostream_data.errors import PlanError, RankError
from aiostream_data.ranks.world import Ranks

TORCHRUN_MARKS: Final = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
"""Set by torchrun, which often runs under another launcher whose variables its workers inherit."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """The two variables of one launcher.

    Attributes:
        sets_halves: It sets one of the two also where it started only one process, such as SLURM for a
            batch script; then they say nothing.
    """

    rank: str
    world_size: str
    sets_halves: bool = False

    @property
    def names(self) -> str:
        return f"{self.rank}, {self.world_size}"

    def read(self, environ: Mapping[str, str]) -> Ranks | None:
        """Return what the variables say, or None where they are not set.

        Raises:
            RankError: Only one of them is set, or they are no numbers that fit together.
        """
        found = [name for name in (self.rank, self.world_size) if environ.get(name, "").strip()]
        if not found:
            return None
        if len(found) == 1:
            if self.sets_halves:
                return None
            missing = self.world_size if found == [self.rank] else self.rank
            raise RankError(f"{found[0]} is set and {missing} is not; set both, or give open(rank=, world_size=)")
        try:
            rank, world_size = (int(environ[name]) for name in found)
            return Ranks(rank, world_size, source=self.names)
        except (ValueError, PlanError) as error:
            values = ", ".join(f"{name}={environ[name]!r}" for name in found)
            raise RankError(f"{values} are no rank and world size: {error}") from None


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
    """Return what the launchers' variables say, or None where none are set.

    A launcher that started one process only says nothing beside another one that started several. What
    torchrun says of its own workers counts, whatever started torchrun.

    Raises:
        RankError: Variables of one launcher are half set or no numbers, or those of two launchers disagree.
    """
    if any(mark in environ for mark in TORCHRUN_MARKS):
        own = TORCHRUN.read(environ)
        if own is not None:
            return own
    found = [ranks for launcher in LAUNCHERS if (ranks := launcher.read(environ)) is not None]
    return agreed([ranks for ranks in found if ranks.world_size > 1] or found)


def agreed(found: list[Ranks]) -> Ranks | None:
    """Return what all of these say, or None of none.

    Raises:
        RankError: Two of them disagree; names both.
    """
    for other in found[1:]:
        first = found[0]
        if (other.rank, other.world_size) != (first.rank, first.world_size):
            raise RankError(f"{first}, but {other}: say which with open(rank=, world_size=)")
    return found[0] if found else None
