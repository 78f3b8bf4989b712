"""Validate object sizes reported by a store, before reserving memory or requesting ranges."""

from __future__ import annotations

import re
from collections.abc import Iterable
from numbers import Integral
from typing import Final

from aiostream_data.errors import WrongAnswerError
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.shard_table import ShardTable
from aiostream_data.safe_url import shorten
from aiostream_data.storage.urls import safe_url

MOST_NBYTES: Final = 1 << 53
"""Largest accepted object size: 9 PB, a hundred times the limit of any store."""

_DECIMAL: Final = re.compile(r"[0-9]{1,16}")


def as_object_nbytes(url: str, told: object) -> int:
    """Convert an object size reported by a store (an integer or decimal digits) to an int.

    Args:
        url: URL of the object or of its listing, for the error message.

    Raises:
        WrongAnswerError: The size is negative, larger than `MOST_NBYTES`, or not a whole number.
    """
    nbytes = _whole_number(told)
    if nbytes is None or not 0 <= nbytes <= MOST_NBYTES:
        reason = f"the store reported an invalid object size: {shorten(_shown(told))} bytes"
        raise WrongAnswerError(safe_url(url), reason)
    return nbytes


def check_sizes(shards: Iterable[ShardRef]) -> None:
    """Check all known object sizes in a list of shards.

    Raises:
        WrongAnswerError: A size is negative or larger than `MOST_NBYTES`.
    """
    if isinstance(shards, ShardTable) and max(shards.sizes, default=0) <= MOST_NBYTES:
        return  # a table has no negative sizes
    for shard in shards:
        if shard.nbytes is not None:
            as_object_nbytes(shard.url, shard.nbytes)


def _whole_number(told: object) -> int | None:
    if isinstance(told, str):
        return int(told) if _DECIMAL.fullmatch(told) else None
    if isinstance(told, bool):
        return None
    if isinstance(told, float):  # some fsspec file systems report sizes as floats
        return int(told) if told.is_integer() else None
    return int(told) if isinstance(told, Integral) else None


def _shown(told: object) -> str:
    if isinstance(told, int):  # Python cannot print integers with thousands of digits
        return f"about 2**{told.bit_length()}" if abs(told) >> 128 else str(told)
    return repr(told) if isinstance(told, (str, float)) else type(told).__name__
