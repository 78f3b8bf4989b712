"""Build the plan that processes the records of a dead-letter log again.

Each record starts at the stage where the record failed.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from aiostream_data.errors import DeadLetterError
from aiostream_data.plan import operators as op
from aiostream_data.plan.asserted import AssertCardinality
from aiostream_data.plan.base import UNKNOWN, Node, Operator, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.rewrite import with_inputs
from aiostream_data.plan.spec import Spec, spec_of
from aiostream_data.plan.take_while import TakeWhile

COUNTS_ROWS = (op.Repeat, op.Take, TakeWhile, op.SkipFirst, op.Shard, AssertCardinality)
"""Operators that select rows by their position in the stream. A plan for replaying a log omits these operators."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Recalled(Operator):
    """Node that emits single rows of its input in a given order, optionally followed by the rows that the input emits.

    Attributes:
        rows: Names of the rows to emit, as stored in the dead-letter log.
        seed: Seed of the loader that wrote the log.
        then_input: True if the rows that the input emits follow the rows in ``rows``.
    """

    is_transparent: ClassVar[bool] = True

    rows: tuple[Mapping[str, Any], ...]
    seed: int
    then_input: bool

    @property
    def method(self) -> str:
        return "replay"

    def detail(self) -> str:
        return f"{len(self.rows)} rows"


def replayed(plan: Node, entries: Iterable[Mapping[str, Any]]) -> Node:
    """Return the plan that processes the records of a dead-letter log again.

    Raises:
        DeadLetterError: The log is empty, contains several seeds, or names a stage that the plan does not have.
    """
    known = list({json.dumps(entry["name"]): entry for entry in entries}.values())  # merged logs may have duplicates
    listed = _without_damage(known)
    if not all(isinstance(entry.get("seed"), int) for entry in listed):
        raise DeadLetterError("the log is damaged: an entry has no seed")
    seeds = {entry["seed"] for entry in listed}
    if len(seeds) != 1:
        raise DeadLetterError(
            "cannot replay the log: it is empty"
            if not listed
            else "cannot replay the log: its runs have different seeds. Replay the records of one seed at a time"
        )
    at: defaultdict[Node, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in listed:
        at[_stage_of(plan, entry)].append(entry["row"])
    return _over(plan, dict(at), seeds.pop())


def _without_damage(entries: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the log entries of records for which functions failed.

    Entries about data lost by sources are omitted, because such entries have no record to replay.

    Raises:
        DeadLetterError: All log entries are about data lost by sources.
    """
    failed = [entry for entry in entries if "lost" not in entry]
    lost = len(entries) - len(failed)
    cure = "Repair or download the files, and read them as a separate dataset"
    if lost and not failed:
        raise DeadLetterError(
            f"cannot replay the log: it contains only losses of sources, which have no records. {cure}"
        )
    if lost:
        warnings.warn(f"replay() skips {lost} entries of the log, which are losses of sources. {cure}", stacklevel=5)
    return failed


def _stage_of(plan: Node, entry: Mapping[str, Any]) -> Node:
    label, number = entry.get("stage"), entry.get("nth")
    nodes = [node for node in walk(plan) if node.label == label]
    if not isinstance(number, int) or not 0 <= number < len(nodes):
        raise DeadLetterError(
            f"cannot replay the log: records failed in {label} number {number}, which this dataset does not have"
        )
    return nodes[number]


def _over(node: Node, at: Mapping[Node, list[Mapping[str, Any]]], seed: int) -> Node:
    """Return the plan that ends with a node, with logged rows inserted before the stages where the rows failed."""
    below = any(lower in at for child in node.inputs for lower in walk(child))
    if node in at:
        assert isinstance(node, Operator)
        lower = _over(node.input, at, seed) if below else node.input
        return replace(node, input=Recalled(input=lower, rows=tuple(at[node]), seed=seed, then_input=below))
    if not below:
        return node
    if len(node.inputs) > 1:
        raise DeadLetterError(
            f"cannot replay records that failed before {node.label}, because {node.label} has several inputs. "
            "Call replay() on the input in which they failed"
        )
    change: Callable[[Node], Node] = lambda child: _over(child, at, seed)  # noqa: E731
    return change(node.inputs[0]) if isinstance(node, COUNTS_ROWS) else with_inputs(node, change)


def replayed_seed(plan: Node) -> int | None:
    """Return the seed that a plan needs to replay logged records; None for other plans."""
    return next((node.seed for node in walk(plan) if isinstance(node, Recalled)), None)


@spec_of.register
def _(node: Recalled) -> Spec:
    return spec_of(node.input)


@cardinality.register
def _(node: Recalled) -> int:
    return UNKNOWN if node.then_input else len(node.rows)
