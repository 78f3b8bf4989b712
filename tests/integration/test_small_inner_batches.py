"""Batches of small inner datasets are built without a run of their own, and behave like all others."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiostream_data as asd
from aiostream_data._engine.stages.interleaving.inner_rows import small_rows
from aiostream_data._engine.stages.interleaving.small_batches import MOST_NBYTES
from aiostream_data.testing.comparing import same
from aiostream_data.testing.resume import resumes_everywhere

LENGTHS = (3, 0, 7, 1, 0, 5, 2, 6)
NUMBERS = asd.Dataset.range(12)


def rows_of(number: int) -> list[int]:
    return [100 * number + row for row in range(LENGTHS[number % len(LENGTHS)])]


def as_list(number: int) -> asd.Dataset[Any]:
    return asd.Dataset.from_iterable(rows_of(number))


def as_range(number: int) -> asd.Dataset[Any]:
    return asd.Dataset.range(100 * number, 100 * number + LENGTHS[number % len(LENGTHS)])


def as_slices(number: int) -> asd.Dataset[Any]:
    return asd.Dataset.from_tensor_slices(np.array(rows_of(number), np.int64))


def as_mixed(number: int) -> asd.Dataset[Any]:
    """Return rows whose type depends on the number."""
    rows = rows_of(number)
    kinds: list[Callable[[int], Any]] = [int, float, str, bool, np.float32, lambda row: np.full(number % 3, row)]
    return asd.Dataset.from_iterable([kinds[number % 6](row) for row in rows])


def as_array(number: int) -> asd.Dataset[Any]:
    return asd.Dataset.from_iterable(np.array(rows_of(number), np.int16 if number % 2 else ">i4"))


def as_pairs(number: int) -> asd.Dataset[Any]:
    return asd.Dataset.from_iterable([{"row": row, "text": str(row)} for row in rows_of(number)])


def repeated(number: int) -> asd.Dataset[Any]:
    return as_range(number).repeat(2)


def generated(number: int) -> asd.Dataset[Any]:
    return asd.Dataset.from_generator(lambda: iter(rows_of(number)))


FORMS: list[Callable[[int], asd.Dataset[Any]]] = [as_list, as_range, as_slices, as_mixed, as_array, as_pairs]


@given(st.sampled_from(FORMS), st.integers(0, 40), st.integers(1, 8), st.booleans(), st.integers(1, 3), st.booleans())
def test_the_batches_are_those_of_a_run_of_its_own(
    form: Any, count: int, size: int, drop: bool, cycle: int, debug: bool
) -> None:
    def batched(number: int) -> asd.Dataset[Any]:
        rows: asd.Dataset[Any] = form(number)
        return rows.batch(size, drop_remainder=drop)

    def expected(number: int) -> asd.Dataset[Any]:
        rows = list(form(number))
        return asd.Dataset.from_generator(lambda: iter(rows)).batch(size, drop_remainder=drop)

    numbers = asd.Dataset.range(count)
    with numbers.interleave(batched, cycle_length=cycle, block_length=2).open(debug=debug) as loader:
        assert same(list(loader), list(numbers.interleave(expected, cycle_length=cycle, block_length=2)))


@pytest.mark.parametrize("form", [*FORMS, repeated])
@pytest.mark.parametrize("cycle", [1, 3])
def test_they_resume_at_every_batch(form: Any, cycle: int) -> None:
    resumes_everywhere(NUMBERS.interleave(lambda number: form(number).batch(3), cycle_length=cycle))


@pytest.mark.parametrize("form", [*FORMS, repeated])
def test_batches_held_by_a_shuffle_are_recomputed_on_resume(form: Any) -> None:
    resumes_everywhere(NUMBERS.flat_map(lambda number: form(number).batch(2, drop_remainder=True)).shuffle(4, seed=3))


def test_windows_in_batches_resume_at_every_batch() -> None:
    windows = NUMBERS.window(5, 2, as_datasets=True)
    resumes_everywhere(windows.flat_map(lambda window: window.batch(2)).shuffle(3, seed=1))


def test_the_first_batch_arrives_before_a_slow_function_was_called_for_all_rows() -> None:
    called = []

    def slow(number: int) -> asd.Dataset[Any]:
        called.append(number)
        sleep(0.002)
        return as_range(number).batch(3)

    with asd.Dataset.range(400).flat_map(slow).open() as loader:
        next(loader)
        assert len(called) < 300


def uneven(number: int) -> asd.Dataset[Any]:
    """Return rows that cannot be stacked from the third on, if the number is 2."""
    rows = [np.zeros(2), np.zeros(2), np.zeros(3 if number == 2 else 2), np.zeros(2)]
    return asd.Dataset.from_iterable(rows).batch(2)


def test_a_batch_that_cannot_be_built_fails_behind_all_batches_before_it() -> None:
    with NUMBERS.flat_map(uneven).open() as loader:
        delivered = [next(loader) for _ in range(5)]
        with pytest.raises(asd.BatchShapeError, match="cannot batch leaf") as caught:
            next(loader)
    assert [batch.shape for batch in delivered] == [(2, 2)] * 5
    assert any("uneven" in note for note in caught.value.__notes__)


def test_a_run_resumes_within_a_dataset_whose_later_batch_fails() -> None:
    dataset = NUMBERS.flat_map(uneven)
    with dataset.open() as loader:
        for _ in range(5):
            next(loader)
        state = loader.state_dict()
    with dataset.open(state=state) as loader, pytest.raises(asd.BatchShapeError):
        next(loader)


@pytest.mark.parametrize(
    ("inner", "rows"),
    [
        (asd.Dataset.range(10).batch(4), 3),
        (asd.Dataset.range(10).batch(4, drop_remainder=True), 2),
        (asd.Dataset.range(0).batch(4), 0),
        (asd.Dataset.from_iterable(["a", "b"]).batch(1), 2),
        (asd.Dataset.range(10).batch(4).batch(2), -1),
        (asd.Dataset.range(10).map(abs).batch(4), -1),
        (asd.Dataset.range(MOST_NBYTES // 8 + 1).batch(4), -1),
        (asd.Dataset.from_iterable([bytes(MOST_NBYTES + 1)]).batch(1), -1),
        (asd.Dataset.from_tensor_slices(np.zeros((2, MOST_NBYTES), np.uint8)).batch(1), -1),
    ],
    ids=["range", "dropped", "empty", "list", "batches", "map", "long", "large value", "large slices"],
)
def test_only_small_datasets_in_memory_are_batched_in_place(inner: asd.Dataset[Any], rows: int) -> None:
    assert small_rows(inner.plan) == rows


def test_rows_split_from_inner_batches_have_different_ids_and_draws() -> None:
    def drawn(number: int, rng: np.random.Generator) -> tuple[int, int]:
        return int(number), int(rng.integers(1 << 40))

    rows = NUMBERS.flat_map(lambda number: as_range(number).batch(3)).unbatch().map(drawn)
    with rows.open() as loader:
        found = [(draw, tuple(map(tuple, np.asarray(loader.last_ids).tolist()))) for _, draw in loader]
    assert len({draw for draw, _ in found}) == len({ids for _, ids in found}) == len(found) > 20
    resumes_everywhere(asd.Dataset.range(2).map(drawn).concatenate(rows).shuffle(3, seed=5))
