"""Functions and constants that drawn programs use by name. Importable, so that plans pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plan_functions as fn

import aiostream_data as asd
from aiostream_data.formats.tfrecord import TFRecordFormat

FEATURES: dict[str, asd.FixedLen | asd.VarLen] = {
    "n": asd.FixedLen((), np.int64),
    "name": asd.FixedLen((), bytes),
    "values": asd.VarLen(np.int64),
}

FORMAT = TFRecordFormat()

CSV_SCHEMA = {"n": np.int32, "x": np.float64, "name": str}

JSON_SCHEMA = {"n": np.int32, "more": {"x": np.float64, "values": asd.VarLen(np.int64)}, "name": str}

SEQUENCE_FEATURES: dict[str, asd.FixedLen | asd.VarLen] = {"t": asd.FixedLen((), np.int64)}


NUMBER = asd.ArraySpec((), np.dtype(np.int64))
"""Spec of a number."""


def frame(rows: int) -> Any:
    """Return a data frame of pandas, or a table of PyArrow, by its number of rows."""
    columns = {
        "n": np.arange(rows),
        "name": [f"row {row}" if row % 4 else None for row in range(rows)],
        "x": np.arange(rows, dtype=np.float32) / 2,
    }
    if rows % 2:
        import pandas as pd

        return pd.DataFrame(columns)
    import pyarrow as pa

    return pa.table(columns)


def length(*element: Any) -> int:
    """Return a length from 0 to 5, by the content of an element."""
    return fn.number(*element) % 6


def cost(*element: Any) -> int:
    """Return a cost from 1 to 4, by the content of an element."""
    return 1 + fn.number(*element) % 4


def dense(batch: Any) -> Any:
    """Return a sparse batch as an array."""
    return batch.toarray()


def rows_of_window(window: asd.Dataset[Any]) -> asd.Dataset[Any]:
    """Return a window that is a data set."""
    return window


def class_of(*element: Any) -> int:
    """Return a class from 0 to 2, by the content of an element."""
    return fn.number(*element) % 3


def fails_at_times(*element: Any) -> int:
    """Return the number of an element, or raise for every fifth number."""
    number = fn.number(*element)
    if number % 5 == 2:
        raise ValueError(f"number {number} is refused")
    return number


def few_or_failing(*element: Any) -> list[int]:
    """Return some numbers, or raise for every fifth number."""
    first = fails_at_times(*element)
    return list(range(10 * first, 10 * first + first % 4))


def started() -> dict[str, int]:
    """Return the state of a worker."""
    return {"offset": 7}


def shifted(*element: Any, state: dict[str, int]) -> int:
    """Return the number of an element, shifted by what the worker knows."""
    return fn.number(*element) + state["offset"]


def drawn_inside(*element: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Return the number of an element with two draws of different types."""
    return {"n": fn.number(*element), "draw": rng.integers(1 << 40), "noise": rng.normal(size=2)}


async def is_kept_later(*element: Any) -> bool:
    """Return whether to keep an element, from a coroutine."""
    return fn.is_kept(await fn.later(*element))


def size_of_key(key: int) -> int:
    """Return a number from 1 to 4, by the key of a group."""
    return 1 + int(key) * 3 % 4


def whole_window(key: int, window: asd.Dataset[Any]) -> asd.Dataset[Any]:
    """Return a window as it is."""
    return window


def numbered_window(key: int, window: asd.Dataset[Any]) -> asd.Dataset[Any]:
    """Return the numbers of the elements of a window, in another order."""
    return window.map(fn.number).shuffle(3, seed=1).batch(2).unbatch()


def twice_window(key: int, window: asd.Dataset[Any]) -> asd.Dataset[Any]:
    """Return the numbers of the elements of a window twice."""
    return window.map(fn.number).repeat(2)


def numbers_of_window(key: int, window: asd.Dataset[Any]) -> list[int]:
    """Return the key of a window as an iterable."""
    return [key, key]


def as_numbers(rows: asd.Dataset[Any]) -> asd.Dataset[Any]:
    """Return the numbers of elements."""
    return rows.map(fn.number)


def as_numbers_twice(rows: asd.Dataset[Any]) -> asd.Dataset[Any]:
    """Return the numbers of elements twice, in another order."""
    return rows.map(fn.number).shuffle(2, seed=3).repeat(2)


def folded(state: int, element: Any) -> int:
    """Return a number that depends on all elements so far."""
    return (31 * state + fn.number(element)) % fn.MODULUS


def fails_never(state: int) -> int:
    """Return the negative of a number."""
    return -state


def listed(elements: list[Any]) -> list[Any]:
    """Return the elements of a batch as they are."""
    return elements


def count_and_number(elements: list[Any]) -> dict[str, int]:
    """Return the number of elements of a batch, and a number that depends on all of them."""
    return {"rows": len(elements), "n": fn.number(elements)}


def is_usual(*element: Any) -> bool:
    """Return False for every 29th number."""
    return fn.number(*element) % 29 != 17


def is_drawn(*element: Any, rng: np.random.Generator) -> bool:
    """Return whether to keep an element, by a draw: of four, three are kept."""
    return bool(rng.integers(4))


