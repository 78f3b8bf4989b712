"""Large batches of a data set take memory of earlier batches, as long as nobody refers to those."""

from __future__ import annotations

import numpy as np
import pytest

from aiostream_data import Dataset

ROWS, PIXELS = 64, 1 << 17
BATCHES = 12


def image(number: int) -> np.ndarray:
    return np.full(PIXELS, number % 251, np.uint8)


SOURCES = {
    "results of a function": Dataset.range(ROWS * BATCHES).map(image),
    "rows of a column": Dataset.from_tensor_slices(np.stack([image(number) for number in range(ROWS * BATCHES)])),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_loop_that_drops_its_batches_gets_the_same_memory_again(source: str) -> None:
    places = set()
    with SOURCES[source].batch(ROWS).open(memory_limit=512 << 20) as loader:
        for number, batch in enumerate(loader):
            places.add(batch.ctypes.data)
            assert batch[:, 0].tolist() == [row % 251 for row in range(number * ROWS, (number + 1) * ROWS)]
            del batch
    assert number == BATCHES - 1
    assert len(places) < BATCHES


@pytest.mark.parametrize("source", SOURCES)
def test_batches_that_are_kept_stay_as_they_are(source: str) -> None:
    with SOURCES[source].batch(ROWS).open(memory_limit=512 << 20) as loader:
        kept = [batch[::7, ::100] for batch in loader]
    for number, batch in enumerate(kept):
        assert batch[:, -1].tolist() == [row % 251 for row in range(number * ROWS, (number + 1) * ROWS, 7)]
