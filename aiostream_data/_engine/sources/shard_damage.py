"""Distinguish damage to one shard from errors that affect all shards. An error policy may skip a damaged shard."""

from __future__ import annotations

from aiostream_data._engine.flow.root_cause import errors_of
from aiostream_data.errors import ChecksumError, CorruptRecordError, ObjectNotFoundError


def damage_of(
    error: BaseException, *, delivers_later: bool
) -> CorruptRecordError | ObjectNotFoundError | ChecksumError | None:
    """Return the underlying error if the shard is damaged or missing, else None.

    Network errors, denied access and a missing bucket affect all shards. If an object was replaced, the row numbers of
    the run are no longer valid. None of these errors counts as damage to the shard.

    Args:
        delivers_later: True if no row of the shard has been delivered yet. If True, a checksum error counts as damage.
    """
    found = errors_of(error)
    for one in found:
        is_missing = isinstance(one, ObjectNotFoundError) and not one.is_bucket
        if not (
            is_missing or isinstance(one, CorruptRecordError) or (delivers_later and isinstance(one, ChecksumError))
        ):
            return None
    first = found[0] if found else None
    return first if isinstance(first, (CorruptRecordError, ObjectNotFoundError, ChecksumError)) else None
