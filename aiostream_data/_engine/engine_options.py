"""How an engine runs a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiostream_data._engine.resume.position import State
from aiostream_data._engine.run_options import RunOptions
from aiostream_data.plan.base import Node
from aiostream_data.ranks.listing import ListOnce
from aiostream_data.state_parts import STATE


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a plan is run.

    Attributes:
        run: Options of the run, as the user gave them.
        epoch: Number of the first epoch, for seeds.
        root_seed: Seed of everything that was given none; drawn at random when None.
        state: Where the plan goes on; None at the beginning.
        book: Rows that the state mentions.
        weights: Weights of mixtures that were changed before the state was taken.
        caches: In which repetition the rows of caches were read first.
        written: The plan as the user wrote it, if it is not the one to be run.
        world_size: Number of ranks that share the rows.
        held_against: What a state says of the plan that it was taken of.
        received: Rows and elements that the consumer had received when the state was taken, roughly.
        of_ranks: The same options with the state of each rank, where a list of them was given. All are checked.
        given_seed: The seed asked for besides that of a state.
        fetch: Only the rows of ``book`` are made, as rows of the plan, in the order of its first entry.
        fetched_from: Name of the object that the first of these was read from.
        keys: Numbers of the plan's nodes, those of more nodes behind it included; None if they count up from 0.
        current_gpu: GPU that was current in the thread that opened the loader; None where none was chosen.
        list_once: Which rank lists the files for all; None where each does.
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
        """Return every state that the plan is opened with, by its name in messages."""
        return [(f"state[{number}]", each) for number, each in enumerate(self.of_ranks)] or [(STATE, self)]
