"""Buffers for records that are longer than a block. Each buffer keeps only one copy of its record in memory.

The bytes of a long record are collected in a ``BytesIO``, which grows without a second copy. The buffer of the
``BytesIO`` becomes the ``bytes`` object that a user function receives. Joining the pieces of a record in an array would
require two copies.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.columns import SeparateBytes, VarColumn, VarKind

LONG_NBYTES = 256 << 10
"""Minimum size in bytes of an incomplete record that is collected in a separate buffer."""


class LongRecord:
    """Buffer for the data of one long record.

    Args:
        nbytes: Length of the data in bytes; None if unknown.
        suffix_nbytes: Number of bytes after the data that also belong to the record.
    """

    def __init__(self, nbytes: int | None, suffix_nbytes: int = 0) -> None:
        self._expected = nbytes
        self._suffix_nbytes = suffix_nbytes
        self._data = BytesIO()
        self.suffix = b""

    @property
    def nbytes(self) -> int:
        """Number of data bytes received so far."""
        return self._data.tell()

    @property
    def received_nbytes(self) -> int:
        """Number of bytes received so far, including the suffix."""
        return self.nbytes + len(self.suffix)

    @property
    def is_complete(self) -> bool:
        """True if the data and the suffix have been received completely.

        The value is always False if the length of the data is unknown.
        """
        return self.nbytes == self._expected and len(self.suffix) == self._suffix_nbytes

    def take(self, fresh: NDArray[np.uint8]) -> int:
        """Append the leading bytes of ``fresh`` that belong to the record. Return the number of appended bytes."""
        data_nbytes = len(fresh) if self._expected is None else min(len(fresh), self._expected - self.nbytes)
        self._data.write(fresh[:data_nbytes].data)
        missing = self._suffix_nbytes - len(self.suffix)
        suffix = fresh[data_nbytes : data_nbytes + missing].tobytes()
        self.suffix += suffix
        return data_nbytes + len(suffix)

    def drop_last(self, last: bytes) -> None:
        """Remove the last byte of the data if this byte equals ``last``."""
        if self.nbytes and self._data.getbuffer()[-1:] == last:
            self._data.truncate(self.nbytes - 1)
            self._data.seek(0, 2)

    def data(self) -> bytes:
        """Return the data of the record without a copy, and empty the buffer."""
        data = self._data.getvalue()
        self._data = BytesIO()
        return data


def column_of(data: bytes, kind: VarKind = "bytes") -> VarColumn:
    """Build a column with a single row that contains ``data``, without a copy."""
    if kind == "bytes":
        return SeparateBytes([data])
    return VarColumn(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.array([len(data)], np.int64), kind)


class ObjectBuffer:
    """Writable memory that becomes a ``bytes`` object without a copy.

    Attributes:
        view: Writable view of the memory.
    """

    def __init__(self, nbytes: int) -> None:
        self._memory = _native.BytesMemory(nbytes)
        self.view = self._memory.view()

    def data(self) -> NDArray[np.uint8]:
        """Return the written bytes as an array, and release ``view``."""
        self.view.release()
        return np.frombuffer(self._memory.data(), np.uint8)


def whole_bytes(values: NDArray[np.uint8]) -> bytes | None:
    """Return the ``bytes`` object whose memory is ``values``. Return None if there is none, or if it is longer."""
    base: object = values.base
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, bytes) and len(base) == len(values) else None
