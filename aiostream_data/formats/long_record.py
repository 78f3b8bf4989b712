"""One record that is longer than a block, gathered so that it is in memory once.

The bytes go into a ``BytesIO``, which grows without a second copy and gives up its buffer as the ``bytes`` that a
user function receives. An array joined from pieces would be copied once to join it and once to hand it over.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.records import VarColumn, VarKind

LONG_NBYTES = 256 << 10
"""An incomplete record of at least so many bytes is gathered by itself."""


class LongRecord:
    """Gather the data of one record.

    Args:
        nbytes: Length of the data, or None where only its end tells.
        suffix_nbytes: Bytes behind the data that belong to the record.
    """

    def __init__(self, nbytes: int | None, suffix_nbytes: int = 0) -> None:
        self._expected = nbytes
        self._suffix_nbytes = suffix_nbytes
        self._data = BytesIO()
        self.suffix = b""

    @property
    def nbytes(self) -> int:
        """Bytes of data received."""
        return self._data.tell()

    @property
    def received_nbytes(self) -> int:
        """Bytes received, with those of the suffix."""
        return self.nbytes + len(self.suffix)

    @property
    def is_complete(self) -> bool:
        """Whether everything that belongs to the record was received; never where the length is unknown."""
        return self.nbytes == self._expected and len(self.suffix) == self._suffix_nbytes

    def take(self, fresh: NDArray[np.uint8]) -> int:
        """Append bytes as far as they belong to the record. Return how many did."""
        data_nbytes = len(fresh) if self._expected is None else min(len(fresh), self._expected - self.nbytes)
        self._data.write(fresh[:data_nbytes].data)
        missing = self._suffix_nbytes - len(self.suffix)
        suffix = fresh[data_nbytes : data_nbytes + missing].tobytes()
        self.suffix += suffix
        return data_nbytes + len(suffix)

    def drop_last(self, last: bytes) -> None:
        """Remove the last byte if it is ``last``."""
        if self.nbytes and self._data.getbuffer()[-1:] == last:
            self._data.truncate(self.nbytes - 1)
            self._data.seek(0, 2)

    def data(self) -> bytes:
        """Return the data, without a copy. Nothing can be appended any more."""
        data = self._data.getvalue()
        self._data = BytesIO()
        return data


def column_of(data: bytes, kind: VarKind = "bytes") -> VarColumn:
    """Return a column of one row that holds ``data`` without a copy."""
    return VarColumn(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.array([len(data)], np.int64), kind)


class ObjectBuffer:
    """Memory for one object, written by others and then given up as ``bytes`` without a copy.

    Attributes:
        view: Where to write.
    """

    def __init__(self, nbytes: int) -> None:
        self._buffer = BytesIO()
        self._buffer.seek(max(0, nbytes - 1))
        self._buffer.write(bytes(min(1, nbytes)))
        self.view = self._buffer.getbuffer()

    def data(self) -> NDArray[np.uint8]:
        """Return what was written; ``view`` cannot be used any more."""
        self.view.release()
        return np.frombuffer(self._buffer.getvalue(), np.uint8)
