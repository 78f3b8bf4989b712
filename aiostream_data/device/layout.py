"""Compute the positions of a batch's arrays in one slot (a buffer for one batch).

This module only computes positions and copies arrays; it never calls a device.

One memory block contains all arrays of a batch in leaf order, so that one copy transfers the batch. Each array starts
on a 256-byte boundary. A ragged leaf is stored as two arrays (values, row splits). Non-numeric leaves (bytes, str,
objects, dates) cannot be stored in device memory. On ``cpu``, non-numeric leaves stay outside the slot; other devices
reject these leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import ALIGNMENT
from aiostream_data.device.batch_layout import BatchLayout, LeafKind, SlotArray
from aiostream_data.errors import DeviceLeafError
from aiostream_data.rows.array_likes import NoNumpyFormError, array_of, type_name
from aiostream_data.rows.parts import Parts
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.structure import flatten


@dataclass(frozen=True, slots=True)
class TakenApart:
    """A batch that is separated into a layout, its arrays, and its other leaves.

    Attributes:
        sources: The batch's own arrays (no copies), one for each entry of ``layout.arrays``.
        kept: The leaves that are not arrays, in leaf order.
    """

    layout: BatchLayout
    sources: list[NDArray[Any] | Parts]
    kept: list[Any]


def take_apart(batch: Any, device: str, keeps_objects: bool) -> TakenApart:
    """Split ``batch`` into arrays, which a slot can store, and leaves that are other objects.

    Python numbers and NumPy scalars become zero-dimensional arrays.

    Args:
        batch: Structure of arrays, ragged arrays and numbers. If ``keeps_objects`` is True, other objects are also
            allowed.
        device: Name of the target device, for error messages.
        keeps_objects: True to keep non-numeric leaves outside the slot instead of raising an error.

    Raises:
        DeviceLeafError: A leaf is not numeric and ``keeps_objects`` is False.
    """
    structure, leaves = flatten(batch)
    kinds: list[LeafKind] = []
    named: list[tuple[str, NDArray[Any] | Parts]] = []
    kept: list[Any] = []
    for path, leaf in zip(structure.paths(), leaves, strict=True):
        parts = _numeric_parts(path, leaf)
        if parts is None:
            if not keeps_objects:
                raise DeviceLeafError(path, _describe(leaf), device)
            kinds.append("object")
            kept.append(leaf)
            continue
        named += parts
        kinds.append("dense" if len(parts) == 1 else "ragged")
    arrays, nbytes = place((path, array.shape, array.dtype) for path, array in named)
    layout = BatchLayout(structure, tuple(kinds), arrays, nbytes)
    return TakenApart(layout, [array for _, array in named], kept)


def place(specs: Iterable[tuple[str, tuple[int, ...], np.dtype[Any]]]) -> tuple[tuple[SlotArray, ...], int]:
    """Compute the position of each array in a slot, and the size of the slot in bytes."""
    placed: list[SlotArray] = []
    end = 0
    for path, shape, dtype in specs:
        array = SlotArray(path, shape, dtype, -(-end // ALIGNMENT) * ALIGNMENT)
        end = array.offset + array.nbytes
        placed.append(array)
    return tuple(placed), max(end, 1)


def views(block: NDArray[np.uint8], layout: BatchLayout) -> list[NDArray[Any]]:
    """Return the arrays of ``layout`` as writable views of ``block``.

    The size of ``block`` must be at least ``layout.nbytes``.
    """
    return [np.ndarray(array.shape, array.dtype, buffer=block, offset=array.offset) for array in layout.arrays]


def fill(slot_arrays: Sequence[NDArray[Any]], sources: Sequence[NDArray[Any] | Parts]) -> None:
    """Copy ``sources`` into the arrays of a slot, without temporary copies and with the GIL released.

    The function calls ``np.copyto``, because an assignment to a memoryview holds the GIL during the copy.
    """
    for target, source in zip(slot_arrays, sources, strict=True):
        if isinstance(source, Parts):
            source.write_into(target)
        else:
            np.copyto(target, source, casting="no")


def _numeric_parts(path: str, leaf: Any) -> Sequence[tuple[str, NDArray[Any] | Parts]] | None:
    if isinstance(leaf, RaggedArray):
        named = [(f"{path}.values", leaf.values), (f"{path}.row_splits", leaf.row_splits)]
        return named if is_numeric(leaf.values.dtype) else None
    if isinstance(leaf, (bool, int, float, complex, np.generic)):
        leaf = np.asarray(leaf)
    if not isinstance(leaf, (np.ndarray, Parts)) or not is_numeric(leaf.dtype) or _means_more(leaf):
        return None
    return [(path, leaf)]


def _means_more(leaf: NDArray[Any] | Parts) -> bool:
    """Return True if an array has a mask or a physical unit, which a slot cannot store."""
    if isinstance(leaf, Parts):
        return False
    try:
        array_of(leaf)
    except NoNumpyFormError:
        return True
    return False


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """Return True if GPU libraries support the dtype: native bool, int, complex, or float of up to 64 bits."""
    widest = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
    return dtype.isnative and dtype.itemsize <= widest.get(dtype.kind, 0)


def _describe(leaf: Any) -> str:
    if isinstance(leaf, RaggedArray):
        return f"a ragged array of {leaf.values.dtype}"
    return f"an array of {leaf.dtype}" if type(leaf) is np.ndarray else f"a {type_name(type(leaf))}"
