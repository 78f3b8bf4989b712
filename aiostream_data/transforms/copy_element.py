"""Copy a stored element, so that the receiver can modify its copy without changing the stored element."""

from __future__ import annotations

from typing import Any

import numpy as np

from aiostream_data.rows.array_likes import copy_of
from aiostream_data.rows.ragged import RaggedArray, trusted_ragged
from aiostream_data.rows.structure import flatten
from aiostream_data.rows.text_arrays import BytesArray, TextArray


def fresh(element: Any) -> Any:
    """Copy an element with its dicts, tuples, lists, arrays, tensors and images.

    The copy shares all other objects with the original.
    """
    structure, leaves = flatten(element)
    copies = [_fresh_leaf(leaf) for leaf in leaves]
    return copies[0] if structure.is_leaf else structure.unflatten(copies)


def _fresh_leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    if isinstance(leaf, RaggedArray):
        return trusted_ragged(leaf.values.copy(), leaf.row_splits.copy())
    if isinstance(leaf, (BytesArray, TextArray)):
        return leaf.copy()
    if type(leaf) is list:
        return [_fresh_leaf(value) for value in leaf]
    if type(leaf) in (dict, tuple):  # nested in a list
        return fresh(leaf)
    return copy_of(leaf)
