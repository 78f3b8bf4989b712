"""Check what a store says of the size of an object before anything is reserved or asked for by it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from numbers import Integral
from typing import Final

from aiostream_data.errors import WrongAnswerError
from aiostream_data.rows.records import ShardRef
from aiostream_data.safe_url import shorten
from aiostream_data.storage.urls import safe_url

MOST_NBYTES: Final = 1 << 53
"""No object is larger: 9 PB, a hundred times as much as any store allows."""

_DECIMAL: Final = re.compile(r"[0-9]{1,16}")


def as_object_nbytes(url: str, told: object) -> int:
    """Return a size that is told as an integer, or as its decimal digits.

    Args:
        url: The object, or the listing that it is in.

    Raises:
        WrongAnswerError: It is no size: negative, absurd, or no whole number.
    """
    nbytes = _whole_number(told)
    if nbytes is None or not 0 <= nbytes <= MOST_NBYTES:
        reason = f"the store says that an object has a size of {shorten(_shown(told))} bytes"
        raise WrongAnswerError(safe_url(url), reason)
    return nbytes


def check_sizes(shards: Iterable[ShardRef]) -> None:
    """Check the sizes of objects that have one.

    Raises:
        WrongAnswerError: One of them is negative or absurd.
    """
    for shard in shards:
        if shard.nbytes is not None:
            as_object_nbytes(shard.url, shard.nbytes)


def _whole_number(told: object) -> int | None:
    if isinstance(told, str):
        return int(told) if _DECIMAL.fullmatch(told) else None
    if isinstance(told, bool):
        return None
    if isinstance(told, float):  # as some file systems of fsspec tell it
        return int(told) if told.is_integer() else None
    return int(told) if isinstance(told, Integral) else None


def _shown(told: object) -> str:
    if isinstance(told, int):  # Python refuses to print thousands of digits
        return f"about 2**{told.bit_length()}" if abs(told) >> 128 else str(told)
    return repr(told) if isinstance(told, (str, float)) else type(told).__name__
