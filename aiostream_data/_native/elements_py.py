"""Pull elements, split dicts and tuples into lists, and build dicts: the pure-Python version of ``elements.pyx``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any


def dict_columns(elements: list[Any], names: tuple[Any, ...]) -> list[list[Any]] | None:
    """Return a list of values for each name, or None unless all elements are dicts with exactly these keys."""
    if not all(type(element) is dict and len(element) == len(names) for element in elements):
        return None
    try:
        return [[element[name] for element in elements] for name in names]
    except KeyError:
        return None


def tuple_columns(elements: list[Any], size: int) -> list[list[Any]] | None:
    """Return a list of values for each position, or None unless all elements are tuples of this size."""
    if not all(type(element) is tuple and len(element) == size for element in elements):
        return None
    return [[element[place] for element in elements] for place in range(size)]


def dicts_of(names: tuple[Any, ...], columns: list[list[Any]]) -> list[dict[Any, Any]]:
    """Return the dict of each row, from a list of values for each name."""
    if len(columns) != len(names) or not columns:
        raise ValueError("one column is needed for each name")
    if any(len(column) != len(columns[0]) for column in columns):
        raise ValueError("the columns have different lengths")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def pull_elements(
    iterator: Iterator[Any], elements: list[Any], count: int, nbytes: int, until_s: float, sizes: Callable[[Any], int]
) -> bool:
    """Append elements of an iterator to a list, and return True if the iterator has ended.

    An error of the iterator is raised after the elements before it are appended.

    Args:
        count, nbytes: The function stops at this many appended elements or bytes.
        until_s: Time of ``perf_counter``, in seconds, after which no further element is taken.
        sizes: Function that returns the size of an element in bytes. Numbers count as 8 bytes.
    """
    taken = size = 0
    while taken < count and size < nbytes and perf_counter() < until_s:
        try:
            element = next(iterator)
        except StopIteration:
            return True
        elements.append(element)
        taken += 1
        size += 8 if type(element) in (int, float) else sizes(element)
    return False
