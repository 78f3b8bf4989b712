"""Rank of this process, number of ranks, and the distribution of rows over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from aiostream_data.arguments import function_or_none, integer, shown
from aiostream_data.errors import PlanError, RankError

Tail: TypeAlias = Literal["drop", "pad", "repeat"]
"""Rule for the last rows if fewer rows than ranks remain: drop the rows, add rows marked as padding, or repeat rows."""

Policy: TypeAlias = Literal["row", "split", "file"]
"""Unit of data that is distributed over the ranks: single rows of the global order, or complete files."""

TAILS: Final[tuple[Tail, ...]] = ("drop", "pad", "repeat")
POLICIES: Final[tuple[Policy, ...]] = ("row", "split", "file")

SHARED_SEED: Final = 0
"""Default root seed with several ranks. With a random seed, every rank would have a different order."""


@dataclass(frozen=True)
class Ranks:
    """One of several processes that share a data set.

    Attributes:
        rank: Number of this process, from 0.
        world_size: Number of processes.
        replicate: Number of consecutive ranks that get the same rows, e.g. the size of a tensor-parallel group.
        source: Origin of ``rank`` and ``world_size``, for messages (such as "torch.distributed").

    Raises:
        PlanError: A number is out of range, or ``replicate`` does not divide ``world_size``.
    """

    rank: int = 0
    world_size: int = 1
    replicate: int = 1
    source: str = "arguments"

    def __post_init__(self) -> None:
        for name, least in (("world_size", 1), ("rank", 0), ("replicate", 1)):
            object.__setattr__(self, name, _integer(name, getattr(self, name), least))
        if self.rank >= self.world_size:
            raise PlanError(f"rank must be below world_size ({self.world_size}), got {self.rank}")
        if self.world_size % self.replicate:
            raise PlanError(f"world_size ({self.world_size}) must be a multiple of replicate, got {self.replicate}")

    @property
    def share(self) -> int:
        """Index of the share of rows that this process reads, from 0."""
        return self.rank // self.replicate

    @property
    def shares(self) -> int:
        """Number of different shares."""
        return self.world_size // self.replicate

    def root_seed(self, seed: int | None) -> int | None:
        """Return ``seed``. If ``seed`` is None and there are several ranks, return the shared default seed."""
        return SHARED_SEED if seed is None and self.world_size > 1 else seed

    def __str__(self) -> str:
        groups = f", in groups of {self.replicate} that get the same rows" if self.replicate > 1 else ""
        return f"rank {self.rank} of {self.world_size}{groups} ({self.source})"


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Distribution of a data set over ranks.

    Attributes:
        policy: "row" distributes single rows of the order that one process would read. With policy "row", the row order
            is the same for any number of ranks. "file" distributes complete files, and each rank has its own order.
            "split" is an alias of "file".
        tail: Rule that makes the number of batches equal on all ranks. None means "drop" with policy "row", and no
            rule with policy "file".
        counts: Number of rows in each share of the data set, if known. Only for policy "file".
        consensus: Function that returns True if all ranks called the function with True. Only for policy "file". Each
            rank calls ``consensus`` once per batch in a loader thread. A rank passes True if it has another batch.

    Raises:
        PlanError: An argument is invalid, or ``tail`` with policy "file" lacks both ``counts`` and ``consensus``.
    """

    policy: Policy = "row"
    tail: Tail | None = None
    counts: Sequence[int] | None = None
    consensus: Callable[[bool], bool] | None = None

    def __post_init__(self) -> None:
        _one_of("policy", self.policy, POLICIES)
        function_or_none("consensus", self.consensus)
        if self.policy == "split":  # each file is one split
            object.__setattr__(self, "policy", "file")
        if self.tail is not None:
            _one_of("tail", self.tail, TAILS)
        if self.policy == "row":
            if self.counts is not None or self.consensus is not None:
                raise PlanError(
                    "counts= and consensus= require policy='file'; with policy='row', all ranks end together"
                )
            return
        if self.tail is not None and self.counts is None and self.consensus is None:
            raise PlanError(
                f"tail={self.tail!r} with policy='file' requires counts= or consensus=, because a rank cannot count "
                "the rows of other ranks. Pass one of them, or use policy='row'"
            )
        if self.tail is None and (self.counts is not None or self.consensus is not None):
            raise PlanError("counts= and consensus= require tail=. Set tail='drop', 'pad' or 'repeat'")
        if self.counts is not None:
            object.__setattr__(self, "counts", tuple(_integer("counts", count, 0) for count in self.counts))

    @property
    def row_tail(self) -> Tail:
        """Rule for the last rows with policy "row": ``tail``, or "drop" by default."""
        return self.tail or "drop"


def rows_per_rank(rows: int, world_size: int, tail: Tail) -> int:
    """Return the number of rows per rank if ``rows`` rows are divided among ``world_size`` ranks.

    All ranks have equal numbers of rows.
    """
    return rows // world_size if tail == "drop" else -(-rows // world_size)


def too_few(things: int, noun: str, world_size: int) -> RankError:
    """Return the error to raise if a data set has fewer rows or files than ranks. Each worker of a DataLoader counts as
    a rank."""
    plural = noun if things == 1 else noun + "s"
    cure = "use fewer ranks or DataLoader workers, or replicate="
    return RankError(f"{things} {plural} cannot be shared by {world_size} ranks; {cure}")


def _one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise PlanError(f"{name} must be one of {', '.join(map(repr, known))}, got {shown(value)}")


def _integer(name: str, value: Any, least: int) -> int:
    return integer(name, value, least)
