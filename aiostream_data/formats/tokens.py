"""Files of tokens: integers without a header (``.bin``) or NumPy arrays (``.npy``), read as sequences of one length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from aiostream_data.codecs.compression_by_suffix import by_name
from aiostream_data.codecs.file_kinds import kind_of
from aiostream_data.codecs.npy_header import MAGIC
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.npy_steps import first_bytes, header_steps
from aiostream_data.formats.row_groups import RowGroup, Steps, TableRows
from aiostream_data.rows.records import ByteRange

_GROUP_NBYTES: Final = 2 << 20
"""Size of the sequences that are read together."""


@dataclass(frozen=True, kw_only=True)
class TokensFormat:
    """Format of files of tokens.

    Attributes:
        length: Number of tokens of a sequence.
        stride: Number of tokens from the start of a sequence to the start of the next one.
        dtype: Text of the dtype of the tokens in files without a header, such as ``"<u2"``.
        header_nbytes: Number of bytes to skip at the start of a file that is not a NumPy file.
    """

    length: int
    stride: int
    dtype: str
    header_nbytes: int = 0

    @property
    def name(self) -> str:
        return "tokens"

    def directory(self, url: str, nbytes: int) -> Steps[TokensDirectory]:
        """Read the first bytes of a file, and find its tokens."""
        start = yield from first_bytes(nbytes)
        if nbytes < len(MAGIC) and MAGIC.startswith(start) and (start or url.endswith(".npy")):
            raise CorruptRecordError(url, nbytes, f"the NumPy file is cut short: it has {nbytes} bytes")
        if start[: len(MAGIC)] != MAGIC:
            return self._of_raw_tokens(url, nbytes, start)
        header = yield from header_steps(url, nbytes, start)
        if len(header.shape) != 1 or header.dtype.kind not in "iu":
            found = f"an array of shape {header.shape} and {header.dtype}"
            raise CorruptRecordError(url, 0, f"{found} does not contain tokens, which are integers on one axis")
        return TokensDirectory(self, url, header.nbytes, nbytes, header.dtype, header.shape[0])

    def _of_raw_tokens(self, url: str, nbytes: int, start: bytes) -> TokensDirectory:
        kind = kind_of(start)
        if kind is not None and kind.is_certain and not self.header_nbytes:
            raise CorruptRecordError(url, 0, f"this is {kind.name}, not a file of tokens: {kind.cure}")
        packed = by_name(url)
        if packed is not None:
            raise CorruptRecordError(url, 0, f"{packed.reason}, but compressed tokens are not supported: decompress it")
        return TokensDirectory(self, url, self.header_nbytes, nbytes, np.dtype(self.dtype))


class TokensDirectory:
    """Tokens of one file.

    Args:
        description: Format of the file.
        url: URL of the file, for error messages.
        start: Offset of the first token.
        nbytes: Size of the file.
        dtype: Type of the tokens.
        tokens: Number of tokens that a header declares, or None.

    Raises:
        CorruptRecordError: The size of the file does not match.
    """

    def __init__(
        self,
        description: TokensFormat,
        url: str,
        start: int,
        nbytes: int,
        dtype: np.dtype[Any],
        tokens: int | None = None,
    ) -> None:
        self._length, self._stride = description.length, description.stride
        self._start = start
        self._dtype = dtype
        size = nbytes - start
        if size < 0:
            raise CorruptRecordError(
                url, nbytes, f"the file has {nbytes} bytes, fewer than its header of {start} bytes"
            )
        if tokens is None and size % dtype.itemsize:
            cure = "Check dtype= and header_nbytes=, or write the file again."
            raise CorruptRecordError(url, nbytes, f"{size} bytes are not a multiple of {dtype.name} tokens. {cure}")
        if tokens is not None and tokens * dtype.itemsize != size:
            raise CorruptRecordError(
                url, start, f"{tokens} tokens of {dtype.name} do not match the {size} bytes of data"
            )
        count = size // dtype.itemsize
        self._rows = (count - self._length) // self._stride + 1 if count >= self._length else 0

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def types(self) -> Mapping[str, str | None]:
        return {"element": f"{self._dtype.newbyteorder('=')}[{self._length}]"}

    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        item = self._dtype.itemsize
        step = max(1, _GROUP_NBYTES // (item * max(self._length, self._stride)))
        is_shared = self._dtype.isnative and self._stride == self._length
        for first in range(first_row, self._rows, step):
            stop = min(first + step, self._rows)
            begin = self._start + first * self._stride * item
            end = self._start + ((stop - 1) * self._stride + self._length) * item
            nbytes = 0 if is_shared else (stop - first) * self._length * item
            yield RowGroup(first, stop - first, (ByteRange(begin, end),), nbytes)

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        return group.nbytes

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        tokens = np.frombuffer(parts[0], self._dtype)
        sequences = sliding_window_view(tokens, self._length)[:: self._stride]
        column = np.ascontiguousarray(sequences, self._dtype.newbyteorder("="))
        return [TableRows.of(column, group.first_row)]
