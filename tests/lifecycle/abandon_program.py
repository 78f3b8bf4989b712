"""A program that abandons iterations, in each way in turn: ``python abandon_program.py STAGE SHARD...``.

It prints by how many bytes its memory has grown a cycle, and anything else that Python has to say.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from leaks import leaves_nothing
from pipelines import STAGES
from test_leaving_early import (
    by_an_exception_in_the_loop_body,
    by_closing_the_consumers_event_loop,
    by_dropping_an_async_iterator,
    by_dropping_the_iterator,
    by_dropping_the_loader,
)

from aiostream_data import Dataset

CYCLES = 210
EARLY, LATE = slice(60, 90), slice(180, 210)
"""Between which growth is measured: by the least of each, as free memory that allocators keep comes and goes."""


def by_abandoning_a_generator(dataset: Dataset[Any], after: int) -> None:
    def training() -> Iterator[Any]:
        with dataset.open() as loader:
            yield from loader

    steps = training()
    for _ in itertools.islice(steps, after):
        pass
    del steps
    gc.collect()


WAYS: list[Callable[[Dataset[Any], int], None]] = [
    by_an_exception_in_the_loop_body,
    by_dropping_the_iterator,
    by_dropping_the_loader,
    by_abandoning_a_generator,
    by_dropping_an_async_iterator,
    by_closing_the_consumers_event_loop,
]


def resident_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(stage: str, shards: list[str]) -> None:
    resident = []
    gc.freeze()  # what is imported takes no part in thousands of collections
    with leaves_nothing():
        for cycle in range(CYCLES):
            WAYS[cycle % len(WAYS)](STAGES[stage](shards), 1 + cycle % 2)
            resident.append(resident_nbytes())
    grown = min(resident[LATE]) - min(resident[EARLY])
    sys.stdout.write(f"{grown / (LATE.start - EARLY.start)}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
