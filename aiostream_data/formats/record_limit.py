"""Limit of the records that decompression makes: a small object can decompress to more than the memory of the machine.

The stored size of an uncompressed object bounds its records. A compressed object has no such bound, so the stream
measures an incomplete record after each block, and refuses to collect more of it than the limit.
"""

from __future__ import annotations

from typing import NamedTuple

from aiostream_data.errors import MemoryBudgetError
from aiostream_data.formats.base import Format
from aiostream_data.safe_url import safe_url


class RecordLimit(NamedTuple):
    """Limit for one object.

    Attributes:
        nbytes: The memory limit in bytes. A longer record is refused.
        stored_nbytes: Size of the compressed object in bytes; None if unknown.
    """

    nbytes: int
    stored_nbytes: int | None = None

    def error(self, url: str, compression: str, format: Format, nbytes: int, *, is_all: bool) -> MemoryBudgetError:
        """Return the error for a record that is too long.

        Args:
            nbytes: Size of the record in bytes, or of the received part.
            is_all: True if ``nbytes`` is the size of the complete record.
        """
        stored = "" if self.stored_nbytes is None else f"{self.stored_nbytes} bytes of "
        what = "" if format.whole else "a record of "
        cure = "leave the file compressed with compression=''" if format.whole else "write shorter records"
        least = "" if is_all else "at least "
        return MemoryBudgetError(
            f"{what}{safe_url(url)} has {least}{nbytes} bytes after the decompression of {stored}{compression}, more "
            f"than the memory limit of {self.nbytes} bytes. Raise memory_limit=, {cure}, or read it with another "
            "format.",
            url,
        )
