"""Arrays that a consumer keeps and has batches written into: whether each fits, and where it is."""

from __future__ import annotations

from typing import Any

from aiostream_data.device.backend import DeviceBlock
from aiostream_data.device.batch_layout import BatchLayout, SlotArray
from aiostream_data.device.receivers import FrameworkReceiver, Receivers
from aiostream_data.errors import DeviceTargetError
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.structure import StructureError


def targets_of(targets: Any, layout: BatchLayout, receivers: Receivers) -> tuple[FrameworkReceiver, list[DeviceBlock]]:
    """Return the memory of targets, one block per array of the layout, and whose arrays they are.

    Raises:
        DeviceTargetError: One does not fit, or they are of several libraries.
    """
    named = _named(targets, layout)
    tensors = [_is_tensor(target) for _, target in named]
    if any(tensors) and not all(tensors):
        raise DeviceTargetError("", "some are tensors of PyTorch, and some are not")
    receiver = receivers.of("torch" if any(tensors) else None)
    return receiver, [
        _fitting(receiver, target, array, path) for (path, target), array in zip(named, layout.arrays, strict=True)
    ]


def _named(targets: Any, layout: BatchLayout) -> list[tuple[str, Any]]:
    """Return what is given for every array of the layout."""
    try:
        leaves = layout.structure.flatten(targets)
    except StructureError as error:
        raise DeviceTargetError("", f"targets have another structure than the batch: {error}") from error
    found: list[tuple[str, Any]] = []
    for path, kind, leaf in zip(layout.structure.paths(), layout.kinds, leaves, strict=True):
        if kind == "dense":
            found.append((path, leaf))
        elif kind == "ragged" and isinstance(leaf, RaggedArray):
            found += [(f"{path}.values", leaf.values), (f"{path}.row_splits", leaf.row_splits)]
        else:
            raise DeviceTargetError(
                path, f"the batch has {'rows of differing length' if kind == 'ragged' else 'no array'}"
            )
    return found


def _is_tensor(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _fitting(receiver: FrameworkReceiver, target: Any, array: SlotArray, path: str) -> DeviceBlock:
    try:
        found = receiver.target(target)
    except TypeError as error:
        raise DeviceTargetError(path, f"{type(target).__name__} cannot be written into: {error}") from error
    if (found.shape, found.dtype) != (array.shape, array.dtype):
        raise DeviceTargetError(
            path, f"it is {found.dtype} of shape {found.shape}, and the batch's is {array.dtype} of shape {array.shape}"
        )
    return found.block
