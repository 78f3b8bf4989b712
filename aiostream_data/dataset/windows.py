"""Checks of the arguments of windows, buckets and packed rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aiostream_data.arguments import flag, several, word
from aiostream_data.dataset.element_checks import check_padding, known_shapes
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import Node, at_least

# Imports that only these operators need are local, to keep importing the package fast.


def checked_sizes(batch_size: Any) -> tuple[int, ...]:
    """Return the batch sizes of ``rebatch``, which repeat in a cycle, or raise :class:`PlanError`."""
    sizes = tuple(batch_size) if isinstance(batch_size, (tuple, list, np.ndarray)) else (batch_size,)
    if not sizes:
        raise PlanError("rebatch() needs at least one batch size")
    return tuple(at_least("batch_size", size, 1) for size in sizes)


def checked_buckets(boundaries: Any, sizes: Any, max_cost: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the boundaries of ``bucket_by_sequence_length`` and the batch size of each bucket.

    Raises:
        PlanError: The boundaries are not ascending, or the numbers of sizes and boundaries do not match.
    """
    from aiostream_data.transforms.bucketing import BucketOrder

    given = several("bucket_boundaries", boundaries, "integers")
    checked = tuple(at_least("bucket_boundaries", boundary, 0) for boundary in given)
    batch_sizes = _bucket_sizes(checked, sizes, max_cost)
    BucketOrder(checked, batch_sizes)
    return checked, batch_sizes


def checked_bucket_shapes(node: Node, shapes: Any, values: Any, no_padding: Any, pad_to_boundary: Any) -> Any:
    """Return the padded shapes of ``bucket_by_sequence_length``: the given shapes or the known element shapes.

    Raises:
        PlanError: The arguments contradict each other, or contradict the known element structure.
    """
    for name, value in (("no_padding", no_padding), ("pad_to_bucket_boundary", pad_to_boundary)):
        flag(name, value)
    if no_padding and (pad_to_boundary or shapes is not None or values is not None):
        raise PlanError(
            "bucket_by_sequence_length(): padded_shapes, padding_values and pad_to_bucket_boundary have no effect with "
            "no_padding=True. Remove them, or use no_padding=False."
        )
    if pad_to_boundary and shapes is None:
        shapes = known_shapes(node)
    check_padding(node, shapes, values)
    return shapes


def checked_fields(fields: Any, too_long: Any) -> tuple[str, ...] | None:
    """Return the names of the leaves (arrays) that ``pack`` packs, or None for all leaves.

    Raises:
        PlanError: ``fields`` or ``too_long`` is invalid.
    """
    from aiostream_data.transforms.packing import TOO_LONG

    word("too_long", too_long, TOO_LONG)
    if fields is None or isinstance(fields, str):
        return fields if fields is None else (fields,)
    return several("fields", fields, "names of leaves")


def _bucket_sizes(boundaries: Sequence[int], sizes: Sequence[int] | None, max_cost: Any) -> tuple[int, ...]:
    """Return the batch size of every bucket, either as given or computed from ``max_cost``.

    Raises:
        PlanError: ``sizes`` and ``max_cost`` are both given or both missing, or one row of a bucket exceeds
            ``max_cost``.
    """
    if (sizes is None) == (max_cost is None):
        raise PlanError("bucket_by_sequence_length() needs either bucket_batch_sizes or max_cost")
    if sizes is not None:
        given = several("bucket_batch_sizes", sizes, "integers")
        return tuple(at_least("bucket_batch_sizes", size, 1) for size in given)
    budget = at_least("max_cost", max_cost, 1)
    longest = [max(1, boundary - 1) for boundary in boundaries]
    if not longest or max(longest) > budget:
        found = f"max_cost={budget} and the longest row {max(longest)}" if longest else "no boundary"
        raise PlanError(
            f"max_cost needs a last bucket boundary of at most max_cost + 1, got {found}. "
            "Raise max_cost, or lower the last boundary."
        )
    return (*(budget // length for length in longest), 1)  # the last bucket never receives rows
