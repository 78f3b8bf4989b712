"""Batches for a device are put together in their slots: rows are copied once, from where they stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, Ragged, RaggedArray, TFRecordWriter, encode_example
from aiostream_data.device import filling
from aiostream_data.device.layout import fill
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.parts import PaddedParts, Parts
from aiostream_data.rows.records import Columns
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF
from aiostream_data.transforms import batching, collate, padding
from aiostream_data.transforms import filling as filling_rows
from aiostream_data.transforms.ragged_parts import ragged_in_parts

ROWS = 23
IMAGES = np.random.default_rng(1).integers(0, 255, (ROWS, 96, 96, 3), np.uint8)
LABELS = np.arange(ROWS, dtype=np.int32)


def nested() -> dict[str, Any]:
    return {"image": IMAGES, "more": ({"label": LABELS}, IMAGES[:, 0].copy())}


def image(number: int) -> dict[str, Any]:
    return {"image": IMAGES[number], "label": number}


def long_rows(number: int) -> np.ndarray[Any, Any]:
    return np.full((2_000 + 100 * number, 3), number, np.float32)


def ragged(number: int) -> np.ndarray[Any, Any]:
    return np.full(1_500 + 10 * number, number, np.int64)


def leaves(element: Any) -> list[Any]:
    if isinstance(element, dict):
        return [leaf for value in element.values() for leaf in leaves(value)]
    if isinstance(element, (list, tuple)):
        return [leaf for value in element for leaf in leaves(value)]
    return [element.values, element.row_splits] if isinstance(element, RaggedArray) else [element]


def assert_equal(element: Any, other: Any) -> None:
    pairs = list(zip(leaves(element), leaves(other), strict=True))
    assert pairs
    for one, two in pairs:
        assert np.asarray(one).dtype == np.asarray(two).dtype
        np.testing.assert_array_equal(one, two)


PLANS: dict[str, Callable[[], Dataset[Any]]] = {
    "dense": lambda: Dataset.from_tensor_slices(IMAGES).batch(5),
    "dense, no remainder": lambda: Dataset.from_tensor_slices(IMAGES).batch(5, drop_remainder=True),
    "nested": lambda: Dataset.from_tensor_slices(nested()).batch(5),
    "shuffled": lambda: Dataset.from_tensor_slices(nested()).shuffle(9, seed=3).batch(5),
    "mapped": lambda: Dataset.range(ROWS).map(image).batch(5),
    "prefetched": lambda: Dataset.from_tensor_slices(IMAGES).batch(5).prefetch(2),
    "padded": lambda: Dataset.range(ROWS).map(long_rows).padded_batch(5, padding_values=7),
    "padded to a shape": lambda: Dataset.range(ROWS).map(long_rows).padded_batch(5, padded_shapes=(5_000, 4)),
    "short rows padded": lambda: Dataset.range(ROWS).map(lambda n: np.arange(n)).padded_batch(4),
    "buckets": lambda: (
        Dataset.range(ROWS)
        .map(long_rows)
        .bucket_by_sequence_length(lambda row: len(row), bucket_boundaries=[3_000], bucket_batch_sizes=[3, 2])
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_batches_are_the_same_as_without_a_device(name: str) -> None:
    plain, placed = list(PLANS[name]()), list(PLANS[name]().to_device("cpu"))
    assert len(plain) == len(placed) > 0
    for batch, other in zip(plain, placed, strict=True):
        assert_equal(batch, other)


def refuse(*args: Any, **options: Any) -> Any:
    raise AssertionError("an array of the whole batch was made outside of its slot")


@pytest.mark.parametrize("name", ["dense", "nested", "prefetched", "padded", "padded to a shape"])
def test_no_array_of_a_whole_batch_is_made_before_its_slot_is_written(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, function in (
        *((batching, "batch_leaf"), (batching, "stack_leaf"), (collate, "_stacked")),
        *((padding, "pad_pieces"), (filling_rows, "pad_pieces"), (padding, "pad_arrays")),
    ):
        monkeypatch.setattr(module, function, refuse)
    with PLANS[name]().to_device("cpu").open() as loader:
        batches = len(list(loader))
        (device,) = loader.stats().devices
    assert batches == 5
    assert device.rewritten_nbytes == 0
    assert device.host_copies == 1.0


def test_slots_are_written_from_the_users_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    nbytes: list[int] = []

    def look(arrays: Any, sources: list[Any]) -> None:
        for source in sources:
            assert isinstance(source, Parts)
            assert all(np.shares_memory(piece, IMAGES) for piece in source.pieces)
            nbytes.append(source.nbytes)
        fill(arrays, sources)

    monkeypatch.setattr(filling, "fill", look)
    assert len(list(Dataset.from_tensor_slices(IMAGES).batch(5).to_device("cpu"))) == 5
    assert sum(nbytes) == IMAGES.nbytes


def test_rows_that_wait_for_the_next_chunk_are_not_copied_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "owned", refuse)
    images = [np.full((3, 96, 96, 3), number, np.uint8) for number in range(6)]
    batcher = batching.Batcher(batching.BatchOrder(5), lambda ids, row: f"row {row}", 0)
    made = []
    for number, rows in enumerate(images):
        chunk = Columns(LEAF, (rows,), RowIds.run(0, 3 * number, 3))
        made += [batch.element for batch in batcher.push(chunk)]
        assert (batcher.nbytes > 0) == (len(batcher) > 0)
    made += [batch.element for batch in batcher.finish()]
    assert [[len(piece) for piece in parts.pieces] for parts in made] == [[3, 2], [1, 3, 1], [2, 3], [3]]
    assert all(any(np.shares_memory(piece, rows) for rows in images) for parts in made for piece in parts.pieces)


def test_rows_of_a_function_are_written_from_where_it_has_put_them(monkeypatch: pytest.MonkeyPatch) -> None:
    images: list[Any] = []

    def look(arrays: Any, sources: list[Any]) -> None:
        images.extend(source for source in sources if source.nbytes > IMAGES[0].nbytes)
        fill(arrays, sources)

    monkeypatch.setattr(filling, "fill", look)
    assert len(list(Dataset.range(ROWS).map(image).batch(5).to_device("cpu"))) == 5
    assert [len(parts.pieces) for parts in images] == [5, 5, 5, 5, 3]
    assert all(np.shares_memory(piece, IMAGES) for parts in images for piece in parts.pieces)


def written(folder: Path) -> list[str]:
    paths = []
    for file in range(2):
        paths.append(str(folder / f"{file}.tfrecord"))
        with TFRecordWriter(paths[-1]) as writer:
            for number in range(file, ROWS, 2):
                writer.write(encode_example({"long": ragged(number), "short": np.arange(number % 3)}))
    return paths


@pytest.mark.parametrize("shuffled", [False, True])
def test_values_of_ragged_leaves_are_written_from_where_they_were_decoded(shuffled: bool, tmp_path: Path) -> None:
    features = {"long": Ragged(np.int64), "short": Ragged(np.int64)}
    dataset = Dataset.from_tfrecord(written(tmp_path)).parse_example(features)
    batches = (dataset.shuffle(11, seed=5) if shuffled else dataset).batch(5)
    plain = list(batches)
    with batches.to_device("cpu").open() as loader:
        placed = list(loader)
        (device,) = loader.stats().devices
    for batch, other in zip(plain, placed, strict=True):
        assert_equal(batch, other)
    long_nbytes = sum(ragged(number).nbytes for number in range(ROWS))
    assert device.written_nbytes > long_nbytes
    assert device.rewritten_nbytes < 8 * 100, "row splits, and at most the short values"


def test_rows_that_follow_one_another_are_one_piece_and_rows_of_nothing_are_in_none() -> None:
    values = np.arange(10_000, dtype=np.int64)
    starts = np.array([0, 1_000, 7_777, 2_000, 5_000, 6_000])
    column = VarColumn(values, starts, np.array([1_000, 1_000, 0, 1_000, 1_000, 500]), "array")
    in_parts = ragged_in_parts([column, column.slice(0, 1)])
    assert in_parts is not None
    pieces: Any = in_parts.values
    assert [(piece[0], len(piece)) for piece in pieces.pieces] == [(0, 3_000), (5_000, 1_500), (0, 1_000)]
    assert in_parts.row_splits.tolist() == [0, 1_000, 2_000, 2_000, 3_000, 4_000, 4_500, 5_500]


def test_many_small_pieces_are_copied_together() -> None:
    values = np.arange(1_000, dtype=np.int64)
    scattered = VarColumn(values, np.arange(0, 1_000, 10), np.full(100, 5), "array")
    assert ragged_in_parts([scattered]) is None


def test_rows_of_nothing_make_an_empty_ragged_array() -> None:
    empty = VarColumn(np.zeros((4, 2), np.float32), np.zeros(3, np.int64), np.zeros(3, np.int64), "array")
    in_parts = ragged_in_parts([empty])
    assert in_parts is not None
    assert in_parts.values.shape == (0, 2)
    assert in_parts.row_splits.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("row_shape", [(3, 4), (5, 4), (3, 6)])
def test_padded_parts_are_what_padding_would_have_made(row_shape: tuple[int, ...]) -> None:
    pieces = tuple(np.full((rows, 4), rows, np.int16) for rows in (3, 1, 2, 0))
    parts = PaddedParts(pieces, row_shape, -1)
    target = np.full(parts.shape, 99, parts.dtype)
    parts.write_into(target)
    for row, piece in zip(target, pieces, strict=True):
        expected = np.full(row_shape, -1, np.int16)
        expected[: len(piece), :4] = piece
        np.testing.assert_array_equal(row, expected)
    assert (parts.ndim, parts.nbytes) == (3, target.nbytes)


def test_explain_says_whether_batches_are_put_together_in_their_slots() -> None:
    images = Dataset.from_tensor_slices(IMAGES)
    for dataset in (images.batch(5), images.batch(5).prefetch(2), images.padded_batch(5)):
        assert "slots: batches are assembled directly in the slots" in dataset.to_device("cpu").explain()
    for dataset in (images.batch(5).map(np.copy), images.rebatch(5)):
        assert "slots: batches are assembled first, then copied into the slots" in dataset.to_device("cpu").explain()
    assert "slots:" not in images.batch(5).explain()
