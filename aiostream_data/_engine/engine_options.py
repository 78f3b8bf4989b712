"""How an engine runs a plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiostream_data._engine.resume.position import State
from aiostream_data.plan.base import Node
from aiostream_data.ranks.listing import ListOnce
from aiostream_data.state_parts import STATE
from aiostream_data.storage.cache.options import ShardCache


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a plan is run.

    Attributes:
        memory_limit: Bytes of the budget.
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
        force, allow: Which differences between the two do not matter.
        fetch: Only the rows of ``book`` are made, as rows of the plan, in the order of its first entry.
        fetched_from: Name of the object that the first of these was read from.
        keys: Numbers of the plan's nodes, those of more nodes behind it included; None if they count up from 0.
        one_at_a_time: The plan is run one element at a time, by a :class:`.stepping.SteppingEngine`.
        full_tracebacks: Errors keep the frames of the package.
        profile: Copies to devices are timed by the device.
        current_gpu: GPU that was current in the thread that opened the loader; None where none was chosen.
        stall_after_s: Seconds that the consumer may wait for an element before the log says for what; None: for ever.
        stage_timeout_s: Seconds that it may wait before the run ends with an error; None: for ever.
        dead_letters: Path of the log of records that are skipped or replaced; None for none.
        list_once: Which rank lists the files for all; None where each does.
        shard_cache: Where pieces of shards are kept; None for nowhere.
    """

    memory_limit: int
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
    force: bool = False
    allow: Collection[str] = ()
    fetch: bool = False
    fetched_from: str = ""
    keys: Sequence[int] | None = None
    one_at_a_time: bool = False
    full_tracebacks: bool = False
    profile: bool = False
    current_gpu: int | None = None
    stall_after_s: float | None = None
    stage_timeout_s: float | None = None
    dead_letters: str | None = None
    shard_cache: ShardCache | None = None
    list_once: ListOnce | None = None

    def states(self) -> list[tuple[str, EngineOptions]]:
        """Return every state that the plan is opened with, by its name in messages."""
        return [(f"state[{number}]", each) for number, each in enumerate(self.of_ranks)] or [(STATE, self)]
