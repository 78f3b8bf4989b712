"""Call a user function with a random generator that is moved to the stream of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from aiostream_data._engine.resume.row_keys import Stable, rng_names
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.randomness import RecordGenerator, key_of

MAX_GENERATORS: Final = 256
"""Maximum number of random generators kept in the cache."""


def calls_with_rng(
    function: Callable[..., Any], left: Iterator[Any], ids: RowIds, key: np.uint64, stable: Stable
) -> Iterator[Any]:
    """Call ``function(element, rng=...)`` for each element, and yield the results.

    Args:
        ids: Ids of the elements.
        key: Random key of the function.
        stable: Function that returns a row name that is equal in every run.
    """
    generators = _Generators(key, stable)
    single = ids.source_pairs()
    if single is None:
        for element, numbers in zip(left, ids.tolist(), strict=True):
            yield _call(function, element, generators.of(numbers))
        return
    known: dict[int, tuple[RecordGenerator, int]] = {}  # generator and split inside the source, by split number
    for element, (split, ordinal) in zip(left, single.tolist(), strict=True):
        found = known.get(split)
        if found is None:
            known = known if len(known) < MAX_GENERATORS else {}
            found = known[split] = generators.find([split, ordinal])
        yield _call(function, element, found[0].at(found[1], ordinal))


class _Generators:
    """One generator for all rows whose names differ only in the split and the ordinal."""

    def __init__(self, key: np.uint64, stable: Stable) -> None:
        self._key, self._stable = key, stable
        self._known: dict[tuple[int, ...], RecordGenerator] = {}

    def of(self, numbers: list[int]) -> np.random.Generator:
        """Return the generator of a row, given the numbers of its id."""
        generator, split = self.find(numbers)
        return generator.at(split, numbers[1])

    def find(self, numbers: list[int]) -> tuple[RecordGenerator, int]:
        """Return the generator of a row, which is not moved, and the split of the row inside its source."""
        names, split, _ = rng_names(numbers, self._stable)
        generator = self._known.get(names)
        if generator is None:
            if len(self._known) >= MAX_GENERATORS:
                self._known.clear()
            generator = self._known[names] = RecordGenerator(key_of(int(self._key), *names))
        return generator, split


def _call(function: Callable[..., Any], element: Any, rng: np.random.Generator) -> Any:
    return function(*element, rng=rng) if type(element) is tuple else function(element, rng=rng)
