"""Read a data set with small shards in groups, and again with each shard alone: the result must be the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from aiostream_data import Dataset
from aiostream_data._engine.sources import group_limits
from aiostream_data._engine.sources.small_shards import SmallShards
from aiostream_data._engine.sources.small_tables import SmallTables
from aiostream_data.failing.dead_letter_log import read_entries
from aiostream_data.testing.comparing import same

_DRAWN = re.compile(r"127\.0\.0\.1:\d+|request id \w+|[0-9.]+ s\b")
_LOGGED = ("url", "offset", "nbytes", "lost", "index", "error", "done", "row")


def _shown(value: Any) -> Any:
    """Return a value without what differs in each run."""
    return _DRAWN.sub("", value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Outcome:
    """What a reader of a data set sees.

    Attributes:
        rows: All rows, in order.
        error: Class and text of the error that ended the rows, without what differs in each run; None without an error.
        skipped: Number of skipped records, of all stages.
        logged: Entries of the dead-letter log, sorted.
    """

    rows: list[Any]
    error: tuple[type[BaseException], str] | None
    skipped: int
    logged: list[tuple[Any, ...]]


def outcome(dataset: Dataset[Any], log: Path, **options: Any) -> Outcome:
    """Read all rows of a data set, until an error."""
    rows: list[Any] = []
    error: tuple[type[BaseException], str] | None = None
    log.unlink(missing_ok=True)
    with dataset.open(dead_letters=log, **options) as loader:
        try:
            rows.extend(loader)
        except Exception as raised:
            error = type(raised), _shown(str(raised))
        skipped = sum(stage.skipped for stage in loader.stats().stages)
    entries = read_entries(log) if log.exists() else ()
    logged = sorted((tuple(_shown(entry.get(name)) for name in _LOGGED) for entry in entries), key=repr)
    return Outcome(rows, error, skipped, logged)


@contextmanager
def alone() -> Iterator[None]:
    """Read each shard alone in this block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_limits, "GROUP_NBYTES", 0)
        yield


@contextmanager
def grouped(nbytes: int = group_limits.GROUP_NBYTES) -> Iterator[list[int]]:
    """Read groups of at most ``nbytes`` bytes in this block. Return the number of shards of each group."""
    sizes: list[int] = []

    def noting(read: Callable[..., Any]) -> Callable[..., Any]:
        async def noted(self: Any, group: Any, *args: Any) -> Any:
            sizes.append(len(group))
            return await read(self, group, *args)

        return noted

    with pytest.MonkeyPatch.context() as patch:
        for reader in (SmallShards, SmallTables):
            patch.setattr(reader, "read", noting(reader.read))
        patch.setattr(group_limits, "GROUP_NBYTES", nbytes)
        yield sizes


def check_both_ways(dataset: Dataset[Any], log: Path, group_nbytes: int = group_limits.GROUP_NBYTES) -> Outcome:
    """Read a data set in groups, and each shard alone. Return the outcome, which must be the same."""
    with grouped(group_nbytes) as sizes:
        found = outcome(dataset, log)
    with alone():
        expected = outcome(dataset, log)
    assert same(found.rows, expected.rows), f"in groups of {sizes} {found}, but alone {expected}"
    assert replace(found, rows=[]) == replace(expected, rows=[])
    assert max(sizes) > 1
    return found
