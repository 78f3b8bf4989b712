"""What came out of a plan, in a form that both libraries share."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import numpy as np

MOST_ELEMENTS = 60
"""Number of elements to read of one plan, which may be infinite."""

INFINITE, UNKNOWN = -1, -2


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


def difference(ours: Outcome, theirs: Outcome) -> str:
    """Return what differs between the outcomes of a plan, or "" if nothing does."""
    if ours.refused != theirs.refused:
        return f"refused here: {ours.refused}, there: {theirs.refused}"
    for number, (own, other) in enumerate(zip(ours.elements, theirs.elements, strict=False)):
        if own != other:
            return f"element {number} is {own} here, {other} there"
    if len(ours.elements) != len(theirs.elements) or ours.failed != theirs.failed:
        return f"{_ending(ours)} here, {_ending(theirs)} there"
    if not _agree(ours, theirs):
        return f"cardinality is {ours.cardinality} here, {theirs.cardinality} there"
    return ""


def _agree(ours: Outcome, theirs: Outcome) -> bool:
    """Return True if a cardinality is that of TensorFlow, or if it is right where TensorFlow knows less."""
    is_whole = len(theirs.elements) < MOST_ELEMENTS and not theirs.failed
    is_unknown = theirs.cardinality == UNKNOWN or (theirs.cardinality == INFINITE and is_whole)
    if not is_unknown or ours.cardinality == theirs.cardinality:
        return ours.cardinality == theirs.cardinality
    return not is_whole or ours.cardinality in (UNKNOWN, len(theirs.elements))


def _ending(outcome: Outcome) -> str:
    return f"{len(outcome.elements)} elements{' and an error' if outcome.failed else ''}"
