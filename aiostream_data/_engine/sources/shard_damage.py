"""Separate damage of one shard, which an error policy may skip, from errors that concern all shards."""

from __future__ import annotations

from aiostream_data._engine.flow.root_cause import errors_of
from aiostream_data.errors import ChecksumError, CorruptRecordError, ObjectNotFoundError


def damage_of(
    error: BaseException, *, delivers_later: bool
) -> CorruptRecordError | ObjectNotFoundError | ChecksumError | None:
    """Return the damage that ended the reading of a shard; None if it ended for another reason.

    A store that cannot be reached, refuses, or does not have the bucket fails for all shards. An object that was
    replaced makes row numbers of this run meaningless.

    Args:
        delivers_later: No row of the shard was delivered yet, so that a wrong checksum concerns none.
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
