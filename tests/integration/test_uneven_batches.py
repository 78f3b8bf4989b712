"""Batches and windows of elements with different shapes: ragged, sparse, or as datasets."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import ArraySpec, BatchShapeError, Dataset, PlanError, RaggedArray
from aiostream_data.testing.resume import resumes_everywhere


def steps(number: int) -> Any:
    return np.arange(int(number))


def named(number: int) -> dict[str, Any]:
    return {"tokens": steps(number), "label": int(number), "word": "w" * int(number)}


def wide(number: int) -> Any:
    return np.full((int(number), 2), int(number), np.float32)


def fails_at_three(number: int) -> Any:
    return np.zeros(2, np.int8) if number == 3 else np.zeros(int(number), np.float32)


def dense(batch: Any) -> Any:
    return batch.toarray()


def padded(window: Dataset[Any]) -> Dataset[Any]:
    return window.padded_batch(3)


def zipped(window: Any) -> Dataset[Any]:
    return Dataset.zip(window)


ROWS = Dataset.range(7)


# -- ragged_batch


def test_arrays_of_different_lengths_become_ragged_and_all_others_stay_as_in_a_batch() -> None:
    first, second = ROWS.map(named).ragged_batch(4)
    assert isinstance(first["tokens"], RaggedArray)
    assert first["tokens"].to_list() == [[], [0], [0, 1], [0, 1, 2]]
    assert first["tokens"].values.dtype == np.int64
    assert first["label"].tolist() == [0, 1, 2, 3]
    assert first["word"].tolist() == ["", "w", "ww", "www"]
    assert second["tokens"].to_list() == [[0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("rows", "values"),
    [
        ([[1, 2], [], [3]], [[1, 2], [], [3]]),
        ([["a"], [], ["b", "c"]], [["a"], [], ["b", "c"]]),
        ([np.ones((1, 2)), np.zeros((0, 2)), np.ones((2, 2))], [[[1, 1]], [], [[1, 1], [1, 1]]]),
    ],
)
def test_lists_words_and_rows_with_several_axes_are_ragged_in_their_first_axis(rows: Any, values: Any) -> None:
    (batch,) = Dataset.from_iterable(rows).ragged_batch(3)
    assert isinstance(batch, RaggedArray)
    assert batch.to_list() == values


def test_the_type_does_not_depend_on_the_lengths_in_the_data() -> None:
    (equal,) = Dataset.range(3).map(lambda _: np.arange(2)).ragged_batch(3)
    assert isinstance(equal, RaggedArray)
    known = Dataset.from_tensor_slices(np.eye(3)).ragged_batch(2)
    assert known.element_spec == ArraySpec((None, 3), np.dtype(np.float64))
    assert [batch.shape for batch in known] == [(2, 3), (1, 3)]


def test_ragged_features_stay_ragged() -> None:
    dataset = Dataset.from_tensor_slices(RaggedArray(np.arange(6), np.array([0, 2, 2, 6]))).ragged_batch(2)
    assert [batch.to_list() for batch in dataset] == [[[0, 1], []], [[2, 3, 4, 5]]]
    assert dataset.element_spec == ArraySpec((None, None), np.dtype(np.int64), ragged=True)


def test_the_last_batch_can_be_dropped() -> None:
    assert ROWS.map(steps).ragged_batch(3, drop_remainder=True).cardinality() == 2
    assert [len(batch) for batch in ROWS.map(steps).ragged_batch(3, drop_remainder=True)] == [3, 3]
    assert "ragged_batch(3, drop_remainder=True)" in ROWS.ragged_batch(3, drop_remainder=True).explain()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [np.ones(2), np.ones(3), np.ones(2, np.int8)],
            r"shape \(2,\) of float64 in .* 0 but .* of int8 in .* 2",
        ),
        ([np.ones((1, 2)), np.ones((1, 3))], r"shape \(1, 2\) of float64 in .* record 0 but shape \(1, 3\)"),
        ([np.ones(2), 1], "a value without axes in .* record 1"),
        ([{"a": 1}, {"b": 1}], "structure"),
    ],
)
def test_rows_that_cannot_be_ragged_are_named(rows: Any, message: str) -> None:
    with pytest.raises(BatchShapeError, match=message) as caught:
        list(Dataset.from_iterable(rows).ragged_batch(3))
    assert any("stage: ragged_batch" in note for note in caught.value.__notes__)


def test_batches_before_a_bad_row_are_delivered() -> None:
    with ROWS.map(fails_at_three).ragged_batch(2).open() as loader:
        assert len(next(loader)) == 2
        with pytest.raises(BatchShapeError, match="range record 3"):
            next(loader)


def test_ranks_share_the_rows_of_a_ragged_batch() -> None:
    dataset = Dataset.range(8).map(steps).ragged_batch(4)
    ranks = [[batch.row_lengths.tolist() for batch in dataset.open(rank=rank, world_size=2)] for rank in range(2)]
    assert ranks == [[[0, 2, 4, 6]], [[1, 3, 5, 7]]]


# -- sparse_batch


def test_rows_become_a_csr_array_with_all_their_values() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    first, second = Dataset.range(4).map(steps).sparse_batch(2, [4])
    assert isinstance(first, scipy.csr_array)
    assert first.toarray().tolist() == [[0, 0, 0, 0], [0, 0, 0, 0]]
    assert second.toarray().tolist() == [[0, 1, 0, 0], [0, 1, 2, 0]]
    assert (first.nnz, second.nnz) == (1, 5)


def test_an_axis_without_a_length_is_as_long_as_the_longest_row() -> None:
    for shape in ([None], [-1]):
        assert [batch.shape for batch in Dataset.range(4).map(steps).sparse_batch(2, shape)] == [(2, 1), (2, 3)]


def test_rows_with_several_axes_become_a_coo_array() -> None:
    (batch,) = Dataset.range(1, 3).map(wide).sparse_batch(2, [3, 2])
    assert batch.shape == (2, 3, 2)
    assert batch.toarray().tolist() == [[[1, 1], [0, 0], [0, 0]], [[2, 2], [2, 2], [0, 0]]]


@pytest.mark.parametrize(
    ("function", "shape", "message"),
    [
        (steps, [2], r"row_shape=\[2\] cannot hold the shape \(3,\) in range record 3"),
        (steps, [2, 2], r"cannot hold the shape \(0,\) in range record 0"),
        (str, [2], "needs arrays of numbers, got a str in range record 0"),
        (named, [2], "got a dict in range record 0"),
        (fails_at_three, [9], "float32 in range record 2 but int8 in range record 3"),
    ],
)
def test_rows_that_do_not_fit_are_named(function: Any, shape: Any, message: str) -> None:
    with pytest.raises(BatchShapeError, match=message):
        list(Dataset.range(4).map(function).sparse_batch(2, shape))


def test_bad_arguments_raise_at_the_call() -> None:
    for shape in ([], ["a"], [-2]):
        with pytest.raises(PlanError, match="row_shape"):
            ROWS.sparse_batch(2, shape)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="row_shape"):
        ROWS.sparse_batch(2, 3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="batch_size"):
        ROWS.ragged_batch(0)
    with pytest.raises(PlanError, match="as_datasets"):
        ROWS.window(2, as_datasets=1)  # type: ignore[call-overload]


def test_a_missing_scipy_is_named_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(asd.MissingExtraError, match=r"sparse_batch\(\) needs SciPy: pip install"):
        ROWS.sparse_batch(2, [3])


# -- windows of datasets


def numbers(window: Any) -> list[int]:
    assert isinstance(window, Dataset)
    return [int(number) for number in window]


@pytest.mark.parametrize(
    ("arguments", "windows"),
    [
        ({"size": 3}, [[0, 1, 2], [3, 4, 5], [6]]),
        ({"size": 3, "shift": 1, "drop_remainder": True}, [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]),
        ({"size": 3, "shift": 1, "stride": 2, "drop_remainder": True}, [[0, 2, 4], [1, 3, 5], [2, 4, 6]]),
    ],
)
def test_windows_are_datasets_as_in_tf_data(arguments: dict[str, Any], windows: list[list[int]]) -> None:
    dataset = ROWS.window(**arguments, as_datasets=True)
    assert list(map(numbers, dataset)) == windows
    assert dataset.cardinality() == len(windows)


def test_each_leaf_of_a_window_is_a_dataset() -> None:
    (window, _) = Dataset.range(4).map(named).window(3, as_datasets=True)
    assert sorted(window) == ["label", "tokens", "word"]
    assert [tokens.tolist() for tokens in window["tokens"]] == [[], [0], [0, 1]]
    assert list(window["word"]) == ["", "w", "ww"]
    (pairs, _) = Dataset.range(4).enumerate().window(3, as_datasets=True)
    assert list(map(numbers, pairs)) == [[0, 1, 2], [0, 1, 2]]


def test_windows_of_different_shapes_are_processed_by_flat_map() -> None:
    batches = Dataset.range(5).map(steps).window(3, 2, as_datasets=True).flat_map(padded)
    assert [batch.tolist() for batch in batches] == [
        [[0, 0], [0, 0], [0, 1]],
        [[0, 1, 0, 0], [0, 1, 2, 0], [0, 1, 2, 3]],
        [[0, 1, 2, 3]],
    ]
    rows = Dataset.range(4).map(named).window(2, as_datasets=True).flat_map(zipped)
    assert [row["label"] for row in rows] == [0, 1, 2, 3]


def test_elements_of_a_window_need_one_structure() -> None:
    with pytest.raises(BatchShapeError, match="structure"):
        list(Dataset.from_iterable([{"a": 1}, {"b": 1}]).window(2, as_datasets=True))


def test_the_rows_of_a_window_count_against_the_memory_limit() -> None:
    large = Dataset.range(40).map(lambda n: np.zeros(1 << 16, np.uint8)).window(4, as_datasets=True).prefetch(100)
    with large.open(memory_limit="1MB") as loader:
        next(loader)
        (stage,) = (stage for stage in loader.stats().stages if stage.name == "window")
    assert 4 << 16 <= stage.nbytes < 40 << 16


# -- resuming


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(11).map(named).shuffle(4).ragged_batch(3),
        Dataset.range(11).map(steps).ragged_batch(3).shuffle(2).repeat(2),
        Dataset.range(11).map(steps).sparse_batch(3, [None]).map(dense),
        Dataset.range(11).map(steps).window(4, 3, as_datasets=True).flat_map(padded),
        Dataset.range(11).shuffle(4).map(named).window(3, 2, as_datasets=True).flat_map(zipped).shuffle(4),
        Dataset.range(11).map(steps).window(4, 3, as_datasets=True).shuffle(3).interleave(padded, cycle_length=2),
    ],
    ids=["ragged", "ragged, shuffled", "sparse", "windows", "windows between shuffles", "shuffled windows"],
)
def test_it_resumes_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)
