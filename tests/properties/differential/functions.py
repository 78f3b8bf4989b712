"""User functions of random plans, written once for both libraries.

Each function takes a kit with the operations that differ: :class:`NumpyKit` or the kit of :mod:`.tfdata`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

INT, FLOAT, VECTOR, ROW, PAIR, DICT, BYTES = "int", "float", "vector", "row", "pair", "dict", "bytes"
"""Kinds of elements: scalars, three numbers, any number of numbers, two scalars, a scalar and three numbers, text."""


class NumpyKit:
    """Operations on elements of this package."""

    def numbers(self, count: Any) -> Any:
        return np.arange(count, dtype=np.int64)

    def total(self, array: Any) -> Any:
        return np.sum(array)

    def fail(self, condition: Any) -> None:
        if condition:
            raise ValueError("the plan says so")


class Mapped(NamedTuple):
    """A function of ``map``: kind of its elements and of its results."""

    takes: str
    gives: str
    call: Callable[..., Any]


MAPS: dict[str, Mapped] = {
    "plus one": Mapped(INT, INT, lambda kit, x: x + 1),
    "times three": Mapped(INT, INT, lambda kit, x: x * 3),
    "negated": Mapped(INT, INT, lambda kit, x: -x),
    "remainder": Mapped(INT, INT, lambda kit, x: x % 5),
    "half": Mapped(INT, FLOAT, lambda kit, x: x / 2),
    "pair": Mapped(INT, PAIR, lambda kit, x: (x, x * x)),
    "dict": Mapped(INT, DICT, lambda kit, x: {"a": x, "b": kit.numbers(3) + x}),
    "vector": Mapped(INT, VECTOR, lambda kit, x: kit.numbers(3) * x),
    "row": Mapped(INT, ROW, lambda kit, x: kit.numbers(x % 4)),
    "fails at 3": Mapped(INT, INT, lambda kit, x: _failing(kit, x, 3)),
    "fails at 0": Mapped(INT, INT, lambda kit, x: _failing(kit, x, 0)),
    "sum of a vector": Mapped(VECTOR, INT, lambda kit, x: kit.total(x)),
    "sum of a row": Mapped(ROW, INT, lambda kit, x: kit.total(x)),
    "swapped": Mapped(PAIR, PAIR, lambda kit, x, y: (y, x)),
    "sum of a pair": Mapped(PAIR, INT, lambda kit, x, y: x + y),
    "field": Mapped(DICT, INT, lambda kit, x: x["a"]),
    "field b": Mapped(DICT, VECTOR, lambda kit, x: x["b"]),
    "doubled": Mapped(FLOAT, FLOAT, lambda kit, x: x * 2),
}


def _failing(kit: Any, x: Any, number: int) -> Any:
    """Return ``x``, or fail if ``x`` is ``number``."""
    checked = kit.fail(x == number)
    return x if checked is None else checked(x)


PREDICATES: dict[str, tuple[str, Callable[..., Any]]] = {
    "even": (INT, lambda kit, x: x % 2 == 0),
    "below 4": (INT, lambda kit, x: x < 4),
    "nothing": (INT, lambda kit, x: x != x),
    "everything": (INT, lambda kit, x: x == x),
    "first is odd": (PAIR, lambda kit, x, y: x % 2 == 1),
    "some": (FLOAT, lambda kit, x: x > 0.6),
}


SCANS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "sum": lambda state, x: (state + x, state + x),
    "last but one": lambda state, x: (x, state),
}
"""Functions of ``scan``: (state, element) -> (next state, result)."""
