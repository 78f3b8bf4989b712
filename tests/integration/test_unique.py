"""``unique``: the first element with each key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, MemoryBudgetError, PlanError, SpillError, StageBuildError, StateMismatchError
from aiostream_data.testing.resume import resumes_everywhere


def remainder(number: int) -> int:
    return int(number) * 5 % 7


def tens(number: int) -> int:
    return int(number) // 10


def fails_at_three(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return int(number) // 2


def test_the_first_of_equal_elements_is_kept() -> None:
    assert list(Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique()) == [1, 37, 2]  # the vector of tf.data
    assert list(Dataset.from_tensor_slices(["b", "a", "b", "c" * 100, "c" * 100]).unique()) == ["b", "a", "c" * 100]
    assert list(Dataset.from_iterable([1, "1", None, (1, 2), 1.0, (1, 2), None]).unique()) == [1, "1", None, (1, 2)]
    assert len(list(Dataset.from_tensor_slices([float("nan"), 1.0, float("nan")]).unique())) == 2
    assert list(Dataset.range(0).unique()) == []


def test_a_key_selects_what_is_compared() -> None:
    rows = Dataset.from_tensor_slices({"id": [1, 2, 1], "x": [0.5, 0.25, 0.125]})
    assert list(rows.unique(lambda row: row["id"])) == [{"id": 1, "x": 0.5}, {"id": 2, "x": 0.25}]
    pairs = Dataset.from_tensor_slices(([1, 1, 2], [3, 4, 3]))
    assert list(pairs.unique(lambda one, two: two)) == [(1, 3), (1, 4)]


def test_each_epoch_starts_without_keys() -> None:
    assert list(Dataset.range(3).unique().repeat(2)) == [0, 1, 2, 0, 1, 2]
    assert list(Dataset.range(3).repeat(2).unique()) == [0, 1, 2]


def test_the_plan_keeps_the_elements_as_they_are() -> None:
    dataset = Dataset.range(9).unique(remainder)
    assert dataset.element_spec == Dataset.range(9).element_spec
    assert dataset.cardinality() == -2
    assert "unique(remainder)" in dataset.explain()


def test_the_same_on_the_thread_of_the_caller_in_a_process_and_on_ranks() -> None:
    dataset = Dataset.range(50).map(remainder).unique()
    every = list(dataset)
    assert len(every) == 7
    assert list(dataset.debug()) == every == list(dataset.in_subprocess())
    shares = [list(dataset.open(rank=rank, world_size=2, tail="drop")) for rank in range(2)]
    assert shares == [every[:6:2], every[1:6:2]]


def test_rows_keep_their_origins_and_can_be_fetched() -> None:
    dataset = Dataset.range(50).unique(tens)
    with dataset.open() as loader:
        found = [(next(loader), loader.origins()[0]) for _ in range(3)]
    assert [(element, origin.index) for element, origin in found] == [(0, 0), (10, 10), (20, 20)]
    assert dataset.fetch(found[2][1]) == 20


def test_elements_before_a_failure_are_delivered() -> None:
    with Dataset.range(10).unique(fails_at_three).open() as loader:
        assert [next(loader), next(loader)] == [0, 2]
        with pytest.raises(ValueError, match="three") as caught:
            next(loader)
    notes = "\n".join(caught.value.__notes__)
    assert "stage: unique, written at" in notes
    assert "fails_at_three" in notes
    assert "range record 3" in notes


def test_an_element_that_is_no_key_is_an_error_that_names_it() -> None:
    mixed: list[Any] = [1, 2, [3], 4]
    with Dataset.from_iterable(mixed).unique().open() as loader:
        assert [next(loader), next(loader)] == [1, 2]
        with pytest.raises(PlanError, match="a key is a list") as caught:
            next(loader)
    assert "from_iterable() record 2" in "\n".join(caught.value.__notes__)


def test_keys_count_against_the_memory_limit() -> None:
    dataset = Dataset.counter().map(lambda number: f"{number:060}").unique()
    with (
        pytest.raises(MemoryBudgetError, match=r"unique\(\) cannot hold more keys"),
        dataset.open(memory_limit="8MB") as loader,
    ):
        for _ in loader:
            pass


def test_keys_on_disk_give_the_same_elements_within_a_small_memory_limit(tmp_path: Path) -> None:
    numbers = Dataset.range(60_000).map(lambda number: f"{int(number) % 40_000:060}")
    dataset = numbers.unique(spill=tmp_path)
    assert f"unique(spill={str(tmp_path)!r})" in dataset.explain()
    with dataset.open(memory_limit="8MB") as loader:
        assert list(loader) == [f"{number:060}" for number in range(40_000)]
    assert not list(tmp_path.iterdir())


def test_a_run_with_keys_on_disk_resumes(tmp_path: Path) -> None:
    dataset = Dataset.range(6_000).map(lambda number: int(number) * 7 % 5_000).unique(spill=tmp_path)
    with dataset.open(memory_limit="1MB") as loader:
        first = [next(loader) for _ in range(3_000)]
        state = loader.state_dict()
    with dataset.open(memory_limit="1MB", state=state) as loader:
        assert first + list(loader) == list(dataset)


def test_a_spill_folder_is_checked_before_the_first_element(tmp_path: Path) -> None:
    dataset = Dataset.range(3).unique(spill=tmp_path / "missing")
    with pytest.raises(SpillError, match="missing"), dataset.open():
        pass
    with pytest.raises(PlanError, match="spill"):
        Dataset.range(3).unique(spill=3)  # type: ignore[arg-type]


async def awaited(number: int) -> int:
    return number


def generated(number: int) -> Iterator[int]:
    yield number


def test_keys_that_cannot_be_called_are_refused_where_they_are_written() -> None:
    numbers: Dataset[Any] = Dataset.range(3)
    with pytest.raises(PlanError, match=r"unique\(\) needs a function"):
        numbers.unique(3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="coroutine function"):
        numbers.unique(awaited)
    with pytest.raises(StageBuildError, match="generator function"):
        numbers.unique(generated)
    with pytest.raises(StageBuildError, match="no positional argument"):
        numbers.unique(lambda: 0)


RESUMING: dict[str, Dataset[Any]] = {
    "numbers": Dataset.range(20).map(remainder).unique(),
    "by a key": Dataset.range(40).shuffle(9, seed=1).unique(tens),
    "texts": Dataset.range(9).map(lambda number: f"{number % 4}" * 70).unique(),
    "not a number": Dataset.from_tensor_slices([float("nan"), 1.0, float("nan"), 2.0]).unique(),
    "repeated, shuffled and batched": Dataset.range(20).unique(remainder).shuffle(3, seed=1).repeat(2).batch(3),
    "complex": Dataset.from_tensor_slices(np.arange(6) % 4 * 1j).unique(),
    "twice": Dataset.range(30).unique(lambda number: number // 2).unique(remainder),
}


@pytest.mark.parametrize("dataset", RESUMING.values(), ids=RESUMING.keys())
def test_unique_resumes_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


def test_many_keys_are_read_again() -> None:
    dataset = Dataset.range(6000).map(lambda number: int(number) // 2).unique()
    with dataset.open() as loader:
        got = [next(loader) for _ in range(2000)]
        state = loader.state_dict()
    assert len(str(state)) < 10_000
    with dataset.open(state) as loader:
        got += [next(loader) for _ in range(10)]
        again = loader.state_dict()
        rest = list(loader)
    assert got + rest == list(range(3000))
    with dataset.open(again) as loader:
        assert list(loader) == rest


def test_an_input_without_a_fixed_order_resumes_with_few_keys_only() -> None:
    def later(rows: int) -> Dataset[Any]:
        return Dataset.range(rows).map(awaited, concurrency=3, ordered=False).unique()

    with later(40).open() as loader:
        got = [next(loader) for _ in range(9)]
        state = loader.state_dict()
    with later(40).open(state) as loader:
        assert sorted(got + list(loader)) == list(range(40))
    with later(3000).open() as loader:
        for _ in range(2000):
            next(loader)
        state = loader.state_dict()
    with pytest.raises(StateMismatchError, match=r"rows of unique\(\)"):
        list(later(3000).open(state))
