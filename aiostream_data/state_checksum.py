"""Checksums of saved states, to detect damaged or edited states."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from aiostream_data import _native


def checksum_of(value: Any) -> int:
    """Compute a 32-bit checksum of JSON-compatible data. Data read back from JSON has an equal checksum.

    Raises:
        TypeError, ValueError, RecursionError: The data cannot be written as JSON.
    """
    return zlib.crc32(_native.json_bytes(value))


def checksum_of_state(values: Mapping[str, Any], row_checks: Sequence[int] | None = None) -> str | None:
    """Compute the checksum of a saved state as 8 hex digits, or None if the state cannot be written as JSON.

    Args:
        row_checks: Precomputed checksums of the state's rows. If None, this function computes the row checksums.
    """
    rows = values.get("rows")
    try:
        if isinstance(rows, dict) and isinstance(rows.get("rows"), list):
            checks = [checksum_of(entry) for entry in rows["rows"]] if row_checks is None else list(row_checks)
            values = {**values, "rows": {**rows, "rows": checks}}
        return f"{checksum_of(values):08x}"
    except (TypeError, ValueError, RecursionError):
        return None
