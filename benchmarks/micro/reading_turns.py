"""Time several readers of the same files, which take turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import TypeVar

Place = TypeVar("Place")


def samples_per_s(
    readers: Mapping[str, Callable[[Place], int]], place: Place, count: int, repetitions: int
) -> dict[str, float]:
    """Return samples per second by reader: the median of the passes after the first, which warms up.

    Args:
        readers: Functions that read all samples at a place and return their number. A reader that returns 0 parses
            nothing, and its rate is that of the samples whose bytes it read.
        count: Number of samples at the place.

    Raises:
        RuntimeError: A reader found another number of samples.
    """
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(repetitions + 1):
        for name, read in readers.items():
            began = perf_counter()
            found = read(place)
            seconds[name].append(perf_counter() - began)
            if found not in (0, count):
                raise RuntimeError(f"{name} read {found} samples of {count}")
    return {name: count / median(times[1:]) for name, times in seconds.items()}
