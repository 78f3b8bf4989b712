"""Native kernels, each with a clear pure-Python twin that is its oracle and its fallback.

``HAVE_NATIVE`` says which of the two this installation runs.
"""

from __future__ import annotations

from aiostream_data._native.gather_py import compact, compact_many, exchange_rows, take_rows, take_rows_many

HAVE_NATIVE = False

__all__ = ["HAVE_NATIVE", "compact", "compact_many", "exchange_rows", "take_rows", "take_rows_many"]
