"""``aggregate``: outputs of an object that collects elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, MemoryBudgetError, PlanError, StageBuildError, StateMismatchError
from aiostream_data.testing.resume import resumes_everywhere
from aiostream_data.transforms.aggregation import Aggregating


class Sums:
    """Emits the numbers up to each complete sum, and the rest at the end. Its state is not stored."""

    def __init__(self, least: int = 10) -> None:
        self.least = least
        self.held: list[int] = []

    def add(self, number: int) -> Iterable[int]:
        self.held.append(int(number))
        return self.flush() if sum(self.held) >= self.least else []

    def flush(self) -> Iterable[int]:
        held, self.held = self.held, []
        return [sum(held), *held] if held else []


class StoredSums(Sums):
    """The same with a state that is stored."""

    def state(self) -> list[int]:
        return list(self.held)

    def restore(self, state: list[int]) -> None:
        self.held = list(state)


class Failing(StoredSums):
    def __init__(self, bad: int, *, last: bool = False) -> None:
        super().__init__()
        self.bad, self.last = bad, last

    def add(self, number: int) -> Iterable[int]:
        if number == self.bad:
            raise ValueError(f"bad {number}")
        return [int(number)]

    def flush(self) -> Iterable[int]:
        if self.last:
            raise ValueError("bad end")
        return ()


class Returning:
    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def add(self, number: int) -> Any:
        return self.returned

    def flush(self) -> Any:
        return []


class Counter:
    """Emits nothing but a number of outputs at the end, as a generator."""

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs
        self.count = 0

    def add(self, number: int) -> Iterable[int]:
        self.count += 1
        return ()

    def flush(self) -> Iterator[int]:
        for number in range(self.outputs):
            yield self.count + number


class OnlyState(StoredSums):
    restore = None  # type: ignore[assignment]


class Awaited(Sums):
    async def add(self, number: int) -> Iterable[int]:  # type: ignore[override]
        return []


def expected(numbers: Iterable[int], least: int = 10) -> list[int]:
    sums = Sums(least)
    found: list[int] = []
    for number in numbers:
        found += sums.add(number)
    return [*found, *sums.flush()]


TEN = Dataset.range(10)


@pytest.mark.parametrize("factory", [Sums, StoredSums])
def test_outputs_of_each_element_come_in_order_and_then_the_last_outputs(factory: Callable[..., Sums]) -> None:
    assert list(TEN.aggregate(factory)) == expected(range(10))
    assert list(Dataset.range(700).aggregate(factory)) == expected(range(700))
    assert list(TEN.aggregate(partial(factory, 20)).batch(4).unbatch()) == expected(range(10), 20)


def test_an_aggregator_without_elements_is_not_flushed() -> None:
    assert list(Dataset.range(0).aggregate(partial(Counter, 3))) == []


def test_every_epoch_has_a_new_aggregator() -> None:
    assert list(Dataset.range(4).aggregate(Sums).repeat(2)) == 2 * expected(range(4))


def test_last_outputs_may_be_many() -> None:
    assert list(TEN.aggregate(partial(Counter, 1000))) == list(range(10, 1010))


def test_outputs_have_ids_of_their_own() -> None:
    with TEN.aggregate(StoredSums).open() as loader:
        origins = [str(loader.origins()[0].as_dict()) for _ in loader]
    assert len(set(origins)) == len(origins) == len(expected(range(10)))


def test_an_output_is_computed_again_from_its_origin() -> None:
    dataset = TEN.aggregate(Sums)
    with dataset.open() as loader:
        found = [(element, loader.origins()[0]) for element in loader]
    assert [dataset.fetch(origin) for _, origin in found] == [element for element, _ in found]


@pytest.mark.parametrize("bad", [0, 5, 9])
def test_outputs_before_a_failure_are_delivered(bad: int) -> None:
    elements = iter(TEN.aggregate(partial(Failing, bad)))
    assert [next(elements) for _ in range(bad)] == list(range(bad))
    with pytest.raises(ValueError, match=f"bad {bad}") as raised:
        next(elements)
    assert any("Failing" in note for note in raised.value.__notes__)


def test_a_failure_at_the_end_follows_all_outputs() -> None:
    elements = iter(TEN.aggregate(partial(Failing, -1, last=True)))
    assert [next(elements) for _ in range(10)] == list(range(10))
    with pytest.raises(ValueError, match="bad end"):
        next(elements)


@pytest.mark.parametrize("returned", [None, 3, "text", {"a": 1}])
def test_other_returned_values_are_refused(returned: Any) -> None:
    with pytest.raises(PlanError, match="must return an iterable of outputs"):
        list(TEN.aggregate(partial(Returning, returned)))


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (object, r"the methods add\(\) and flush\(\)"),
        (OnlyState, r"both state\(\) and restore\(\)"),
        (Awaited, "is a coroutine function"),
    ],
)
def test_an_object_that_lacks_methods_is_refused(factory: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        list(TEN.aggregate(factory))


def test_wrong_arguments_are_refused_at_the_call() -> None:
    async def awaited() -> Sums:
        return Sums()

    with pytest.raises(PlanError, match="needs a function"):
        TEN.aggregate(3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="coroutine"):
        TEN.aggregate(awaited)  # type: ignore[arg-type]
    with pytest.raises(StageBuildError):
        TEN.aggregate(Returning)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "dataset",
    [
        TEN.aggregate(StoredSums),
        TEN.aggregate(Sums),
        Dataset.range(3).aggregate(partial(StoredSums, 100)),
        Dataset.range(4).aggregate(StoredSums).repeat(3),
        TEN.aggregate(StoredSums).batch(3),
        TEN.aggregate(StoredSums).shuffle(4, seed=1),
        Dataset.range(9).shuffle(3, seed=1).aggregate(StoredSums),
        TEN.filter(lambda number: number % 2 == 0).aggregate(StoredSums).aggregate(StoredSums),
        TEN.batch(3).map(np.sum).aggregate(StoredSums),
        Dataset.range(300).aggregate(partial(StoredSums, 5000)),
        TEN.aggregate(partial(Counter, 5)),
    ],
    ids=lambda dataset: dataset.explain().splitlines()[0][:20],
)
def test_aggregate_resumes_after_every_output(dataset: Dataset[int]) -> None:
    resumes_everywhere(dataset)


def test_a_state_contains_the_state_of_the_aggregator() -> None:
    read: list[int] = []

    def noting(number: int) -> int:
        read.append(int(number))
        return number

    dataset = Dataset.range(5000).map(noting, executor="inline").aggregate(StoredSums)
    with dataset.open() as loader:
        for _ in range(6000):
            next(loader)
        state = loader.state_dict()
        rest = list(loader)
    read.clear()
    with dataset.open(state) as loader:
        assert list(loader) == rest
    assert min(read) > 2000


def test_a_state_without_its_outputs_is_refused() -> None:
    with Dataset.range(20).aggregate(Sums).open() as loader:
        for _ in range(15):
            next(loader)
        state = loader.state_dict()
    with (
        Dataset.range(20).aggregate(partial(Counter, 1)).open(state, force=True) as loader,
        pytest.raises(StateMismatchError, match="fewer outputs now"),
    ):
        list(loader)


def test_one_pass_is_plain_python() -> None:
    aggregating = Aggregating(StoredSums)
    assert [aggregating.add(number) for number in (4, 5)] == [[], []]
    again = Aggregating(StoredSums)
    again.restore(aggregating.state())
    assert again.add(6) == [15, 4, 5, 6]
    assert list(again.flush()) == []


class Hoard:
    """Keeps a megabyte for each element."""

    def __init__(self) -> None:
        self.rows: dict[int, bytes] = {}

    def add(self, number: int) -> Iterable[int]:
        self.rows[number] = bytes(1 << 20)
        return [number]

    def flush(self) -> Iterable[int]:
        return []


def test_an_aggregator_that_keeps_growing_is_an_error_that_names_the_operator() -> None:
    received: list[int] = []
    with (
        pytest.raises(MemoryBudgetError, match="cannot keep a larger aggregator in aggregate") as caught,
        Dataset.counter().aggregate(Hoard).open(memory_limit="16MB") as loader,
    ):
        received.extend(loader)
    assert received == list(range(len(received)))
    assert 8 < len(received) < 32
    notes = "\n".join(caught.value.__notes__)
    assert "stage: aggregate, written at" in notes
    assert "function: Hoard" in notes
    assert f"record: counter record {len(received)}" in notes
