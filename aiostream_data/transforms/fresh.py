"""Hand out copies of a kept element: the receiver may change its copy, and the kept one stays as it was."""

from __future__ import annotations

from typing import Any

import numpy as np

from aiostream_data.rows.array_likes import copy_of
from aiostream_data.rows.ragged import RaggedArray, trusted_ragged
from aiostream_data.rows.structure import flatten


def fresh(element: Any) -> Any:
    """Return the element with dicts, tuples, lists, arrays, tensors and images of its own; others are the same ones."""
    structure, leaves = flatten(element)
    copies = [_fresh_leaf(leaf) for leaf in leaves]
    return copies[0] if structure.is_leaf else structure.unflatten(copies)


def _fresh_leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    if isinstance(leaf, RaggedArray):
        return trusted_ragged(leaf.values.copy(), leaf.row_splits.copy())
    if type(leaf) is list:
        return [_fresh_leaf(value) for value in leaf]
    if type(leaf) in (dict, tuple):  # in a list
        return fresh(leaf)
    return copy_of(leaf)