async def is_drawn_later(*element: Any, rng: np.random.Generator) -> bool:
    """Return the same from a coroutine."""
    await fn.later(*element)
    return is_drawn(*element, rng=rng)


async def drawn_later(*element: Any, rng: np.random.Generator) -> tuple[int, int]:
    """Return the number of an element and a draw, from a coroutine."""
    return await fn.later(*element), int(rng.integers(1 << 30))


def few_zipped(*element: Any) -> asd.Dataset[Any]:
    """Return a data set whose rows have wide ids: a join inside flat_map()."""
    first = fn.number(*element)
    left = asd.Dataset.range(10 * first, 10 * first + first % 4)
    return left.zip(asd.Dataset.range(900, 908).batch(2).unbatch()).map(fn.drawn)


def few_in_memory(*element: Any) -> Any:
    """Return a few numbers in memory, in a form that differs from element to element."""
    first = fn.number(*element)
    numbers = [10 * first + row for row in range(first % 4)]
    form = first * 7919 % 7
    if form < 2:
        return tuple(numbers) if form else numbers
    if form == 2:
        return np.array(numbers, np.int64)
    if form == 6:
        return asd.Dataset.range(10 * first, 10 * first + first % 3).repeat(2)
    if form == 3:
        return asd.Dataset.from_iterable(numbers)
    return asd.Dataset.range(10 * first, 10 * first + first % 4) if form == 4 else iter(numbers)


def few_concatenated(*element: Any) -> asd.Dataset[int]:
    """Return a data set whose rows have ids of two widths."""
    first = fn.number(*element)
    left = asd.Dataset.range(10 * first, 10 * first + first % 3)
    return left.concatenate(asd.Dataset.range(500, 500 + first % 4).batch(2).unbatch())


def weights_of(row: int) -> list[int]:
    """Return weights of two data sets, by the row of a mixture."""
    return [1 + row % 3, 2]


def totalled(total: int, element: Any) -> tuple[int, int]:
    """Return the sum of the numbers of all elements so far, as state and output."""
    total = (total + fn.number_of(element)) % fn.MODULUS
    return total, total


def remembered(seen: list[int], element: Any) -> tuple[list[int], dict[str, Any]]:
    """Change the state where it is, and return a number made of the last three elements."""
    seen.append(fn.number_of(element))
    del seen[:-3]
    return seen, {"n": fn.number_of(seen), "x": np.full(2, len(seen), np.float32)}


def gathered(seen: frozenset[int], element: Any) -> tuple[frozenset[int], int]:
    """Return a state that no saved place contains, and a number made of it."""
    seen = seen | {fn.number_of(element) % 5}
    return seen, 10 * len(seen) + fn.number_of(element) % 10


class Collected:
    """Aggregator that emits the numbers that it holds with their sum, after each multiple of 3."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def add(self, element: Any) -> list[int]:
        self.held.append(fn.number_of(element) % fn.MODULUS)
        return self.flush() if self.held[-1] % 3 == 0 else []

    def flush(self) -> list[int]:
        held, self.held = self.held, []
        return [sum(held) % fn.MODULUS, *held]


class StoredCollected(Collected):
    """The same with a state that a saved place contains."""

    def state(self) -> tuple[int, ...]:
        return tuple(self.held)

    def restore(self, state: tuple[int, ...]) -> None:
        self.held = list(state)


class Broken(Exception):
    """What the functions here fail with."""


@dataclass(frozen=True)
class Breaks:
    """A function that gives every element back, but for about one of ``share``, on which it fails.

    Attributes:
        seed: Draws which elements those are.
        as_predicate: Return True instead.
        as_lengths: Return another number of values for one of them, which do not stack with the others.
    """

    seed: int
    share: int
    as_predicate: bool = False
    as_lengths: bool = False

    def __call__(self, *element: Any) -> Any:
        is_bad = (fn.number(*element) * 7919 + self.seed) % 1009 % self.share == 0
        if self.as_lengths:
            return np.full(2 if is_bad else 3, fn.number(*element))
        if is_bad:
            raise Broken(str(fn.number(*element)))
        if self.as_predicate:
            return True
        return element if len(element) > 1 else element[0]


@dataclass(frozen=True)
class BreaksLater(Breaks):
    """The same as a coroutine function."""

    async def __call__(self, *element: Any) -> Any:
        await fn.later(*element)
        return super().__call__(*element)


@dataclass(frozen=True)
class BreaksInside(Breaks):
    """A function for flat_map() and interleave() that fails, or gives a data set that does."""

    def __call__(self, *element: Any) -> Any:
        value = fn.number(*element)
        if value % 3 == 0:
            super().__call__(*element)
        return asd.Dataset.range(10 * value, 10 * value + value % 5).map(Breaks(self.seed, self.share))


@dataclass(frozen=True)
class Parts:
    """Function that returns ``count`` rows for a number."""

    count: int

    def __call__(self, number: int) -> list[int]:
        return [100 * int(number) + part for part in range(self.count)]


@dataclass(frozen=True)
class Divided:
    """Function that returns the place of a row if each element has ``count`` rows."""

    count: int

    def __call__(self, number: int) -> tuple[int, int]:
        return divmod(number, self.count)
