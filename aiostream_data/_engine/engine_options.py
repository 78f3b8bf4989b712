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
        epoch: Number of the first epoch. Random draws depend on it.
        root_seed: Seed for operators without their own seed; drawn at random if None.
        state: Position to resume from; None starts at the beginning.
        book: Rows that the state names.
        weights: Changes of mixture weights made before the state was saved.
        caches: Epoch in which each cache first read its rows.
        written: Plan as the user wrote it; None if it equals the plan that the engine runs.
        world_size: Number of ranks that share the rows.
        held_against: Description of the saved pipeline, compared with the current one.
        received: Approximate number of rows and elements that the consumer had received at the state.
        of_ranks: Options with the state of each rank, if the user passed a list of states. All are checked.
        given_seed: Seed that the user passed in addition to a state.
        fetch: True to recompute only the rows of ``book``, in the order of its first entry.
        fetched_from: URL or source name of the first row to fetch.
        keys: Node numbers of the plan and of any operators after it; None numbers the nodes from 0.
        current_gpu: GPU selected in the thread that opened the loader; None if none was selected.
        list_once: Rank that lists the files for all ranks; None if each rank lists them.
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
        """Return each state to resume from, with its name in error messages."""
        return [(f"state[{number}]", each) for number, each in enumerate(self.of_ranks)] or [(STATE, self)]
