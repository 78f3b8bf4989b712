"""What came out of a plan, in a form that both libraries share."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple, TypeAlias

import numpy as np

MOST_ELEMENTS = 60
"""Number of elements to read of one plan, which may be infinite."""

INFINITE, UNKNOWN = -1, -2

Plan: TypeAlias = list[list[Any]]
"""A source, then operators; each is a name and its arguments, which can be plans."""


class Outcome(NamedTuple):
    """What one library made of a plan.

    Attributes:
        refused: True if the plan could not be built.
        elements: Elements in order, up to ``MOST_ELEMENTS``; see :func:`described`.
        failed: True if an error followed the elements.
        cardinality: Number of elements that the library declares; INFINITE or UNKNOWN.
    """

    refused: bool
    elements: list[Any]
    failed: bool
    cardinality: int

    def digest(self) -> str:
        """Return a short hash of the elements."""
        return hashlib.sha256(json.dumps(self.elements).encode()).hexdigest()[:16]


REFUSED = Outcome(True, [], False, UNKNOWN)


def described(element: Any) -> Any:
    """Return an element as JSON data: structure, and dtype, shape and values of each leaf."""
    if isinstance(element, dict):
        return {key: described(element[key]) for key in sorted(element)}
    if isinstance(element, tuple):
        return ["tuple", *map(described, element)]
    array = np.asarray(element)
    values = array.ravel().tolist()
    if array.dtype.kind in "SO":
        return ["bytes", list(array.shape), [bytes(value).decode("latin-1") for value in values]]
    return [array.dtype.name, list(array.shape), values]


def difference(plan: Plan, ours: Outcome, theirs: Outcome) -> str:
    """Return what differs between the outcomes of a plan, or "" if nothing does that should not."""
    if ours.refused != theirs.refused:
        return f"refused here: {ours.refused}, there: {theirs.refused}"
    for number, (own, other) in enumerate(zip(ours.elements, theirs.elements, strict=False)):
        if own != other:
            return f"element {number} is {own} here, {other} there"
    if len(ours.elements) != len(theirs.elements) or ours.failed != theirs.failed:
        return "" if _is_known(plan, ours, theirs) else f"{_ending(ours)} here, {_ending(theirs)} there"
    if ours.cardinality != theirs.cardinality and not _is_right(plan, ours.cardinality, theirs):
        return f"cardinality is {ours.cardinality} here, {theirs.cardinality} there"
    return ""


def _is_known(plan: Plan, ours: Outcome, theirs: Outcome) -> bool:
    """Return True for errors that TensorFlow drops or adds.

    TensorFlow drops an error in a window that it does not emit; this package raises it. TensorFlow sometimes refuses
    elements of different shapes in a batch that it drops as incomplete; this package drops them.
    """
    if ours.failed:
        return not theirs.failed and any(name == "window" for name, *_ in plan)
    return any(name == "batch" and arguments[1] for name, *arguments in plan)


def _is_right(plan: Plan, cardinality: int, theirs: Outcome) -> bool:
    """Return True for the cardinality of a stream whose cardinality TensorFlow does not know, or gets wrong.

    Both libraries call ``repeat()`` infinite where they do not know that its input is empty.
    """
    if theirs.failed or len(theirs.elements) == MOST_ELEMENTS or ["repeat", None] in plan:
        return theirs.cardinality in (UNKNOWN, INFINITE) or cardinality == len(theirs.elements)
    return cardinality in (UNKNOWN, len(theirs.elements)) and theirs.cardinality != len(theirs.elements)


def _ending(outcome: Outcome) -> str:
    return f"{len(outcome.elements)} elements{' and an error' if outcome.failed else ''}"
