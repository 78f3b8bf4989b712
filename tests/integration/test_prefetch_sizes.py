"""What prefetch() counts as the size of what it buffers."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import aiostream_data as asd

ELEMENTS = 20


class Measured:
    """Object of a user whose size is counted each time it is asked for."""

    asked: ClassVar[Counter[int]] = Counter()

    def __init__(self, number: int) -> None:
        self.number = number

    @property
    def nbytes(self) -> int:
        self.asked[self.number] += 1
        return 1000 + self.number


def measured() -> list[Measured]:
    return [Measured(number) for number in range(ELEMENTS)]


def all_of(dataset: Any) -> dict[int, int]:
    """Receive all elements, and return how often each was measured."""
    Measured.asked.clear()
    with dataset.open() as loader:
        assert [element.number for element in loader] == list(range(ELEMENTS))
    return dict(Measured.asked)


def test_prefetch_does_not_measure_objects_again() -> None:
    dataset: Any = asd.Dataset.from_generator(lambda: iter(measured()))
    assert all_of(dataset.prefetch(4)) == all_of(dataset)


def test_prefetch_reports_the_bytes_of_its_input() -> None:
    dataset: Any = asd.Dataset.from_generator(lambda: iter(measured()))
    with dataset.prefetch(4).open() as loader:
        list(loader)
        source, prefetch = loader.stats().stages
    assert prefetch.nbytes == source.nbytes >= ELEMENTS * 1000
