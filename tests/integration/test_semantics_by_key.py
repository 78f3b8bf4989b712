"""``group_by_window`` and ``group_by_reducer`` behave as in tf.data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, MemoryBudgetError, PlanError, StageBuildError
from aiostream_data.testing.resume import resumes_everywhere


def parity(number: int) -> int:
    return number % 2


def by_three(number: int) -> int:
    return number % 3


def batches_of_five(key: int, window: Dataset[Any]) -> Dataset[Any]:
    return window.batch(5)


def whole(key: Any, window: Dataset[Any]) -> Dataset[Any]:
    return window


def with_key(key: Any, window: Dataset[Any]) -> Dataset[Any]:
    return window.map(lambda number: (key, number))


def lists(dataset: Dataset[Any]) -> list[Any]:
    return [batch.tolist() for batch in dataset]


# -- group_by_window


def test_the_example_of_tensorflow() -> None:
    windows = Dataset.range(10).group_by_window(parity, batches_of_five, 5)
    assert lists(windows) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_windows_come_when_they_are_full_and_the_rest_in_ascending_order_of_keys() -> None:
    keys = Dataset.from_tensor_slices([2, 1, 2, 0, 1, 2, 1, 1])
    windows = keys.group_by_window(int, lambda key, window: window.batch(9), 3)
    assert lists(windows) == [[2, 2, 2], [1, 1, 1], [0], [1]]


def test_the_function_for_sizes_is_called_once_per_key() -> None:
    asked: list[int] = []

    def size_of(key: int) -> int:
        asked.append(key)
        return key + 1

    windows = Dataset.range(10).group_by_window(by_three, with_key, window_size_fn=size_of)
    assert list(windows) == [
        *[(0, 0), (0, 3), (1, 1), (1, 4), (0, 6), (2, 2), (2, 5), (2, 8), (0, 9)],
        (1, 7),
    ]
    assert asked == [0, 1, 2]


def test_the_result_is_flattened_and_may_be_any_iterable() -> None:
    assert list(Dataset.range(6).group_by_window(parity, lambda key, window: [key] * 2, 3)) == [0, 0, 1, 1]
    assert list(Dataset.range(6).group_by_window(parity, lambda key, window: [], 3)) == []
    assert list(Dataset.range(4).group_by_window(parity, lambda key, window: (key for _ in range(1)), 2)) == [0, 1]
    sums = Dataset.range(6).group_by_window(parity, lambda key, window: [sum(window)], 3)
    assert list(sums) == [6, 9]


def odd_structure(number: int) -> dict[str, Any]:
    return {"n": number, "maybe": None if number % 3 else number}


@pytest.mark.parametrize("make", [odd_structure, lambda number: {"n": number, "x": np.arange(number)}])
def test_windows_hold_elements_of_any_kind(make: Callable[[int], dict[str, Any]]) -> None:
    rows = Dataset.range(7).map(make)
    assert [row["n"] for row in rows.group_by_window(lambda row: row["n"] % 2, whole, 2)] == [0, 2, 1, 3, 4, 6, 5]
    batched = rows.group_by_window(lambda row: row["n"] % 2, lambda key, window: window.batch(2, collate=list), 4)
    assert [[row["n"] for row in batch] for batch in batched] == [[0, 2], [4, 6], [1, 3], [5]]


def test_keys_can_be_text_tuples_and_more() -> None:
    words = Dataset.from_iterable(["pear", "fig", "plum", "apple", "fir"])
    assert list(words.group_by_window(lambda word: word[0], whole, 2)) == ["pear", "plum", "fig", "fir", "apple"]
    pairs = words.enumerate().group_by_window(lambda number, word: (len(word), number % 2), whole, 9)
    assert [word for _, word in pairs] == ["fir", "fig", "pear", "plum", "apple"]


def test_arrays_of_a_window_cannot_be_modified() -> None:
    rows = Dataset.from_tensor_slices(np.zeros((4, 2)))
    row = next(iter(rows.group_by_window(lambda row: 0, whole, 4)))
    with pytest.raises(ValueError, match="read-only"):
        row += 1


def test_a_window_knows_its_length_and_structure() -> None:
    found: list[Any] = []

    def look(key: int, window: Dataset[Any]) -> Dataset[Any]:
        found.append((len(window), window.element_spec.dtype))
        return window

    list(Dataset.range(5).group_by_window(parity, look, 2))
    assert found == [(2, np.int64), (2, np.int64), (1, np.int64)]


def test_the_plan_names_its_functions() -> None:
    windows = Dataset.range(10).group_by_window(parity, whole, 5)
    assert windows.cardinality() == -2
    told = windows.explain()
    assert "group_by_window(parity, window_size=5)" in told
    assert "group_by_window(reduce=whole)" in told


def test_groups_that_never_fill_count_against_the_memory_limit() -> None:
    rows = Dataset.range(4000).map(lambda number: np.full(1000, number))
    with (
        pytest.raises(MemoryBudgetError, match="cannot hold more rows in group_by_window"),
        rows.group_by_window(lambda row: int(row[0]), whole, 2).open(memory_limit="4MB") as loader,
    ):
        list(loader)


def test_many_keys_are_flushed_in_time() -> None:
    count = 20_000
    windows = Dataset.range(count).group_by_window(lambda number: -number, whole, 2)
    assert list(windows) == list(range(count))[::-1]


def fails_at(bad: int) -> Callable[..., int]:
    def fails(number: int) -> int:
        if number == bad:
            raise ValueError("bad")
        return 0

    return fails


@pytest.mark.parametrize(("bad", "rows"), [(0, 0), (5, 4), (8, 8)])
def test_windows_before_a_failing_key_are_delivered(bad: int, rows: int) -> None:
    with Dataset.range(9).group_by_window(fails_at(bad), whole, 2).open() as loader:
        assert [next(loader) for _ in range(rows)] == list(range(rows))
        with pytest.raises(ValueError, match="bad") as caught:
            next(loader)
    notes = "\n".join(caught.value.__notes__)
    assert "stage: group_by_window, written at" in notes
    assert f"record: range record {bad}" in notes


def fails_for_one(key: int, window: Dataset[Any]) -> Dataset[Any]:
    if key == 1:
        raise ValueError("one")
    return window


def test_windows_before_a_failing_reduction_are_delivered() -> None:
    with Dataset.range(9).group_by_window(by_three, fails_for_one, 3).open() as loader:
        assert [next(loader) for _ in range(3)] == [0, 3, 6]
        with pytest.raises(ValueError, match="one") as caught:
            next(loader)
    notes = "\n".join(caught.value.__notes__)
    assert "stage: group_by_window, written at" in notes
    assert "fails_for_one" in notes
    assert "record: range record 1, the first of 3" in notes


def wrong_size(key: int) -> int:
    return 0


@pytest.mark.parametrize(
    ("key", "size", "message"),
    [
        (lambda number: [number], None, "key of type list, which is not hashable"),
        (lambda number: number if number < 2 else str(number), None, "have no order"),
        (parity, wrong_size, "must return an integer of at least 1, but wrong_size .* returned 0 for key 0"),
        (parity, lambda key: 2.5, "returned 2.5 for key 0"),
    ],
)
def test_bad_keys_and_sizes_are_refused(key: Any, size: Any, message: str) -> None:
    sizes = {"window_size": 2} if size is None else {"window_size_fn": size}
    with pytest.raises(PlanError, match=message) as caught:
        list(Dataset.range(5).group_by_window(key, whole, **sizes))
    assert any(note.startswith("record: range record") for note in caught.value.__notes__)


async def later(number: int) -> int:
    return number


def two(number: int) -> Iterator[int]:
    yield number


def test_bad_arguments_are_refused_at_the_call() -> None:
    rows = Dataset.range(4)
    bad: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: rows.group_by_window(parity, whole), PlanError),
        (lambda: rows.group_by_window(parity, whole, 2, window_size_fn=parity), PlanError),
        (lambda: rows.group_by_window(parity, whole, 0), PlanError),
        (lambda: rows.group_by_window(3, whole, 2), PlanError),  # type: ignore[arg-type]
        (lambda: rows.group_by_window(later, whole, 2), PlanError),
        (lambda: rows.group_by_window(two, whole, 2), StageBuildError),
        (lambda: rows.group_by_window(parity, None, 2), PlanError),  # type: ignore[arg-type]
        (lambda: rows.group_by_window(parity, whole, window_size_fn=later), PlanError),  # type: ignore[arg-type]
        (lambda: rows.group_by_reducer(parity, 0, max), PlanError),  # type: ignore[call-overload]
        (lambda: rows.group_by_reducer(later, int, max), PlanError),
        (lambda: rows.group_by_reducer(parity, int, max, two), StageBuildError),
    ]
    for call, kind in bad:
        with pytest.raises(kind):
            call()


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(10).group_by_window(parity, batches_of_five, 5),
        Dataset.range(13).group_by_window(by_three, whole, 2).repeat(2),
        Dataset.range(13).shuffle(4, seed=1).group_by_window(by_three, with_key, 3).shuffle(3, seed=2),
        Dataset.range(13).map(odd_structure).group_by_window(lambda row: row["n"] % 4, whole, 2).map(str),
        Dataset.range(20).group_by_window(by_three, lambda key, window: window.shuffle(4).batch(2), 5),
        Dataset.range(12).batch(3).unbatch().group_by_window(by_three, whole, window_size_fn=lambda key: key + 1),
    ],
    ids=["example", "repeated", "shuffled", "objects", "inner shuffle", "sizes"],
)
def test_windows_by_key_resume_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


def test_origins_name_the_record_of_each_row(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{number}\n" for number in range(7)))
    windows = Dataset.from_text(str(file)).map(int).group_by_window(by_three, whole, 2).shuffle(3, seed=1)
    with windows.open() as loader:
        for number in loader:
            (origin,) = loader.origins()
            assert (origin.url, origin.index) == (str(file), number)
            assert windows.fetch(origin) == number


# -- group_by_reducer


def start(key: int) -> list[int]:
    return [key]


def append(numbers: list[int], number: int) -> list[int]:
    return [*numbers, number]


SUMS = Dataset.range(10).group_by_reducer(lambda number: -(number % 3), start, append, tuple)


def test_each_key_gives_one_result_in_ascending_order() -> None:
    assert list(SUMS) == [(-2, 2, 5, 8), (-1, 1, 4, 7), (0, 0, 3, 6, 9)]
    assert list(Dataset.range(4).group_by_reducer(parity, int, lambda state, number: state + number)) == [2, 5]
    assert list(Dataset.range(0).group_by_reducer(parity, start, append)) == []


def test_an_element_is_passed_as_it_is() -> None:
    pairs = Dataset.range(3).enumerate()
    found: Dataset[Any] = pairs.group_by_reducer(
        lambda number, value: 0, lambda key: [], lambda state, pair: [*state, pair]
    )
    assert list(found) == [[(0, 0), (1, 1), (2, 2)]]


def no_arrays(key: int) -> list[Any]:
    return []


def with_array(arrays: list[Any], number: int) -> list[Any]:
    return [*arrays, np.zeros(1000)]


def test_the_states_count_against_the_memory_limit() -> None:
    grown = Dataset.range(100_000).group_by_reducer(lambda number: 0, no_arrays, with_array)
    with (
        pytest.raises(MemoryBudgetError, match="cannot hold more states in group_by_reducer"),
        grown.open(memory_limit="4MB") as loader,
    ):
        list(loader)


@pytest.mark.parametrize("bad", [0, 5, 9])
def test_a_failing_reduction_names_function_and_record(bad: int) -> None:
    def reduce(state: int, number: int) -> int:
        if number == bad:
            raise ValueError("bad")
        return number

    with pytest.raises(ValueError, match="bad") as caught:
        list(Dataset.range(10).group_by_reducer(parity, int, reduce))
    notes = "\n".join(caught.value.__notes__)
    assert "stage: group_by_reducer, written at" in notes
    assert f"record: range record {bad}" in notes
    assert "reduce (" in notes


def fails_for_two(numbers: list[int]) -> int:
    if numbers[0] == 2:
        raise ValueError("two")
    return numbers[0]


def test_results_before_a_failing_result_are_delivered() -> None:
    with Dataset.range(9).group_by_reducer(by_three, start, append, fails_for_two).open() as loader:
        assert [next(loader) for _ in range(2)] == [0, 1]
        with pytest.raises(ValueError, match="two") as caught:
            next(loader)
    assert any("fails_for_two" in note for note in caught.value.__notes__)


def test_the_functions_of_a_reducer_are_named_in_the_plan() -> None:
    assert "group_by_reducer(lambda, start, append, finalize=tuple)" in SUMS.explain()
    assert SUMS.cardinality() == -2


@pytest.mark.parametrize(
    "dataset", [SUMS, SUMS.repeat(2), SUMS.shuffle(2, seed=1), SUMS.batch(2, collate=list)], ids=str
)
def test_reductions_resume_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


def test_the_operators_run_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{number}\n" for number in range(9)))
    lines = Dataset.from_text(str(file)).map(int)
    windows = lines.group_by_window(by_three, whole, 2)
    assert list(windows.in_subprocess()) == list(windows)
    sums: Dataset[Any] = lines.group_by_reducer(by_three, start, append)
    assert list(sums.in_subprocess()) == list(sums)


def test_elements_of_a_window_without_columns_keep_their_origins_after_a_stop() -> None:
    mixed = Dataset.range(40).map(lambda number: number if number % 2 else number + 0.5)
    windows = mixed.group_by_window(lambda number: int(number) % 6, whole, window_size_fn=lambda key: 1 + 3 * key % 4)
    states, origins = [], []
    with windows.open() as loader:
        for element in loader:
            origins.append([(origin.url, origin.index) for origin in loader.origins()])
            assert origins[-1] == [("range", int(element))]
            states.append(loader.state_dict())
    for taken, state in enumerate(states, 1):
        with windows.open(state) as loader:
            assert [[(origin.url, origin.index) for origin in loader.origins()] for _ in loader] == origins[taken:]
