"""Validate a complete saved state against the current plan, before any stage runs.

How this works. Every stage and step class has a ``schema`` method that validates the class's part of a state. This
module traverses the plan and the state together, from the last operator to the sources. The traversal is iterative,
because a state can be nested to any depth. If a user function creates a dataset, the plan of the dataset is unknown
before the run. The operator names in the state then determine the schema. When the dataset is opened,
:class:`InnerStates` validates the dataset's part of the state again.
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
from aiostream_data.state_fields import MAX_COUNT, Part, path_of

ELEMENTS_FACTOR: Final = 64
"""Maximum ratio between the rows that one node emits on all ranks and the elements that the consumer receives."""


def check_state(plan: Node, options: EngineOptions, book: Book, exact: bool, keys: Mapping[Node, int]) -> None:
    """Validate the position in a state, and all row ids that the state stores.

    Args:
        plan: The plan that the engine runs.
        options: Engine options, which include the state.
        book: Table of the rows that the state refers to.
        exact: True if the state was saved from the same plan.
        keys: Number that identifies each plan node.

    Raises:
        StateMismatchError: A value is invalid; the message names its path in the state.
    """
    book.check()
    deque(places_in(plan, options, book, exact, keys), maxlen=0)


def places_in(plan: Node, options: EngineOptions, book: Book, exact: bool, keys: Mapping[Node, int]) -> Iterator[Place]:
    """Validate and yield the saved position of every plan node.

    The arguments are the same as for :func:`check_state`.
    """
    most = min(MAX_COUNT, ELEMENTS_FACTOR * (options.received + 1)) if exact else MAX_COUNT
    scope = Scope(book, keys, saved_shards(options.held_against or {}), most, shared_nodes(plan), exact)
    first = Place(Part(options.state, POSITION), plan, Rows(min(1, options.received), most), scope, epoch=options.epoch)
    yield from _checked_places(first)


class InnerStates:
    """Validator for the saved positions of datasets that user functions create during the run.

    Args:
        state: Complete saved position from which the loader resumes.
        book: Table of the rows that the state refers to.
    """

    def __init__(self, state: Any, book: Book) -> None:
        self._state = state
        self._book = book

    def check(self, plan: Node, state: Any, given: int) -> None:
        """Validate the saved position of a dataset that has emitted ``given`` rows.

        Raises:
            DamagedStateError: A saved value is impossible for the dataset.
        """
        path = path_of(self._state, state, POSITION) if isinstance(state, dict) else None
        part = Part(state, path or f'{POSITION}...["inner"]')
        count = cardinality(plan)
        if 0 <= count < given:
            raise DamagedStateError(part.path, f"is the position after {given} rows of a dataset that has {count}")
        if state is not None:
            first = Place(part, plan, Rows(given, given), Scope(self._book, keys_of(plan)))
            deque(_checked_places(first), maxlen=0)


def _checked_places(first: Place) -> Iterator[Place]:
    """Validate and yield a saved position and all positions nested in it."""
    pending = deque([first])
    while pending:
        place = pending.popleft()
        yield place
        if place.part.value is None:
            if place.rows.least:
                raise place.part.refused("must be the position of an operator that emitted rows")
        else:
            pending.extend(_schema_of(place))


def _schema_of(place: Place) -> Iterator[Place]:
    node = place.node
    if node in place.scope.shared:
        place = replace(place, rows=place.rows.of_all_ranks)
    if node is None:
        return _by_kind(place).schema(place)
    if STEPS.has(node):
        return STEPS.of(node).schema(place)
    return STAGES.of(node).schema(replace(place, fused=fused_below(node)))


def _by_kind(place: Place) -> type[Stage] | type[Step]:
    op = place.part.entry("op")
    found = _kinds().get(op.value) if isinstance(op.value, str) else None
    if found is None:
        raise op.refused("must be the name of an operator")
    return found


@cache
def _kinds() -> dict[str, type[Stage] | type[Step]]:
    """Return the stage and step classes, keyed by the operator name that a saved state uses."""
    classes: list[type[Stage] | type[Step]] = [CallStage, *STAGES.values(), *STEPS.values()]
    found: dict[str, type[Stage] | type[Step]] = {}
    for each in classes:
        if hasattr(each, "kind"):
            found.setdefault(each.kind, each)
    return found


def saved_shards(held_against: Mapping[str, Any]) -> dict[int, SavedShards]:
    """Return the saved shard list of each source, keyed by source key.

    Raises:
        DamagedStateError: The saved shard numbers are damaged.
    """
    shards = Part(held_against.get("shards") or {}, 'state["pipeline"]["shards"]')
    found = {}
    for key, summary in shards.value.items():
        if key.isdecimal():
            numbered = Part(summary.get("numbered", []), f'{shards.path}["{key}"]["numbered"]')
            found[int(key)] = SavedShards(summary["count"], numbers_in(numbered, summary["count"]))
    return found
