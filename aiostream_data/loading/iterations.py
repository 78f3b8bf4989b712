"""Iterators over a dataset: each opens a loader, and closes it at the end of the stream or on an error."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Generic, Self, TypeVar, cast

from aiostream_data.loading.loader import Loader, portions_of

T = TypeVar("T")


class Iteration(itertools.chain[T]):
    """Iterator over a dataset. Its first element opens the loader. Dropping or closing the iterator closes the loader.

    ``chain`` takes the elements of a parcel without a call of a Python function for each.
    """

    _portions: Generator[Iterator[T], None, None]

    @classmethod
    def over(cls, open_next: Callable[[], Loader[T]]) -> Self:
        """Return an iterator over the loader that ``open_next`` opens."""
        portions = _portions(open_next)
        made = cast(Self, cls.from_iterable(portions))
        made._portions = portions
        return made

    def close(self) -> None:
        """Close the loader. The iterator has no further elements."""
        self._portions.close()


def _portions(open_next: Callable[[], Loader[T]]) -> Generator[Iterator[T], None, None]:
    with open_next() as loader:
        yield from portions_of(loader)


class AsyncIteration(Generic[T]):
    """Async iterator over a loader. The iterator closes the loader at the end of the stream or on an error."""

    def __init__(self, loader: Loader[T]) -> None:
        self._loader = loader

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await anext(self._loader)
        except BaseException:
            await self._loader.aclose()
            raise
