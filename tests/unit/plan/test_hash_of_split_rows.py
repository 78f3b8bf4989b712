"""Rows that pack() split keep their names when they are made again, so that stream_hash goes on over a state."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data import Dataset
from aiostream_data.plan.windows import TooLong


def tokens(number: int) -> NDArray[np.int64]:
    return np.arange(number)


@pytest.mark.parametrize("too_long", ["split", "truncate", "drop"])
def test_stream_hash_goes_on_over_packed_rows_that_a_shuffle_held_back(too_long: TooLong) -> None:
    packed = Dataset.range(12).map(tokens).pack(3, open_bins=2, too_long=too_long).shuffle(5)
    with packed.open(seed=22, rank=0, world_size=1) as loader:
        hashes = [loader.stream_hash for _ in loader]
    for taken in range(1, len(hashes)):
        with packed.open(seed=22, rank=0, world_size=1) as loader:
            list(islice(loader, taken))
            state = loader.state_dict()
        with packed.open(state, rank=0, world_size=1) as resumed:
            assert [resumed.stream_hash for _ in resumed] == hashes[taken:]
