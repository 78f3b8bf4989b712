"""``index_flat_map``: rows of a ``flat_map`` that are computed from their numbers."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from aiostream_data import BytesArray, Dataset, PlanError, StageBuildError
from aiostream_data.testing.comparing import same
from aiostream_data.testing.resume import resumes_everywhere

TEXTS = ["a b c", "d", "e f"]
PLACES = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]


def words(text: str) -> list[str]:
    return text.split()


def place_of(number: int) -> tuple[int, int]:
    return PLACES[number]


def in_three(number: int) -> tuple[int, int]:
    return divmod(number, 3)


def thrice(number: int) -> np.ndarray[Any, Any]:
    return np.arange(3) + 10 * number


@pytest.mark.parametrize(
    "texts", [Dataset.from_list(TEXTS), Dataset.from_iterable(TEXTS), Dataset.from_tensor_slices(TEXTS)]
)
def test_the_rows_are_those_of_flat_map(texts: Dataset[str]) -> None:
    found = texts.index_flat_map(words, place_of, 6)
    assert list(found) == list(texts.flat_map(words)) == ["a", "b", "c", "d", "e", "f"]
    assert found.cardinality() == 6


def test_a_shuffle_permutes_all_rows_without_a_buffer() -> None:
    rows = Dataset.range(400).index_flat_map(thrice, in_three, 1200)
    shuffled = rows.shuffle(seed=3)
    assert "no buffer is needed" in shuffled.explain()
    found = list(shuffled)
    assert sorted(found) == list(rows) != found
    assert np.corrcoef(found, np.arange(1200))[0, 1] < 0.2


def test_the_function_is_called_once_for_each_element_in_order() -> None:
    called: list[int] = []

    def noted(number: int) -> list[int]:
        if not called:
            time.sleep(0.03)  # concurrent calls would share the rows of a slow function
        called.append(number)
        return [number, -number]

    found = list(Dataset.range(100).index_flat_map(noted, lambda n: divmod(n, 2), 200))
    assert found == [row for number in range(100) for row in (number, -number)]
    assert called == list(range(100))


def test_concurrent_calls_do_not_change_the_order_of_the_rows() -> None:
    threads: set[int] = set()

    def slow(number: int) -> np.ndarray[Any, Any]:
        threads.add(threading.get_ident())
        time.sleep(0.005)
        return thrice(number)

    rows = Dataset.range(40).index_flat_map(slow, in_three, 120, concurrency=4)
    assert list(rows) == list(Dataset.range(40).flat_map(thrice))
    assert len(threads) > 1


def test_elements_have_their_types_and_tuples_become_arguments() -> None:
    seen: list[Any] = []

    def noted(*parts: Any) -> list[int]:
        seen.append(parts)
        return [0]

    pairs = Dataset.from_tensor_slices((np.arange(2, dtype=np.int16), BytesArray.from_list([b"x", b"y"])))
    assert list(pairs.index_flat_map(noted, lambda n: (n, 0), 2)) == [0, 0]
    assert same(seen, [(np.int16(0), b"x"), (np.int16(1), b"y")])


def test_it_resumes_at_every_row_and_runs_elsewhere() -> None:
    rows = Dataset.range(5).index_flat_map(thrice, in_three, 15)
    resumes_everywhere(rows)
    resumes_everywhere(rows.shuffle(seed=1).batch(2))
    assert list(rows.in_subprocess()) == list(rows.debug()) == list(rows)
    assert list(rows.with_options(native_threads=1)) == list(rows)


@pytest.mark.parametrize(
    "dataset",
    [Dataset.range(3).map(abs), Dataset.range(3).repeat(2), Dataset.from_generator(lambda: iter([1]))],
    ids=["map", "repeat", "generator"],
)
def test_datasets_that_are_not_in_memory_are_refused(dataset: Dataset[int]) -> None:
    with pytest.raises(PlanError, match=r"index_flat_map\(\) needs a dataset in memory"):
        dataset.index_flat_map(thrice, in_three, 9)


def test_arguments_that_cannot_work_are_refused_where_they_are_written() -> None:
    numbers = Dataset.range(3)
    with pytest.raises(PlanError, match=r"index_flat_map\(\) needs a function"):
        numbers.index_flat_map(3, in_three, 9)  # type: ignore[arg-type]
    with pytest.raises(StageBuildError, match="no positional argument"):
        numbers.index_flat_map(thrice, lambda: (0, 0), 9)  # type: ignore[arg-type,misc]
    for wrong in (-1, 2.5, None):
        with pytest.raises(PlanError, match="cardinality"):
            numbers.index_flat_map(thrice, in_three, wrong)  # type: ignore[arg-type]
    assert list(numbers.index_flat_map(thrice, in_three, 0)) == []


@pytest.mark.parametrize(
    ("function", "index_map", "message"),
    [
        (thrice, lambda n: (n // 3, n), "returned row 3 of element 1 for 3, but the function returned 3 rows"),
        (thrice, lambda n: (n, 0), "returned element 3 for 3, but the dataset has 3 elements"),
        (thrice, lambda n: (0, -1) if n == 3 else (0, 0), "returned row -1"),
        (thrice, lambda n: n if n == 3 else (0, 0), "must return a pair of integers"),
        (lambda n: n if n else [0, 1, 2], in_three, "must return a list, tuple or array of rows"),
    ],
)
def test_places_and_results_that_do_not_exist_are_errors_behind_the_rows_before(
    function: Any, index_map: Any, message: str
) -> None:
    with Dataset.range(3).index_flat_map(function, index_map, 9).open() as loader:
        assert [next(loader) for _ in range(3)]
        with pytest.raises(PlanError, match=message) as caught:
            next(loader)
    notes = "\n".join(caught.value.__notes__)
    assert "test_index_flat_map.py" in notes
    assert "record 3" in notes
