"""The plan that runs the records of a dead-letter log once more, from the stage on in which they failed."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aiostream_data.errors import DeadLetterError
from aiostream_data.plan import operators as op
from aiostream_data.plan.base import UNKNOWN, Node, Operator, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.rewrite import with_inputs
from aiostream_data.plan.spec import Spec, spec_of
from aiostream_data.plan.take_while import TakeWhile

COUNTS_ROWS = (op.Repeat, op.Take, TakeWhile, op.Skip, op.Shard)
"""What chooses among all rows by what comes before them, and is left out for a few of them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Recalled(Operator):
    """Single rows of the input, in the order in which they are listed; and then, if asked for, the input itself.

    Attributes:
        rows: Names of rows, as the dead-letter log holds them.
        seed: Of the loader that wrote the log.
        then_input: The input gives rows of its own afterwards.
    """

    rows: tuple[Mapping[str, Any], ...]
    seed: int
    then_input: bool

    @property
    def method(self) -> str:
        return "replay"

    def detail(self) -> str:
        return f"{len(self.rows)} rows"


def replayed(plan: Node, entries: Iterable[Mapping[str, Any]]) -> Node:
    """Return the plan that gives what the logged records give now.

    Raises:
        DeadLetterError: The log is empty, of several seeds, or names a stage that the plan does not have.
    """
    known = list({json.dumps(entry["name"]): entry for entry in entries}.values())  # logs may be joined to one
    listed = _without_damage(known)
    if not all(isinstance(entry.get("seed"), int) for entry in listed):
        raise DeadLetterError("the log is damaged: an entry has no seed")
    seeds = {entry["seed"] for entry in listed}
    if len(seeds) != 1:
        raise DeadLetterError(
            "the log is empty, so there is nothing to run again"
            if not listed
            else "the log holds records of runs with different seeds; run those of one seed at a time"
        )
    at: defaultdict[Node, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in listed:
        at[_stage_of(plan, entry)].append(entry["row"])
    return _over(plan, dict(at), seeds.pop())


def _without_damage(entries: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the entries of records on which functions failed. What sources lost has no record that could run again.

    Raises:
        DeadLetterError: There are no others.
    """
    failed = [entry for entry in entries if "lost" not in entry]
    lost = len(entries) - len(failed)
    cure = "repair the files, or fetch them again, and read them as a data set of their own"
    if lost and not failed:
        raise DeadLetterError(f"the log has only what sources lost, and replay() runs functions: {cure}")
    if lost:
        warnings.warn(f"replay() leaves out {lost} entries of the log, which sources lost: {cure}", stacklevel=5)
    return failed


def _stage_of(plan: Node, entry: Mapping[str, Any]) -> Node:
    label, number = entry.get("stage"), entry.get("nth")
    nodes = [node for node in walk(plan) if node.label == label]
    if not isinstance(number, int) or not 0 <= number < len(nodes):
        raise DeadLetterError(
            f"the log has records that failed in {label} number {number} of its plan, which this data set does not have"
        )
    return nodes[number]


def _over(node: Node, at: Mapping[Node, list[Mapping[str, Any]]], seed: int) -> Node:
    """Return the plan of a node with the rows put in where they failed."""
    below = any(lower in at for child in node.inputs for lower in walk(child))
    if node in at:
        assert isinstance(node, Operator)
        lower = _over(node.input, at, seed) if below else node.input
        return replace(node, input=Recalled(input=lower, rows=tuple(at[node]), seed=seed, then_input=below))
    if not below:
        return node
    if len(node.inputs) > 1:
        raise DeadLetterError(
            f"records that failed below {node.label} cannot run through it alone; replay them with what is below it"
        )
    change: Callable[[Node], Node] = lambda child: _over(child, at, seed)  # noqa: E731
    return change(node.inputs[0]) if isinstance(node, COUNTS_ROWS) else with_inputs(node, change)


def replayed_seed(plan: Node) -> int | None:
    """Return the seed that a plan must run with since it runs logged records again; None where it does not."""
    return next((node.seed for node in walk(plan) if isinstance(node, Recalled)), None)


@spec_of.register
def _(node: Recalled) -> Spec:
    return spec_of(node.input)


@cardinality.register
def _(node: Recalled) -> int:
    return UNKNOWN if node.then_input else len(node.rows)
