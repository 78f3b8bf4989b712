"""Hold what a run gave against the reference: elements, origins, hashes; as multisets of rows without an order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL.Image import Image

import aiostream_data as asd
from aiostream_data.testing.comparing import difference, multiset_difference, same, sequence_difference, shown
from metamorphic.running import Given

_LARGEST_NUMBER = 1 << 23
"""Numbers of drawn programs are smaller; larger ones were drawn by ``rng``."""


@dataclass(frozen=True)
class Finding:
    """What is wrong with a run.

    Attributes:
        kind: In one word or two, to count findings by.
        text: What differs, in a sentence.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Wanted:
    """What a run must give.

    Attributes:
        given: By the reference.
        batched: Elements are batches, whose rows count where the order does not.
        named: Rows have the same names in any order.
    """

    given: Given
    batched: bool
    named: bool


def compare_in_order(wanted: Given, legs: Sequence[Given]) -> Finding | None:
    """Return what is wrong with a run that must give the same elements in the same order.

    Origins and hashes are compared as far as both have them.
    """
    elements = [element for leg in legs for element in leg.elements]
    found = sequence_difference(wanted.elements, elements, same)
    if found is not None:
        kind = "draws" if same(_masked(wanted.elements), _masked(elements)) else "elements"
        return Finding(kind, found.replace(" of the rest", ""))
    return _origins_in_order(wanted, legs) or _hashes_in_order(wanted, legs)


def _origins_in_order(wanted: Given, legs: Sequence[Given]) -> Finding | None:
    got = [origins for leg in legs for origins in leg.origins]
    for number, (expected, found) in enumerate(zip(wanted.origins, got, strict=False)):
        if expected is None or found is None or expected == found:
            continue
        where, told = f"of the rows of element {number}", [origin[:4] for origin in expected]
        if told != [origin[:4] for origin in found]:
            return Finding("origins", f"origins {where}: {difference(expected, found)}")
        return Finding("names", f"names {where}, {told}: expected {_names(expected)}, found {_names(found)}")
    return None


def _names(origins: list[Any]) -> str:
    return shown([origin[4] for origin in origins])


def _hashes_in_order(wanted: Given, legs: Sequence[Given]) -> Finding | None:
    first = 0
    for number, leg in enumerate(legs):
        for place, (expected, got) in enumerate(zip(wanted.hashes[first:], leg.hashes, strict=False)):
            if expected != got:
                text = f"after {first + place} elements, {place} since stop {number}"
                return Finding("hash", f"stream_hash {text}: expected {expected}, found {got}")
        first += len(leg.elements)
    return None


def compare_in_any_order(wanted: Wanted, legs: Sequence[Given]) -> Finding | None:
    """Return what is wrong with a run that must give the same rows in whatever order and batches."""
    expected, got = list(_cut(wanted, [wanted.given])), list(_cut(wanted, legs))
    found = multiset_difference(*([row for rows, _ in given for row in rows] for given in (expected, got)))
    if found is not None:
        return Finding("rows", found)
    if all(len(rows) == len(origins) for rows, origins in expected + got):
        pairs = ([pair for both in given for pair in zip(*both, strict=True)] for given in (expected, got))
        found = multiset_difference(*pairs)
    else:  # rows made of several others: how many of a batch's origins are whose is not told
        found = multiset_difference(*([origin for _, told in given for origin in told] for given in (expected, got)))
    return None if found is None else Finding("origins", f"with their origins, {found}")


def _cut(wanted: Wanted, given: Iterable[Given]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield the rows of every element, and the origins of all of them together."""
    for leg in given:
        for element, origins in zip(leg.elements, leg.origins, strict=True):
            assert origins is not None
            told = origins if wanted.named else [origin[:3] for origin in origins]
            yield (rows_of(element), told) if wanted.batched else ([element], [tuple(told)])


def rows_of(batch: Any) -> list[Any]:
    """Return the rows of a batch in the structure of its elements."""
    return [_row(batch, row) for row in range(_length(batch))]


def _row(value: Any, row: int) -> Any:
    if isinstance(value, dict):
        return {key: _row(part, row) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_row(part, row) for part in value)
    return value[row]


def _length(value: Any) -> int:
    while isinstance(value, (dict, tuple)):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return len(value)


def _masked(value: Any) -> Any:
    """Return a value with 0 for every number that ``rng`` may have drawn."""
    if isinstance(value, dict):
        return {key: _masked(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(map(_masked, value))
    if isinstance(value, np.ndarray):
        return _masked(value.tolist())
    if isinstance(value, (float, np.floating)):
        return 0
    return 0 if isinstance(value, (int, np.integer)) and abs(int(value)) > _LARGEST_NUMBER else value


def plain(value: Any) -> Any:
    """Return a value with plain numbers and lists instead of those of NumPy, as rows are before they are batched."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(map(plain, value))
    if isinstance(value, Image):
        value = np.asarray(value)
    if isinstance(value, (asd.BytesArray, asd.TextArray)):
        return value.to_list()
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
