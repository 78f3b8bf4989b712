"""A checksum of plain data, so that a state that was damaged or edited is told from one that was not."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any


def checksum_of(value: Any) -> int:
    """Return 32 bits over plain data; the same before and after JSON.

    Raises:
        TypeError, ValueError, RecursionError: There is something else in it.
    """
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())


def checksum_of_state(values: Mapping[str, Any], row_checks: Sequence[int] | None = None) -> str | None:
    """Return 8 hex digits over a state; None where it holds anything but plain data.

    Args:
        row_checks: Checksums of its rows, which are most of it, where they are known already.
    """
    rows = values.get("rows")
    try:
        if isinstance(rows, dict) and isinstance(rows.get("rows"), list):
            checks = [checksum_of(entry) for entry in rows["rows"]] if row_checks is None else list(row_checks)
            values = {**values, "rows": {**rows, "rows": checks}}
        return f"{checksum_of(values):08x}"
    except (TypeError, ValueError, RecursionError):
        return None
