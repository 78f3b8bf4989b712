"""Check a whole state against the plan that it is opened with, before anything runs.

How this works. Every stage and step has a schema of the part of a state that it writes (``schema``, beside ``at`` and
``resume``). Here the plan and the state are walked together, from the consumer down, without recursion, as a state
may be nested to any depth. Where the plan is not known, inside data sets that are made while running, the state's own
names of operators choose the schema; :class:`InnerStates` checks such a part again when its data set is opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from aiostream_data._engine.compile import STAGES, STEPS, fused_below
from aiostream_data._engine.engine_options import EngineOptions
from aiostream_data._engine.flow.fused_steps import Step
from aiostream_data._engine.flow.stage import CallStage, Stage
from aiostream_data._engine.resume.lineage_reader import Book
from aiostream_data._engine.resume.places import Place, Rows, SavedShards, Scope
from aiostream_data._engine.resume.position import POSITION
from aiostream_data._engine.resume.shard_numbers import numbers_in
from aiostream_data.errors import DamagedStateError
from aiostream_data.plan.base import Node, keys_of
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.rank_places import shared_nodes
from aiostream_data.state_parts import MAX_COUNT, Part, path_of

ELEMENTS_FACTOR: Final = 64
"""A node that drops no rows gave at most this many times the elements received: other ranks may have had the rest."""


def check_state(plan: Node, options: EngineOptions, book: Book, exact: bool, keys: Mapping[Node, int]) -> None:
    """Check the position of a state and all rows that it names.

    Args:
        plan: As it is run.
        options: With the state.
        book: The rows that the state names.
        exact: The plan is the one that the state was taken of.
        keys: Numbers of the plan's nodes.

    Raises:
        StateMismatchError: A value does not fit; names its path.
    """
    book.check()
    deque(places_in(plan, options, book, exact, keys), maxlen=0)


def places_in(plan: Node, options: EngineOptions, book: Book, exact: bool, keys: Mapping[Node, int]) -> Iterator[Place]:
    """Yield the places of all nodes that the position of a state has; each is checked. See :func:`check_state`."""
    most = min(MAX_COUNT, ELEMENTS_FACTOR * (options.received + 1)) if exact else MAX_COUNT
    scope = Scope(book, keys, saved_shards(options.held_against or {}), most, shared_nodes(plan), exact)
    first = Place(Part(options.state, POSITION), plan, Rows(min(1, options.received), most), scope, epoch=options.epoch)
    yield from _checked_places(first)


class InnerStates:
    """Checks the places of data sets that are made while running.

    Args:
        state: The whole position that the loader was opened with.
        book: The rows that the state names.
    """

    def __init__(self, state: Any, book: Book) -> None:
        self._state = state
        self._book = book

    def check(self, plan: Node, state: Any, given: int) -> None:
        """Check the place of a data set after its first ``given`` rows.

        Raises:
            DamagedStateError: A value does not fit the data set.
        """
        path = path_of(self._state, state, POSITION) if isinstance(state, dict) else None
        part = Part(state, path or f'{POSITION}...["inner"]')
        count = cardinality(plan)
        if 0 <= count < given:
            raise DamagedStateError(part.path, f"is the place after {given} rows of a data set that has {count}")
        if state is not None:
            first = Place(part, plan, Rows(given, given), Scope(self._book, keys_of(plan)))
            deque(_checked_places(first), maxlen=0)


def _checked_places(first: Place) -> Iterator[Place]:
    """Yield a place and all those below it; each is checked."""
    pending = deque([first])
    while pending:
        place = pending.popleft()
        yield place
        if place.part.value is None:
            if place.rows.least:
                raise place.part.refused("must be the place of an operator that gave rows")
        else:
            pending.extend(_schema_of(place))


def _schema_of(place: Place) -> Iterator[Place]:
    node = place.node
    if node in place.scope.shared:
        place = replace(place, rows=place.rows.of_all_ranks)
    if node is None:
        return _by_kind(place).schema(place)
    if type(node) in STEPS:
        return STEPS[type(node)].schema(place)
    return STAGES[type(node)].schema(replace(place, fused=fused_below(node)))


def _by_kind(place: Place) -> type[Stage] | type[Step]:
    op = place.part.entry("op")
    found = _kinds().get(op.value) if isinstance(op.value, str) else None
    if found is None:
        raise op.refused("must be the name of an operator")
    return found


@cache
def _kinds() -> dict[str, type[Stage] | type[Step]]:
    """Return the schemas by the names that states give operators."""
    classes: list[type[Stage] | type[Step]] = [CallStage, *STAGES.values(), *STEPS.values()]
    found: dict[str, type[Stage] | type[Step]] = {}
    for each in classes:
        if hasattr(each, "kind"):
            found.setdefault(each.kind, each)
    return found


def saved_shards(held_against: Mapping[str, Any]) -> dict[int, SavedShards]:
    """Return what a state says of the shards of each source, by the source's key.

    Raises:
        DamagedStateError: What it says of their numbers is damaged.
    """
    shards = Part(held_against.get("shards") or {}, 'state["pipeline"]["shards"]')
    found = {}
    for key, summary in shards.value.items():
        if key.isdecimal():
            numbered = Part(summary.get("numbered", []), f'{shards.path}["{key}"]["numbered"]')
            found[int(key)] = SavedShards(summary["count"], numbers_in(numbered, summary["count"]))
    return found
