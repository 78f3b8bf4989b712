"""What a transform needs to know of a batch's rows: a word for each, which is the same in every run."""

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
"""What is done to a batch, taken apart, before it is written into a slot. Runs on the thread that writes."""


class CastRows:
    """Prepares batches for the transform of one ``to_device``. Safe from any thread."""

    def __init__(self, node: ToDevice, context: RunContext) -> None:
        self._cast = node.transform
        self._origins = context.services.origins
        seed = context.services.root_seed
        if node.transform is not None and node.transform.seed is not None:
            seed = node.transform.seed
        self._key = key_of(seed, "image_cast", context.epoch)

    def prepare(self, ids: RowIds, made_of: Sequence[MadeOf | None] | None) -> Prepare | None:
        """Return what is done to one batch; None where nothing is.

        Args:
            ids: The batch's own, of one row.
            made_of: None, or one entry: what it was made of.
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
    """Return a word per row, a function of ``key`` and of which row of which source, split and epoch it is.

    Args:
        ids: Of the rows.
    """
    return mixed(RowNames(origins).salts_of(ids) ^ key) + ids.ordinals.astype(np.uint64) * np.uint64(WEYL)
