"""Arrow fields of NumPy arrays of text and ``bytes``. The rows are copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native.arrow_nodes import ArrowField
from aiostream_data.errors import ArrowDataError
from aiostream_data.rows.arrow.bitmaps import packed_bits
from aiostream_data.rows.surrogates import SURROGATE, first_surrogate


def text_field(path: str, name: str, array: NDArray[Any], valid: NDArray[np.bool_] | None) -> ArrowField:
    """Return the field of an array of text with one axis: large_utf8, or large_binary for the dtype ``S``.

    Args:
        array: Array of ``str`` or None in objects, or of the dtype ``S``, ``U`` or ``StringDType``.
        valid: None, or an array that is False for missing rows.

    Raises:
        ArrowDataError: A text contains a surrogate, so it cannot be encoded.
    """
    missing = getattr(array.dtype, "na_object", None)
    rows = array.tolist()
    if not isinstance(missing, str):  # a placeholder that is text stays text
        rows = [None if row is missing else row for row in rows]
    if valid is not None:
        rows = [row if is_valid else None for row, is_valid in zip(rows, valid.tolist(), strict=True)]
    if array.dtype.kind == "S":
        return bytes_field(name, "Z", rows)
    return bytes_field(name, "U", _encoded(path, rows))


def bytes_field(name: str, text_format: str, rows: Sequence[bytes | None]) -> ArrowField:
    """Return a field with 64-bit offsets and a copy of the rows. None is a missing row."""
    present = [b"" if row is None else row for row in rows]
    splits = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, present), np.int64, len(rows)), out=splits[1:])
    content = np.frombuffer(b"".join(present), np.uint8)
    valid = None
    if any(row is None for row in rows):
        valid = np.fromiter((row is not None for row in rows), np.bool_, len(rows))
    bitmap, missing = packed_bits(valid)
    return ArrowField(name, text_format, len(rows), (bitmap, splits.view(np.uint8), content), null_count=missing)


def _encoded(path: str, rows: Sequence[str | None]) -> list[bytes | None]:
    try:
        return [None if row is None else row.encode() for row in rows]
    except UnicodeEncodeError:
        row = first_surrogate(rows)
        raise ArrowDataError(path, f"the text of row {row} {SURROGATE}. Return bytes instead of text", row) from None
