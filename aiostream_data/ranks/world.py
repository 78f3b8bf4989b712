"""The processes that share a data set: how many, which one this is, and how many rows each gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from aiostream_data.arguments import function_or_none, integer, shown
from aiostream_data.errors import PlanError, RankError

Tail: TypeAlias = Literal["drop", "pad", "repeat"]
"""What becomes of the last rows where they do not suffice for one per rank: left out, filled up with rows
marked as padding, or filled up with rows given twice."""

Policy: TypeAlias = Literal["row", "split", "file"]
"""What is shared out: the rows of the global order one by one, or whole files."""

TAILS: Final[tuple[Tail, ...]] = ("drop", "pad", "repeat")
POLICIES: Final[tuple[Policy, ...]] = ("row", "split", "file")

SHARED_SEED: Final = 0
"""Root seed of ranks that were given none: a random one would give every rank another order."""


@dataclass(frozen=True)
class Ranks:
    """One of several processes that share a data set.

    Attributes:
        rank: Number of this process, from 0.
        world_size: How many processes there are.
        replicate: So many consecutive ranks get the same rows, as the members of a tensor-parallel group must.
        source: Where the numbers come from, for messages.

    Raises:
        PlanError: A number is out of its range, or ``replicate`` does not divide ``world_size``.
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
        """Number of the share of the rows that this process gets, from 0."""
        return self.rank // self.replicate

    @property
    def shares(self) -> int:
        """How many different shares there are."""
        return self.world_size // self.replicate

    def root_seed(self, seed: int | None) -> int | None:
        """Return the seed to open with: ranks that were given none must not draw different ones."""
        return SHARED_SEED if seed is None and self.world_size > 1 else seed

    def __str__(self) -> str:
        groups = f", in groups of {self.replicate} that get the same rows" if self.replicate > 1 else ""
        return f"rank {self.rank} of {self.world_size}{groups} ({self.source})"


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """How ranks share a data set.

    Attributes:
        policy: "row" deals out the rows of the one order that a single process would read, so that it is the same
            for any number of ranks; "file" has every rank read files of its own, and rows in an order of its own;
            "split" is meant to do so with parts of files, and does it with whole ones as long as a file is one split.
        tail: What makes the ranks' numbers of batches equal; None is "drop" by row, and nothing by file.
        counts: By file: rows of every share, where they are known; as many as there are shares.
        consensus: By file: called with whether this rank has another batch, once per batch and in a thread of the
            loader; returns whether all ranks have. It has to ask all ranks, through a channel of its own.

    Raises:
        PlanError: An argument makes no sense, or nothing is given by which a tail could be kept.
    """

    policy: Policy = "row"
    tail: Tail | None = None
    counts: Sequence[int] | None = None
    consensus: Callable[[bool], bool] | None = None

    def __post_init__(self) -> None:
        _one_of("policy", self.policy, POLICIES)
        function_or_none("consensus", self.consensus)
        if self.policy == "split":  # a file is one split, as files are read today
            object.__setattr__(self, "policy", "file")
        if self.tail is not None:
            _one_of("tail", self.tail, TAILS)
        if self.policy == "row":
            if self.counts is not None or self.consensus is not None:
                raise PlanError("counts= and consensus= are for policy='file'; by row all ranks see the same end")
            return
        if self.tail is not None and self.counts is None and self.consensus is None:
            raise PlanError(
                f"tail={self.tail!r} with policy='file' needs counts= or consensus=, since no rank knows "
                "how many rows the others' files have; or use policy='row'"
            )
        if self.tail is None and (self.counts is not None or self.consensus is not None):
            raise PlanError("counts= and consensus= serve to keep a tail: give tail='drop', 'pad' or 'repeat'")
        if self.counts is not None:
            object.__setattr__(self, "counts", tuple(_integer("counts", count, 0) for count in self.counts))

    @property
    def row_tail(self) -> Tail:
        """The tail of policy "row"."""
        return self.tail or "drop"


def rows_per_rank(rows: int, world_size: int, tail: Tail) -> int:
    """Return how many rows each of ``world_size`` ranks gets of ``rows``; the same for all."""
    return rows // world_size if tail == "drop" else -(-rows // world_size)


def too_few(things: int, noun: str, world_size: int) -> RankError:
    """Return the error that there are fewer rows or files than ranks, workers of a DataLoader counted in."""
    plural = noun if things == 1 else noun + "s"
    cure = "use fewer ranks or DataLoader workers, or replicate="
    return RankError(f"{things} {plural} cannot be shared by {world_size} ranks; {cure}")


def _one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise PlanError(f"{name} must be one of {', '.join(map(repr, known))}, got {shown(value)}")


def _integer(name: str, value: Any, least: int) -> int:
    return integer(name, value, least)
