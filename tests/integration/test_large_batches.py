"""Large batches of a data set take memory of earlier batches, as long as nobody refers to those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, RaggedArray, TFRecordWriter

ROWS, PIXELS = 64, 1 << 17
UNEVEN_ROWS = 40
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


def uneven(number: int) -> np.ndarray:
    return np.full(PIXELS - number % 3, number % 251, np.uint8)


@pytest.fixture(scope="module")
def variable(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset[Any]]:
    """Data sets with batches of large rows of different lengths."""
    path = tmp_path_factory.mktemp("records") / "large.tfrecord"
    with TFRecordWriter(path) as writer:
        for number in range(UNEVEN_ROWS * BATCHES):
            writer.write(uneven(number).tobytes())
    arrays = [uneven(number) for number in range(UNEVEN_ROWS * BATCHES)]
    rows = RaggedArray(np.concatenate(arrays), np.cumsum([0, *map(len, arrays)]))
    return {
        "records": Dataset.from_tfrecord(path, verify=False).batch(UNEVEN_ROWS, strings="columns"),
        "arrays": Dataset.from_tensor_slices(rows).batch(UNEVEN_ROWS),
    }


def numbers_of(batch: Any) -> list[int]:
    return [int(np.frombuffer(row, np.uint8)[-1]) for row in batch]


@pytest.mark.parametrize("kind", ["records", "arrays"])
def test_columns_of_large_rows_take_the_memory_of_dropped_columns(variable: dict[str, Dataset[Any]], kind: str) -> None:
    places, given = set(), []
    with variable[kind].open(memory_limit=512 << 20) as loader:
        for batch in loader:
            places.add(batch.values.ctypes.data)
            given += numbers_of(batch)
            del batch
    assert given == [row % 251 for row in range(UNEVEN_ROWS * BATCHES)]
    assert len(places) < BATCHES


@pytest.mark.parametrize("kind", ["records", "arrays"])
def test_columns_of_large_rows_that_are_kept_stay_as_they_are(variable: dict[str, Dataset[Any]], kind: str) -> None:
    with variable[kind].open(memory_limit=512 << 20) as loader:
        kept = list(loader)
    assert [number for batch in kept for number in numbers_of(batch)] == [
        row % 251 for row in range(UNEVEN_ROWS * BATCHES)
    ]
