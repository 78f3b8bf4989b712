"""Call user functions over the rows of a chunk, on a worker, and say which row one failed on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import starmap
from operator import length_hint
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._engine.origins import Origins
from aiostream_data.errors import PlanError
from aiostream_data.lineage import NO_PAIR, Ids
from aiostream_data.plan.operators import function_name
from aiostream_data.records import Chunk, Columns, Items, concat
from aiostream_data.structure import LEAF, flatten
from aiostream_data.transforms.batching import batch_leaf
from aiostream_data.transforms.collate import collate, stack
from aiostream_data.transforms.randomness import RecordGenerator, key_of

BLOCK_ROWS = 4096
"""Rows whose Python objects exist at once: few enough for the processor's cache."""

MAX_GENERATORS = 256
"""Random generators kept at once."""

Describe = Callable[[Ids, int], str]
"""Names the record of a row: (ids, row) -> "URL record N"."""

Stable = Callable[[int], tuple[int, int, int]]
"""Gives (source, epoch, split) for the split number of a row id."""


@dataclass(frozen=True)
class UserFunction:
    """A user's function and how it is called.

    A plain tuple is unpacked into arguments, as tf.data does; dicts and NamedTuples are not.

    Attributes:
        describe: Names a record in notes.
        rng_key: When given, the function takes ``rng``: a Generator keyed by seed, epoch and record.
        stable: Needed with ``rng_key``.
    """

    function: Callable[..., Any]
    describe: Describe
    rng_key: np.uint64 | None = None
    stable: Stable | None = None

    def results(self, chunk: Chunk) -> list[Any]:
        """Return the function's result for every row, in order.

        Raises:
            BaseException: What the function raised, with notes naming function and record.
        """
        elements = chunk.elements()
        left = iter(elements)
        try:
            results = list(self._calls(left, chunk))
        except BaseException as error:
            self.note(error, elements, chunk.ids, len(elements) - length_hint(left) - 1)
            raise
        if len(results) < len(elements):  # StopIteration inside list() ends it silently
            stopped = StopIteration("raised by the function")
            self.note(stopped, elements, chunk.ids, len(results))
            raise stopped
        return results

    def _calls(self, left: Iterator[Any], chunk: Chunk) -> Iterator[Any]:
        if self.rng_key is not None:
            return self._calls_with_rng(left, chunk.ids)
        if isinstance(chunk, Columns):
            return starmap(self.function, left) if chunk.structure.kind == "tuple" else map(self.function, left)
        kinds = set(map(type, chunk.values))
        if tuple not in kinds:
            return map(self.function, left)
        return starmap(self.function, left if len(kinds) == 1 else map(_as_arguments, left))

    def _calls_with_rng(self, left: Iterator[Any], ids: Ids) -> Iterator[Any]:
        assert self.rng_key is not None
        assert self.stable is not None
        generators: dict[tuple[int, ...], RecordGenerator] = {}
        for element, (split, ordinal, *others) in zip(left, ids.tolist(), strict=True):
            source, epoch, local = self.stable(split)
            names = (source, epoch, *(number for number in others[1::2] if number != NO_PAIR))
            generator = generators.get(names)
            if generator is None:
                generators = generators if len(generators) < MAX_GENERATORS else {}
                generator = generators[names] = RecordGenerator(key_of(int(self.rng_key), *names))
            rng = generator.at(local, ordinal)
            yield self.function(*_as_arguments(element), rng=rng)

    def note(self, error: BaseException, elements: list[Any], ids: Ids, row: int) -> None:
        """Say on an error which function and which row it comes from."""
        error.add_note(f"function: {function_name(self.function)}")
        if 0 <= row < len(elements):
            error.add_note(f"record: {self.describe(ids, row)}")
            error.add_note(f"element: {summary(elements[row])}")


def _as_arguments(element: Any) -> tuple[Any, ...]:
    return element if type(element) is tuple else (element,)


def map_rows(user: UserFunction, chunk: Chunk) -> Chunk:
    """Return the results for every row as a chunk: columns where they fit, else items."""
    if user.rng_key is None and isinstance(chunk, Columns) and chunk.structure.is_leaf:
        numbers = chunk.leaves[0]
        if isinstance(numbers, np.ndarray) and numbers.ndim == 1 and numbers.dtype in (np.int64, np.float64):
            return _map_numbers(user, chunk, numbers)
    if len(chunk) <= BLOCK_ROWS:
        return collate(user.results(chunk), chunk.ids)
    starts = range(0, len(chunk), BLOCK_ROWS)
    return concat([map_rows(user, chunk.slice(start, start + BLOCK_ROWS)) for start in starts])


