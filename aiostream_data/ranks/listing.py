"""Broadcast the shard list from rank 0 to all ranks, so that only one rank lists the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiostream_data import errors
from aiostream_data.errors import RankError, StorageError
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.shard_table import ShardTable

Broadcast = Callable[["bytes | None"], bytes]
"""Function that every rank calls once: rank 0 passes a message, and all other ranks pass None. Returns rank 0's
message."""


@dataclass(frozen=True)
class ListOnce:
    """Listing of shards by one rank on behalf of all ranks.

    Attributes:
        lists: True on the rank that lists the shards.
        broadcast: Function that sends the shard list to the other ranks.
    """

    lists: bool
    broadcast: Broadcast


def told_shards(lists: Sequence[Sequence[ShardRef]]) -> bytes:
    """Encode the shards of every source of a plan as a message."""
    rows = [[[shard.url, shard.nbytes, shard.version] for shard in shards] for shards in lists]
    return json.dumps({"shards": rows}).encode()


def told_failure(error: Exception) -> bytes:
    """Return a message with the error that occurred while this rank listed the shards."""
    is_storage = isinstance(error, StorageError)
    where = [error.url, error.reason] if isinstance(error, StorageError) else ["", str(error)]
    return json.dumps({"failure": [type(error).__name__ if is_storage else "", *where]}).encode()


def heard_shards(message: Any, sources: int) -> list[Sequence[ShardRef]]:
    """Decode the shards of every source from the message of rank 0.

    Raises:
        StorageError: Rank 0 failed to list the shards. The raised error has the class of the original error.
        RankError: Rank 0 failed for another reason, rank 0 has a different number of sources, or the message is
            invalid.
    """
    try:
        told = json.loads(message)
        failure = told.get("failure")
        lists: list[Sequence[ShardRef]] = [
            ShardTable.of(ShardRef(*shard) for shard in shards) for shards in told.get("shards", ())
        ]
    except (ValueError, TypeError, AttributeError):
        kind = type(message).__name__
        raise RankError(
            f"broadcast= returned an invalid {kind}. On every rank, it must return the bytes that rank 0 passed to it"
        ) from None
    if failure is not None:
        raise _failure(*failure)
    if len(lists) != sources:
        raise RankError(
            f"rank 0 opened a dataset with {len(lists)} file sources, but this rank opened one with {sources}"
        )
    return lists


def _failure(name: str, url: str, reason: str) -> Exception:
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, StorageError):
        return kind(url, f"{reason} (reported by rank 0, which lists for all ranks)")
    return RankError(f"rank 0, which lists for all ranks, could not list the shards: {reason}")
