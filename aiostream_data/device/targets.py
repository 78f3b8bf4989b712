"""Validate and locate the arrays into which a consumer copies batches."""

from __future__ import annotations

from typing import Any

from aiostream_data.device.backend import DeviceBlock
from aiostream_data.device.batch_layout import BatchLayout, SlotArray
from aiostream_data.device.receivers import FrameworkReceiver, Receivers
from aiostream_data.errors import DeviceTargetError
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.structure import StructureError


def targets_of(targets: Any, layout: BatchLayout, receivers: Receivers) -> tuple[FrameworkReceiver, list[DeviceBlock]]:
    """Return one target memory block for each array of the layout, and the adapter for the library of the targets.

    Raises:
        DeviceTargetError: A target array does not fit, or the targets belong to different libraries.
    """
    named = _named(targets, layout)
    tensors = [_is_tensor(target) for _, target in named]
    if any(tensors) and not all(tensors):
        raise DeviceTargetError("", "PyTorch tensors are mixed with other arrays. Use one library for all targets")
    receiver = receivers.of("torch" if any(tensors) else None)
    return receiver, [
        _fitting(receiver, target, array, path) for (path, target), array in zip(named, layout.arrays, strict=True)
    ]


def _named(targets: Any, layout: BatchLayout) -> list[tuple[str, Any]]:
    """Return the path and the target array for each array of the layout."""
    try:
        leaves = layout.structure.flatten(targets)
    except StructureError as error:
        raise DeviceTargetError("", f"their structure differs from the batch: {error}") from error
    found: list[tuple[str, Any]] = []
    for path, kind, leaf in zip(layout.structure.paths(), layout.kinds, leaves, strict=True):
        if kind == "dense":
            found.append((path, leaf))
        elif kind == "ragged" and isinstance(leaf, RaggedArray):
            found += [(f"{path}.values", leaf.values), (f"{path}.row_splits", leaf.row_splits)]
        else:
            raise DeviceTargetError(
                path,
                "the leaf is ragged in the batch. Pass a RaggedArray, or pad the rows with padded_batch()"
                if kind == "ragged"
                else "the leaf is not an array in the batch. Drop it in map()",
            )
    return found


def _is_tensor(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _fitting(receiver: FrameworkReceiver, target: Any, array: SlotArray, path: str) -> DeviceBlock:
    try:
        found = receiver.target(target)
    except TypeError as error:
        raise DeviceTargetError(path, f"invalid target of type {type(target).__name__}: {error}") from error
    if (found.shape, found.dtype) != (array.shape, array.dtype):
        raise DeviceTargetError(
            path,
            f"the target is {found.dtype} of shape {found.shape}, the leaf {array.dtype} of shape {array.shape}",
        )
    return found.block
