"""Chunks on their way to another process: batches in parts are put together where they arrive, and nowhere before."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data._engine.processes.chunk_transfer import handed, taken
from aiostream_data.rows.columns import SeparateBytes
from aiostream_data.rows.parts import Parts
from aiostream_data.rows.records import Items, records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.batching import Batcher, BatchOrder
from aiostream_data.transforms.collate import LARGE_RESULT_NBYTES, collate_results

NBYTES = LARGE_RESULT_NBYTES


def there_and_back(elements: list[Any]) -> tuple[list[Any], int]:
    """Return what arrives of elements, and how many arrays were written beside the message."""
    sent, beside = handed(Items(elements, RowIds.run(0, 0, len(elements))), 0)
    written = [np.empty(parts.nbytes, np.uint8) for parts in beside]
    for parts, memory in zip(beside, written, strict=True):
        parts.write_to(memory)
    return [*taken(pickle.loads(pickle.dumps(sent)), written).elements()], len(beside)


def test_separate_bytes_objects_are_joined_where_they_arrive() -> None:
    rows = [b"abc", b"", b"x" * 100_000]
    chunk = records_chunk(SeparateBytes(rows), RowIds.run(0, 0, 3))
    sent, beside = handed(chunk, 0)
    assert len(pickle.dumps(sent)) < 10_000
    written = [np.empty(parts.nbytes, np.uint8) for parts in beside]
    for parts, memory in zip(beside, written, strict=True):
        parts.write_to(memory)
    arrived = taken(pickle.loads(pickle.dumps(sent)), written)
    assert arrived.elements() == rows
    assert [memory.nbytes for memory in written] == [100_003]


def images(count: int, dtype: str = "uint8", shape: tuple[int, ...] = (64, 256)) -> list[NDArray[Any]]:
    return [np.full(shape, number, dtype) for number in range(count)]


def batches(results: list[Any], size: int) -> list[Any]:
    """Return batches of what a function returned, as a process makes them that hands them over."""
    batcher = Batcher(BatchOrder(size), lambda ids, row: f"record {row}", parts_from=NBYTES)
    made = batcher.push(collate_results(results, RowIds.run(0, 0, len(results)))) + batcher.finish()
    return [batch.element for batch in made]


@pytest.mark.parametrize("dtype", ["uint8", ">f4", "complex128", "datetime64[s]", [("a", "<i4"), ("b", "u1")]])
def test_large_results_are_put_together_where_they_arrive(dtype: Any) -> None:
    rows: list[dict[str, Any]] = [
        {"image": image.astype(dtype), "label": number} for number, image in enumerate(images(7))
    ]
    arrived, beside = there_and_back(batches(rows, 3))
    assert beside == 3
    assert [batch["label"].tolist() for batch in arrived] == [[0, 1, 2], [3, 4, 5], [6]]
    for first, batch in zip((0, 3, 6), arrived, strict=True):
        expected = np.stack([row["image"] for row in rows[first : first + 3]])
        assert (batch["image"].dtype, batch["image"].shape) == (expected.dtype, expected.shape)
        assert batch["image"].tobytes() == expected.tobytes()


def test_results_in_any_layout_arrive_in_c_order() -> None:
    rows = [image.T for image in images(4)] + [image[::-1, ::2].copy("F").T for image in images(4, shape=(256, 128))]
    arrived, beside = there_and_back(batches(rows[:4], 2))
    assert beside == 2
    assert np.array_equal(np.concatenate(arrived), np.stack(rows[:4]))


@pytest.mark.parametrize(
    "rows",
    [
        [np.zeros(NBYTES, np.uint8), np.zeros(NBYTES, np.int8)],
        [np.zeros(NBYTES, np.uint8), np.zeros(NBYTES + 1, np.uint8)],
    ],
    ids=["dtypes", "shapes"],
)
def test_results_that_do_not_stack_are_refused_as_ever(rows: list[Any]) -> None:
    with pytest.raises(ValueError, match="record 1"):
        batches(rows, 2)


def test_small_batches_and_other_leaves_stay_in_the_message() -> None:
    rows: list[Any] = [{"x": np.arange(4) + number, "name": f"n{number}"} for number in range(4)]
    arrived, beside = there_and_back(batches(rows, 2))
    assert beside == 0
    assert [batch["x"].tolist() for batch in arrived] == [[[0, 1, 2, 3], [1, 2, 3, 4]], [[2, 3, 4, 5], [3, 4, 5, 6]]]
    assert [batch["name"].tolist() for batch in arrived] == [["n0", "n1"], ["n2", "n3"]]


def test_parts_beside_small_arrays_arrive_in_their_places() -> None:
    elements = [
        (np.arange(3) + number, Parts((np.full((2, 5), number, "f8"), np.full((1, 5), -number, "f8"))))
        for number in range(3)
    ]
    arrived, beside = there_and_back(elements)
    assert beside == 3
    assert [small.tolist() for small, _ in arrived] == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert [whole[:, 0].tolist() for _, whole in arrived] == [[0, 0, 0], [1, 1, -1], [2, 2, -2]]


def test_parts_without_bytes_arrive_in_their_shape() -> None:
    arrived, _ = there_and_back([{"none": Parts((np.zeros((2, 0), "f4"), np.zeros((3, 0), "f4")))}])
    assert arrived[0]["none"].shape == (5, 0)
    assert arrived[0]["none"].dtype == "f4"
