"""Options of one engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiostream_data._engine.resume.position import State
from aiostream_data._engine.run_options import RunOptions
from aiostream_data.plan.base import Node
from aiostream_data.ranks.listing import ListOnce
from aiostream_data.state_fields import STATE


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of one engine: run options, seeds, and the state to resume from.

    Attributes:
        run: Options that the user passed to ``open()``.
        epoch: Number of the first epoch. Random draws depend on the epoch.
        root_seed: Seed for operators without their own seed; drawn at random if None.
        state: Saved position to resume from; None starts at the beginning.
        book: Encoded rows that the saved state refers to.
        weights: Changes to mixture weights that were made before the state was saved.
        caches: For each cache, the epoch in which the cache first read its rows.
        written: Plan as the user wrote it; None if the engine runs the plan unchanged.
        world_size: Number of ranks (training processes) that share the rows.
        held_against: Description of the saved pipeline, which is compared with the current pipeline.
        received: Approximate number of rows and elements that the consumer had received when the state was saved.
        of_ranks: If the user passed a list of states, one set of options per rank, each with the state of that rank.
            All are checked.
        given_seed: Seed that the user passed in addition to a state.
        fetch: If True, recompute only the rows that ``book`` lists, in the order of the first entry of ``book``.
        fetched_from: URL or source name of the first row to fetch.
        keys: Numbers of the nodes of the plan and of any operators that follow it. If None, nodes are numbered from 0.
        current_gpu: GPU that was selected in the thread that opened the loader; None if no GPU was selected.
        list_once: Rank that lists the files for all ranks; None if each rank lists the files itself.
    """

    run: RunOptions
    epoch: int = 0
    root_seed: int | None = None
    state: State = None
    book: Any = None
    weights: Any = None
    caches: Any = None
    written: Node | None = None
    world_size: int = 1
    held_against: Mapping[str, Any] | None = None
    received: int = 0
    of_ranks: Sequence[EngineOptions] = ()
    given_seed: int | None = None
    fetch: bool = False
    fetched_from: str = ""
    keys: Sequence[int] | None = None
    current_gpu: int | None = None
    list_once: ListOnce | None = None

    def states(self) -> list[tuple[str, EngineOptions]]:
        """Return a name and the options for each saved state to resume from. Error messages use the name."""
        return [(f"state[{number}]", each) for number, each in enumerate(self.of_ranks)] or [(STATE, self)]
