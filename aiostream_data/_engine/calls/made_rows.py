"""Result of running one operator on one chunk, in a hop."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.failures.failed_row import Failed
from aiostream_data.rows.records import Chunk


@dataclass(slots=True)
class Made:
    """Result of running one operator (part) on one chunk.

    Attributes:
        chunk: Output rows.
        kept: For each output row, its index in the input chunk; None if all input rows were kept.
        failed: Skipped and replaced rows, in ascending order.
        retries: Number of retries.
        failure: Error that ended the work at input row number ``rows``; None on success.
        rows: Number of input rows processed before ``failure``; valid only if ``failure`` is set.
    """

    chunk: Chunk
    kept: NDArray[np.int64] | None = None
    failed: list[Failed] = field(default_factory=list)
    retries: int = 0
    failure: BaseException | None = None
    rows: int = 0
