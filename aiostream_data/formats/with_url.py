"""Decoder that adds the URL of its object to each record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aiostream_data.rows.records import Columns
from aiostream_data.rows.structure import LEAF, Structure


@dataclass(frozen=True)
class WithUrl:
    """Row-wise decoder that converts a record to ``{"url": str, "data": record}``."""

    wraps: ClassVar[bool] = True
    label: ClassVar[str] = "with_url"
    structure: ClassVar[Structure] = Structure("dict", ("url", "data"), (LEAF, LEAF))
    element_specs: ClassVar[tuple[tuple[tuple[int, ...], type, bool], ...]] = (((), object, False),) * 2

    def parse(self, chunk: Columns, describe: Callable[[int], tuple[str, int]]) -> Columns:
        """Add the URL to each record of a chunk.

        The new chunk shares the memory of the records; no bytes are copied.
        """
        urls = np.empty(len(chunk), object)
        urls[:] = [describe(row)[0] for row in range(len(chunk))]
        return Columns(self.structure, (urls, *chunk.leaves), chunk.ids)
