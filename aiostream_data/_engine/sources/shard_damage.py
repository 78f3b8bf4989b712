"""Distinguish damage to one shard from errors that affect all shards. An error policy may skip a damaged shard."""

from __future__ import annotations

from typing import TypeAlias

from aiostream_data._engine.flow.root_cause import errors_of
from aiostream_data.errors import ChecksumError, CorruptRecordError, MemoryBudgetError, ObjectNotFoundError

Damage: TypeAlias = CorruptRecordError | ObjectNotFoundError | ChecksumError | MemoryBudgetError
"""Error of one shard. A :class:`.MemoryBudgetError` is one of a record that was decompressed."""


def damage_of(error: BaseException, *, delivers_later: bool) -> Damage | None:
    """Return the underlying error if the shard is damaged or missing, or decompresses to a too large record, else None.

    Network errors, denied access and a missing bucket affect all shards. If an object was replaced, the row numbers of
    the run are no longer valid. None of these errors counts as damage to the shard.

    Args:
        delivers_later: True if no row of the shard has been delivered yet. If True, a checksum error counts as damage.
    """
    found = errors_of(error)
    for one in found:
        is_missing = isinstance(one, ObjectNotFoundError) and not one.is_bucket
        is_too_large = isinstance(one, MemoryBudgetError) and bool(one.url)
        is_damaged = isinstance(one, CorruptRecordError) or (delivers_later and isinstance(one, ChecksumError))
        if not (is_missing or is_too_large or is_damaged):
            return None
    first = found[0] if found else None
    return first if isinstance(first, Damage) else None
