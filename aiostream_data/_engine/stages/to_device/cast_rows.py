"""Random keys for image transforms in ``to_device()``: one 64-bit key per row. A row has the same key in every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.resume.origins import Origins
from aiostream_data._engine.resume.row_keys import RowNames
from aiostream_data._native.draws_py import WEYL, mixed
from aiostream_data.device.cast_plan import with_cast
from aiostream_data.device.image_cast import ImageCast
from aiostream_data.device.layout import TakenApart
from aiostream_data.plan.operators import ToDevice
from aiostream_data.rows.lineage import MadeOf, source_ids
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.randomness import key_of

Prepare = Callable[[TakenApart], TakenApart]
"""Function that transforms the arrays of a batch.

The writing thread calls this function before writing the batch into a slot.
"""


class CastRows:
    """Batch preparation for the transform of one ``to_device`` node. Thread-safe."""

    def __init__(self, node: ToDevice, context: RunContext) -> None:
        self._cast = node.transform
        self._origins = context.services.origins
        seed = context.services.root_seed
        if node.transform is not None and node.transform.seed is not None:
            seed = node.transform.seed
        self._key = key_of(seed, "image_cast", context.epoch)

    def prepare(self, ids: RowIds, made_of: Sequence[MadeOf | None] | None) -> Prepare | None:
        """Return the function that prepares one batch, or None if the node has no transform.

        Args:
            ids: Row id of the batch.
            made_of: None, or a list with one entry: the lineage (row ids) of the batch.
        """
        cast = self._cast
        if cast is None:
            return None
        assert isinstance(cast, ImageCast)

        def prepare(parts: TakenApart) -> TakenApart:
            keys = None
            if cast.draws:
                rows = source_ids(ids, None if made_of is None else made_of[0])
                keys = row_keys(self._origins, rows, self._key)
            return with_cast(parts, cast, keys)

        return prepare


def row_keys(origins: Origins, ids: RowIds, key: np.uint64) -> NDArray[np.uint64]:
    """Return a random 64-bit key per row. Each key depends only on ``key`` and on the row's source, epoch and number.

    Args:
        ids: Row ids of the source rows.
    """
    return mixed(RowNames(origins).salts_of(ids) ^ key) + ids.ordinals.astype(np.uint64) * np.uint64(WEYL)
