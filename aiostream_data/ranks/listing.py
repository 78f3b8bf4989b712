"""What one rank tells the others of the shards that it found, so that they need not list them as well."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiostream_data import errors
from aiostream_data.errors import RankError, StorageError
from aiostream_data.rows.records import ShardRef

Broadcast = Callable[["bytes | None"], bytes]
"""Called once by every rank, with what rank 0 has to say or None; returns what rank 0 gave it."""


@dataclass(frozen=True)
class ListOnce:
    """One rank lists for all.

    Attributes:
        lists: Whether this is the one.
        broadcast: How the others hear of it.
    """

    lists: bool
    broadcast: Broadcast


def told_shards(lists: Sequence[Sequence[ShardRef]]) -> bytes:
    """Return the message with the shards of every source of a plan."""
    rows = [[[shard.url, shard.nbytes, shard.version] for shard in shards] for shards in lists]
    return json.dumps({"shards": rows}).encode()


def told_failure(error: Exception) -> bytes:
    """Return the message that no shards were found."""
    is_storage = isinstance(error, StorageError)
    where = [error.url, error.reason] if isinstance(error, StorageError) else ["", str(error)]
    return json.dumps({"failure": [type(error).__name__ if is_storage else "", *where]}).encode()


def heard_shards(message: Any, sources: int) -> list[list[ShardRef]]:
    """Return the shards of every source.

    Raises:
        StorageError: Rank 0 could not list them; of the class that it was there.
        RankError: It could not for another reason, has another plan, or this is not its message.
    """
    try:
        told = json.loads(message)
        failure = told.get("failure")
        lists = [[ShardRef(*shard) for shard in shards] for shards in told.get("shards", ())]
    except (ValueError, TypeError, AttributeError):
        kind = type(message).__name__
        raise RankError(f"broadcast= must return what rank 0 was given, and returned {kind} that is not that") from None
    if failure is not None:
        raise _failure(*failure)
    if len(lists) != sources:
        raise RankError(
            f"rank 0 opened a data set with {len(lists)} sources of files, and this rank one with {sources}"
        )
    return lists


def _failure(name: str, url: str, reason: str) -> Exception:
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, StorageError):
        return kind(url, f"{reason} (found by rank 0, which lists for all)")
    return RankError(f"rank 0, which lists for all, could not find the shards: {reason}")
