"""Let tens of rows cross the engine in several chunks, ranges and hops, as millions do otherwise."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import every_stage  # noqa: F401 - the stages are what is changed
import pytest

from aiostream_data import Dataset, Loader
from aiostream_data.plan.base import Node
from aiostream_data.storage import ranges

_SIZES_OF: Mapping[str, str] = {
    "CHUNK_ROWS": "rows",
    "HOP_ROWS": "rows",
    "FIRST_ROWS": "rows",
    "SMALL_ROWS": "small",
    "BLOCK_ROWS": "rows",
    "CALLS_PER_HOP": "rows",
    "FIRST_NBYTES": "nbytes",
    "NEXT_NBYTES": "nbytes",
    "NEAR_NBYTES": "nbytes",
    "GROUP_NBYTES": "group",
    "GROUP_SHARDS": "rows",
}
"""Constants that say how the engine cuts its work, and whether in rows or in bytes, or what counts as small."""

SMALL_ROWS = 3
"""Decides how an inner data set is run, and so how its place is told: the same whenever it is opened."""


Cut = Callable[[int, int], None]
"""Given rows and bytes: chunks have at most about so many rows from now on, ranges of files so many bytes."""


@contextmanager
def small_chunks() -> Iterator[Cut]:
    """Lend a function that changes the sizes in which the engine cuts its work, until the block is left."""
    with pytest.MonkeyPatch.context() as patch:

        def cut(rows: int, nbytes: int) -> None:
            group = nbytes * rows if rows % 2 else 0  # 0 reads every shard alone
            sizes = {"rows": rows, "nbytes": nbytes, "small": SMALL_ROWS, "group": group}
            for module, constant in _constants():
                patch.setattr(module, constant, sizes[_SIZES_OF[constant]])
            patch.setattr(ranges.plan_ranges, "__defaults__", (nbytes, nbytes, 0))

        yield cut


def _constants() -> list[tuple[ModuleType, str]]:
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("aiostream_data")]
    found = [(module, name) for module in modules for name in _SIZES_OF.keys() & vars(module).keys()]
    assert {name for _, name in found} == _SIZES_OF.keys(), "a constant has another name now"
    return found


@dataclass
class Recut:
    """A data set that is cut into chunks of other sizes every time it is opened; to be used with ``cut`` lent."""

    dataset: Dataset[Any]
    cut: Cut
    sizes: Iterator[tuple[int, int]]

    @property
    def plan(self) -> Node:
        return self.dataset.plan

    def open(self, **options: Any) -> Loader[Any]:
        self.cut(*next(self.sizes))
        fresh: Dataset[Any] = pickle.loads(pickle.dumps(self.dataset))  # with an empty cache
        return fresh.open(**options)
