"""Columns whose values stand in the folders of a URL, as Hive writes them: ``year=2024/month=5/part-0.parquet``."""

from __future__ import annotations

import numpy as np

from aiostream_data.rows.columns import VarColumn
from aiostream_data.safe_url import safe_url


def partitions_of(url: str) -> dict[str, str]:
    """Return the ``name=value`` parts of the folders in a URL, as Hive writes them."""
    folders = safe_url(url).partition("?")[0].split("/")[:-1]
    return dict(part.split("=", 1) for part in folders if "=" in part and not part.startswith("="))


def constant_text(value: str, rows: int) -> VarColumn:
    """Return a column with the same text in each row."""
    data = np.frombuffer(value.encode(), np.uint8)
    return VarColumn(data, np.zeros(rows, np.int64), np.full(rows, len(data), np.int64), "str")
