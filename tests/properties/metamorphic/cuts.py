"""Cut the work of an engine into chunks, hops and ranges of other sizes, down to one row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType
from typing import Any

import every_stage  # noqa: F401 - the stages are what is changed

from aiostream_data.storage import ranges

_IN_ROWS = (
    "CHUNK_ROWS",
    "HOP_ROWS",
    "HOP_GROWTH",
    "FIRST_ROWS",
    "BLOCK_ROWS",
    "CALLS_PER_HOP",
    "FIRST_PIECE_ROWS",
    "LOGGED_ROWS",
    "ROWS_AT_ONCE",
    "FILL_ROWS",
    "MARK_ROWS",
    "FLUSH_ROWS",
    "GROUP_SHARDS",
    "REQUESTS_OF_A_GROUP",
    "CROWD",
    "BEGIN_ROWS",
    "AHEAD_ROWS",
    "LOOK_ROWS",
    "FIRST_FILES",
    "LOCAL_FILES",
    "GROUPS_AHEAD",
    "EARLY_GROUPS",
    "LOCAL_GROUPS_AHEAD",
    "MOST_SHARDS_AHEAD",
    "FREE",
)
_IN_BYTES = (
    "FIRST_NBYTES",
    "NEXT_NBYTES",
    "NEAR_NBYTES",
    "AMONG_MANY_NBYTES",
    "LOCAL_NBYTES_AHEAD",
    "JOINED_NBYTES",
)
_OF_GROUPS = "GROUP_NBYTES"
"""Bytes of a group of small shards, and maximum bytes of a small shard; 0 reads every shard alone."""
_SEPARATE = ("SEPARATE_NBYTES", "LONG_ROW_NBYTES", "OBJECT_NBYTES")
"""Mean sizes in bytes from which files, rows and members of type ``bytes`` get a ``bytes`` object each."""
_LARGE = ("LARGE_ARRAY_NBYTES", "LARGE_BLOCK_NBYTES")
"""Sizes in bytes from which arrays of batches, and blocks for several arrays, take memory of a pool."""
_RATIO = "COMPRESSION_RATIO"
"""Estimated growth of a compressed shard: decides how many shards form a group, and how many are split at once."""
_SMALL = "SMALL_ROWS"
"""Decides how an inner data set is run, and how its place is saved: the same for all runs of a plan."""


@contextmanager
def cut_by(seed: int | None, small_rows: int | None = None) -> Iterator[None]:
    """Change the sizes in which engines of this process cut their work, until the block is left.

    Args:
        seed: Of the sizes; None leaves them as they are.
        small_rows: Most rows of an inner data set that is run without an engine stage of its own; None: as it is.
    """
    sizes = {} if seed is None else _sizes(Random(seed))
    if small_rows is not None:
        sizes[_SMALL] = small_rows
    before = [(module, name, getattr(module, name)) for module, name in _constants() if name in sizes]
    defaults: Any = ranges.plan_ranges.__defaults__
    try:
        for module, name, _ in before:
            setattr(module, name, sizes[name])
        if seed is not None:
            ranges.plan_ranges.__defaults__ = (sizes["FIRST_NBYTES"], sizes["NEXT_NBYTES"], 0)
        yield
    finally:
        ranges.plan_ranges.__defaults__ = defaults
        for module, name, value in before:
            setattr(module, name, value)


def _sizes(random: Random) -> dict[str, int]:
    rows = random.choice([1, 1, 2, 2, 3, 4, 6, 9, 14])
    nbytes = random.choice([5, 20, 60, 300])
    sizes = {name: random.choice([1, rows, rows, rows, 2 * rows, 5 * rows]) for name in _IN_ROWS}
    sizes |= {name: random.choice([nbytes, nbytes, 3 * nbytes]) for name in _IN_BYTES}
    sizes[_RATIO] = random.choice([1, 4, 30])
    sizes |= {name: random.choice([0, 20, 200, 1 << 15]) for name in _SEPARATE}
    sizes |= {name: random.choice([0, 30, 300, 1 << 22]) for name in _LARGE}
    return sizes | {_OF_GROUPS: random.choice([0, 100, 400, 2_000, 1 << 20])}


_found: list[tuple[ModuleType, str]] = []
_modules = 0


def _constants() -> list[tuple[ModuleType, str]]:
    """Return where these constants are, in all modules that are loaded by now."""
    global _modules
    if len(sys.modules) != _modules:
        known = {*_IN_ROWS, *_IN_BYTES, _OF_GROUPS, *_SEPARATE, *_LARGE, _RATIO, _SMALL}
        modules = [module for name, module in list(sys.modules.items()) if name.startswith("aiostream_data.")]
        _found[:] = [(module, name) for module in modules for name in known & vars(module).keys()]
        _modules = len(sys.modules)
    return _found


def missing_constants() -> set[str]:
    """Return the constants that no module has any more."""
    return {*_IN_ROWS, *_IN_BYTES, _OF_GROUPS, *_SEPARATE, *_LARGE, _RATIO, _SMALL} - {name for _, name in _constants()}
