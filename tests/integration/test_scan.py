"""``scan``: elements made of each element and a state that goes from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, MemoryBudgetError, PlanError, StageBuildError, StateMismatchError
from aiostream_data.testing.resume import resumes_everywhere


def running_sum(total: int, number: int) -> tuple[int, int]:
    return total + int(number), total + int(number)


def fails_at(bad: int) -> Callable[[int, int], tuple[int, int]]:
    def function(total: int, number: int) -> tuple[int, int]:
        if number == bad:
            raise ValueError(f"bad {bad}")
        return running_sum(total, number)

    return function


def is_even(number: int) -> bool:
    return number % 2 == 0


@dataclass
class Total:
    """A state that no saved place can contain."""

    value: int = 0


def summed_object(total: Total, number: int) -> tuple[Total, int]:
    total.value += int(number)
    return total, total.value


def history(before: list[Any], number: int) -> tuple[list[Any], int]:
    """Change the state where it is."""
    before.append(number)
    return before, len(before) * 100 + sum(before)


SUMS = Dataset.range(10).scan(running_sum, 0)


def test_every_element_meets_the_state_of_the_one_before() -> None:
    assert list(SUMS) == [0, 1, 3, 6, 10, 15, 21, 28, 36, 45]


def test_outputs_may_have_any_structure() -> None:
    def function(state: dict[str, Any], pair: tuple[int, float]) -> tuple[dict[str, Any], dict[str, Any]]:
        state = {"seen": [*state["seen"], pair[0]]}
        return state, {"pair": pair, "seen": len(state["seen"])}

    pairs = Dataset.from_tensor_slices((np.arange(3), np.arange(3) / 2))
    assert list(pairs.scan(function, {"seen": []})) == [
        {"pair": (0, 0.0), "seen": 1},
        {"pair": (1, 0.5), "seen": 2},
        {"pair": (2, 1.0), "seen": 3},
    ]


def test_every_pass_starts_with_a_copy_of_the_initial_state() -> None:
    initial: list[Any] = []
    dataset = Dataset.range(3).scan(history, initial)
    initial.append("changed later")
    assert list(dataset) == list(dataset) == [100, 201, 303]
    assert list(dataset.repeat(2)) == [100, 201, 303] * 2
    assert initial == ["changed later"]


def test_an_empty_input_calls_no_function() -> None:
    assert list(Dataset.range(0).scan(fails_at(0), 0)) == []


def test_the_plan_knows_its_length() -> None:
    assert SUMS.cardinality() == 10
    assert "scan(running_sum, 0)" in SUMS.explain()


@pytest.mark.parametrize("chunk", ["1KB", "8MB"])
def test_chunks_make_no_difference(chunk: str) -> None:
    wide = Dataset.range(40).map(lambda number: np.full(100, number)).scan(lambda n, row: (n + row[0], n), 0)
    with wide.open(memory_limit=chunk) as loader:
        assert list(loader) == [sum(range(number)) for number in range(40)]


def test_the_same_on_the_thread_of_the_caller_and_in_another_process() -> None:
    assert list(SUMS.repeat(2).debug()) == list(SUMS) * 2
    assert list(SUMS.in_subprocess()) == list(SUMS)


def test_ranks_share_the_outputs() -> None:
    of_ranks = [list(SUMS.open(rank=rank, world_size=2, seed=1)) for rank in range(2)]
    assert of_ranks == [[0, 3, 10, 21, 36], [1, 6, 15, 28, 45]]


def test_rows_keep_their_origins_and_can_be_fetched() -> None:
    with SUMS.open(seed=1) as loader:
        elements = [(next(loader), loader.origins()[0]) for _ in range(5)]
    assert [origin.index for _, origin in elements] == [0, 1, 2, 3, 4]
    assert [SUMS.fetch(origin) for _, origin in elements] == [element for element, _ in elements]


@pytest.mark.parametrize("bad", [0, 5, 9])
def test_outputs_before_a_failure_are_delivered(bad: int) -> None:
    with Dataset.range(10).scan(fails_at(bad), 0).open() as loader:
        assert [next(loader) for _ in range(bad)] == list(SUMS)[:bad]
        with pytest.raises(ValueError, match=f"bad {bad}"):
            next(loader)


def test_an_error_names_stage_function_record_and_element() -> None:
    with pytest.raises(ValueError, match="bad 3") as caught:
        list(Dataset.range(10).scan(fails_at(3), 0))
    notes = "\n".join(caught.value.__notes__)
    assert "stage: scan, written at" in notes
    assert "fails_at.<locals>.function" in notes
    assert "range record 3" in notes
    assert "element: 3" in notes


def stops(total: int, number: int) -> tuple[int, int]:
    raise StopIteration(str(number))


def test_a_function_that_raises_stop_iteration_has_failed() -> None:
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(Dataset.range(10).scan(stops, 0))


@pytest.mark.parametrize(("returned", "shown"), [(3, "int"), ((1, 2, 3), "a tuple of 3"), (None, "NoneType")])
def test_results_that_are_no_pair_are_refused(returned: Any, shown: str) -> None:
    with pytest.raises(PlanError, match=rf"pair \(state, output\), but returned {shown}"):
        list(Dataset.range(10).scan(lambda total, number: returned, 0))


async def awaited(total: int, number: int) -> tuple[int, int]:
    return total, number


def generated(total: int, number: int) -> Iterator[int]:
    yield number


class Uncopied:
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("one of a kind")


def test_arguments_that_cannot_work_are_refused_where_they_are_written() -> None:
    numbers: Dataset[Any] = Dataset.range(3)
    with pytest.raises(PlanError, match=r"scan\(\) needs a function"):
        numbers.scan(3, 0)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="coroutine function"):
        numbers.scan(awaited, 0)  # type: ignore[arg-type]
    with pytest.raises(StageBuildError, match="generator function"):
        numbers.scan(generated, 0)  # type: ignore[arg-type]
    with pytest.raises(StageBuildError, match="with two arguments"):
        numbers.scan(lambda total: (total, total), 0)  # type: ignore[arg-type, misc]
    with pytest.raises(PlanError, match="Uncopied cannot be copied: one of a kind"):
        numbers.scan(running_sum, Uncopied())


RESUMING: dict[str, Dataset[Any]] = {
    "alone": SUMS,
    "batch": SUMS.batch(3),
    "repeat": SUMS.repeat(2),
    "shuffle": SUMS.shuffle(4, seed=1),
    "of shuffled": Dataset.range(8).shuffle(3, seed=1).scan(running_sum, 0),
    "of batches": Dataset.range(10).batch(3).scan(lambda total, batch: (total + batch.sum(), total + batch), 0),
    "of repeated": Dataset.range(4).repeat(3).scan(running_sum, 0),
    "twice": SUMS.filter(is_even).scan(running_sum, 0),
    "changed where it is": Dataset.range(9).scan(history, []),
    "arrays": Dataset.range(9).scan(lambda mean, n: ((mean + n) / 2, mean.copy()), np.zeros(2, np.float32)),
    "not storable": Dataset.range(9).shuffle(3, seed=1).scan(summed_object, Total()),
    "not storable, repeated and batched": Dataset.range(5).scan(summed_object, Total()).repeat(2).batch(2),
}


@pytest.mark.parametrize("dataset", RESUMING.values(), ids=RESUMING.keys())
def test_a_scan_resumes_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


def test_a_resumed_scan_calls_its_function_for_few_rows() -> None:
    called: list[int] = []

    def noting(total: int, number: int) -> tuple[int, int]:
        called.append(number)
        return running_sum(total, number)

    dataset = Dataset.range(100_000).scan(noting, 0)
    with dataset.open() as loader:
        for _ in range(50_001):
            last = next(loader)
        state = loader.state_dict()
    called.clear()
    with dataset.open(state) as loader:
        assert next(loader) == last + 50_001
    assert 49_500 < called[0] <= 50_001


@pytest.mark.parametrize(
    "make", [lambda numbers: numbers.scan(running_sum, 0), lambda n: n.scan(summed_object, Total())]
)
def test_an_input_without_a_fixed_order_resumes_as_far_as_the_state_is_stored(make: Callable[..., Any]) -> None:
    async def later(number: int) -> int:
        return number

    dataset = make(Dataset.range(20).map(later, concurrency=3, ordered=False))
    with dataset.open() as loader:
        got = [next(loader) for _ in range(7)]
        state = loader.state_dict()
    if dataset.plan.initial == 0:
        with dataset.open(state) as loader:
            got += list(loader)
        assert got[-1] == sum(range(20))
        assert len(got) == 20
    else:
        with pytest.raises(StateMismatchError, match=r"rows of scan\(\)"):
            list(dataset.open(state))


def summed_text(total: int, line: str) -> tuple[int, int]:
    return total + int(line), total + int(line)


def set_of_text(seen: set[str], line: str) -> tuple[set[str], int]:
    return seen | {line}, len(seen)


def lines(folder: Path, *numbers: int) -> Dataset[str]:
    for number in numbers:
        (folder / f"{number}.txt").write_text("".join(f"{10 * number + row}\n" for row in range(4)))
    return Dataset.from_text(f"{folder}/*.txt")


def test_new_shards_follow_if_the_state_is_stored(tmp_path: Path) -> None:
    with lines(tmp_path, 0, 1).scan(summed_text, 0).open() as loader:
        assert [next(loader) for _ in range(5)] == [0, 1, 3, 6, 16]
        state = loader.state_dict()
    again = lines(tmp_path, 2).scan(summed_text, 0)
    with again.open(state, allow=["shards"]) as loader:
        assert list(loader) == [27, 39, 52, 72, 93, 115, 138]


@pytest.mark.parametrize("operator", ["scan", "unique"])
def test_new_shards_are_refused_if_rows_are_processed_again(tmp_path: Path, operator: str) -> None:
    def dataset(*numbers: int) -> Dataset[Any]:
        found = lines(tmp_path, *numbers)
        return found.scan(set_of_text, set()) if operator == "scan" else found.map(lambda n: int(n) * 1j).unique()

    with dataset(0, 1).open() as loader:
        first = [next(loader) for _ in range(5)]
        state = loader.state_dict()
    with dataset().open(state) as loader:
        assert len(first + list(loader)) == 8
    with pytest.raises(StateMismatchError, match=rf"needs all rows before it again, for {operator}\(\)"):
        list(dataset(2).open(state, allow=["shards"]))


@dataclass
class Rows:
    """A state with an attribute that grows."""

    kept: list[Any]


def kept_in_an_object(state: Rows, number: int) -> tuple[Rows, int]:
    state.kept.append(bytes(1 << 20))
    return state, number


def kept_in_text(state: str, number: int) -> tuple[str, int]:
    return state + "x" * (1 << 20), number


@pytest.mark.parametrize(("function", "initial"), [(kept_in_an_object, Rows([])), (kept_in_text, "")])
def test_a_state_that_keeps_growing_is_an_error_that_names_the_operator(function: Any, initial: Any) -> None:
    received: list[int] = []
    with (
        pytest.raises(MemoryBudgetError, match="cannot keep a larger state in scan") as caught,
        Dataset.counter().scan(function, initial).open(memory_limit="16MB") as loader,
    ):
        received.extend(loader)
    assert received == list(range(len(received)))
    assert 8 < len(received) < 32
    notes = "\n".join(caught.value.__notes__)
    assert "stage: scan, written at" in notes
    assert f"function: {function.__name__}" in notes
    assert f"record: counter record {len(received)}" in notes


def test_a_large_first_state_is_no_growth() -> None:
    states = Dataset.range(1_000).scan(lambda model, number: (model, len(model) + number), bytes(64 << 20))
    with states.open(memory_limit="16MB") as loader:
        assert list(loader) == list(range(64 << 20, (64 << 20) + 1_000))


def test_the_budget_counts_the_growth_of_a_state() -> None:
    def grown(state: bytes, number: int) -> tuple[bytes, int]:
        return bytes(1 << 20), number

    with Dataset.range(2_000).scan(grown, b"").open(memory_limit="64MB") as loader:
        assert sum(1 for _ in loader) == 2_000
        assert loader.stats().memory.holders["scan"][1] == 1 << 20
