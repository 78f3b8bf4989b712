"""Stack large arrays without copying them, for batches that their consumer puts together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.parts import Parts, may_be_in_parts
from aiostream_data.transforms.collate import LARGE_RESULT_NBYTES, DescribeRow, stack_leaf


def stack_leaf_in_parts(
    path: str, values: Sequence[Any], describe: DescribeRow, *, for_device: bool
) -> NDArray[Any] | Parts:
    """Stack a leaf as :func:`stack_leaf` does, but return large arrays as :class:`Parts` without copying.

    Args:
        for_device: See :func:`.may_be_in_parts`.
    """
    first = values[0]
    is_large = type(first) is np.ndarray and first.nbytes >= LARGE_RESULT_NBYTES
    if is_large and may_be_in_parts(first.dtype, for_device=for_device):
        facts = first.dtype, first.shape
        if all(type(value) is np.ndarray and (value.dtype, value.shape) == facts for value in values):
            return Parts(tuple(value[np.newaxis] for value in values))
    return stack_leaf(path, values, describe)