def _map_numbers(user: UserFunction, chunk: Columns, numbers: NDArray[Any]) -> Chunk:
    """Map plain numbers without boxing more than one at a time, as long as the results are plain numbers, too."""
    row = np.zeros(1, np.int64)
    try:
        results, done, odd = _native.map_scalars(user.function, numbers, row)
    except BaseException as error:
        user.note(error, chunk.elements(), chunk.ids, int(row[0]))
        raise
    if done == len(chunk):
        return Columns(LEAF, (results,), chunk.ids)
    rest = user.results(chunk.slice(done + 1, len(chunk)))
    return collate([*results[:done].tolist(), odd, *rest], chunk.ids)


def kept_rows(user: UserFunction, chunk: Chunk) -> NDArray[np.int64]:
    """Return the numbers of the rows for which the function is true, ascending.

    Raises:
        PlanError: It returned something else than a scalar bool; a note names the record.
    """
    kept = user.results(chunk)
    for row, value in enumerate(kept):
        if not isinstance(value, (bool, np.bool_)) and not _is_bool0d(value):
            error = PlanError(
                f"the predicate of filter() must return a scalar bool, but {function_name(user.function)} "
                f"returned {summary(value)}"
            )
            error.add_note(f"record: {user.describe(chunk.ids, row)}")
            raise error
    return np.flatnonzero(np.array(kept, bool))


def _is_bool0d(value: Any) -> bool:
    return getattr(value, "shape", None) == () and getattr(value, "dtype", None) == np.bool_


def map_batched(user: UserFunction, chunk: Chunk) -> Chunk:
    """Call the function once with the chunk's rows as arrays; rows in, as many rows out.

    Raises:
        PlanError: The arrays it returned have another number of rows.
    """
    argument = _as_arrays(chunk)
    try:
        result = user.function(*argument) if type(argument) is tuple else user.function(argument)
    except BaseException as error:
        error.add_note(f"function: {function_name(user.function)}")
        error.add_note(f"records: {user.describe(chunk.ids, 0)} to {user.describe(chunk.ids, len(chunk) - 1)}")
        raise
    structure, leaves = flatten(result)
    arrays = tuple(np.asarray(leaf) for leaf in leaves)
    for path, array in zip(structure.paths(), arrays, strict=True):
        if array.ndim == 0 or len(array) != len(chunk):
            raise PlanError(
                f"a batched map function must return as many rows as it was given ({len(chunk)}), "
                f"but {path} has shape {array.shape}"
            )
    return Columns(structure, arrays, chunk.ids)


def _as_arrays(chunk: Chunk) -> Any:
    """Return the rows as one element of arrays, rows first."""
    if isinstance(chunk, Items):
        return stack(chunk.values, lambda row: f"row {row}")
    return chunk.structure.unflatten([batch_leaf(leaf) for leaf in chunk.leaves])


def summary(value: Any) -> str:
    """Describe a value by type, shape and dtype, never by its data."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {summary(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(summary(part) for part in value[:8]) + (", ..." if len(value) > 8 else "")
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (bytes, str)):
        return f"{type(value).__name__}[{len(value)}]"
    return repr(value) if isinstance(value, (int, float, bool, type(None))) else type(value).__name__


_UNNAMED = re.compile(r"record: row (-?\d+(?::-?\d+)+)")


def _unnamed(ids: Ids, row: int) -> str:
    return "row " + ":".join(map(str, ids[row].tolist()))


@dataclass(frozen=True)
class _StableTable:
    table: dict[int, tuple[int, int, int]]

    def __call__(self, split: int) -> tuple[int, int, int]:
        return self.table[split]


def without_origins(user: UserFunction, ids: Ids) -> UserFunction:
    """Return the same function for these rows, free of references that cannot go to another process."""
    stable = user.stable
    table = None if stable is None else _StableTable({int(s): stable(int(s)) for s in np.unique(ids[:, 0])})
    return UserFunction(user.function, _unnamed, user.rng_key, table)


def name_records(error: BaseException, origins: Origins) -> None:
    """Replace the row ids in an error's notes, as written where origins are unknown, by record names."""
    notes = getattr(error, "__notes__", None)
    if not notes:
        return
    for number, note in enumerate(notes):
        found = _UNNAMED.fullmatch(note)
        if found:
            numbers = [int(number) for number in found[1].split(":")]
            notes[number] = f"record: {origins.name_of(list(zip(numbers[::2], numbers[1::2], strict=True)))}"
