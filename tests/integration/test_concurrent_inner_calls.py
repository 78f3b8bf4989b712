"""``flat_map`` and ``interleave`` call their functions on executors, several at once, and keep order and states."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset, PlanError, StageBuildError
from aiostream_data._engine.calls.listed_rows import listed
from aiostream_data.testing.resume import resumes_everywhere


def tens(number: int) -> list[int]:
    return list(range(10 * int(number), 10 * int(number) + int(number) % 4))


def generated(number: int) -> Iterator[int]:
    yield from tens(number)


def with_draw(number: int, rng: np.random.Generator) -> tuple[int, int]:
    return int(number), int(rng.integers(1 << 30))


def drawn(number: int) -> Dataset[Any]:
    return Dataset.range(int(number) % 4).map(with_draw)


def fails_at(number: int) -> list[int]:
    if int(number) % 4 == 3:
        raise ValueError(f"number {number}")
    return [int(number)] * 2


def breaks_at_three(number: int) -> Iterator[int]:
    yield int(number)
    if int(number) == 3:
        raise ValueError("broken")


def process_of(number: int) -> list[int]:
    return [os.getpid()]


def dies_at_two(number: int) -> list[int]:
    if int(number) == 2:
        os._exit(3)
    return [int(number)]


async def generated_later(number: int) -> Any:
    yield number


HOW: list[dict[str, Any]] = [
    {"concurrency": 3},
    {"concurrency": asd.AUTO},
    {"executor": "inline"},
    {"executor": "process", "concurrency": 2},
]
THREADS = HOW[:3]


@pytest.mark.parametrize(
    ("function", "how"),
    [*((function, how) for function in (tens, generated, drawn) for how in THREADS), (generated, HOW[3])],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_elements_and_hash_are_those_of_one_call_at_a_time(function: Any, how: dict[str, Any]) -> None:
    def read(more: dict[str, Any]) -> tuple[list[Any], str]:
        dataset = Dataset.range(12).shuffle(5).flat_map(function, **more)
        with dataset.open(seed=1) as loader:
            return list(loader), loader.stream_hash

    assert read(how) == read({})


@pytest.mark.parametrize("how", THREADS, ids=str)
def test_interleave_keeps_its_order(how: dict[str, Any]) -> None:
    alone = Dataset.range(12).map(int).interleave(generated, cycle_length=3, block_length=2)
    apart = Dataset.range(12).map(int).interleave(generated, cycle_length=3, block_length=2, **how)
    assert list(apart) == list(alone)
    assert list(apart.debug()) == list(alone)


def test_as_many_calls_run_at_once_as_asked_for() -> None:
    together = threading.Barrier(3, timeout=30)

    def meets(number: int) -> list[int]:
        together.wait()
        return [int(number)]

    assert list(Dataset.range(6).flat_map(meets, concurrency=3)) == list(range(6))


def test_functions_run_in_other_processes() -> None:
    found = set(Dataset.range(4).flat_map(process_of, executor="process", concurrency=1))
    assert len(found) == 1
    assert os.getpid() not in found


# -- failures


@pytest.mark.parametrize("how", [HOW[0], HOW[3]], ids=str)
def test_elements_before_a_failure_are_delivered(how: dict[str, Any]) -> None:
    with Dataset.range(9).flat_map(fails_at, **how).open() as loader:
        assert [next(loader) for _ in range(6)] == [0, 0, 1, 1, 2, 2]
        with pytest.raises(ValueError, match="number 3") as caught:
            next(loader)
    notes = "\n".join(caught.value.__notes__)
    assert notes.count("stage: flat_map, written at") == 1
    assert "range record 3" in notes


def test_error_policies_apply_in_order(tmp_path: Any) -> None:
    how = HOW[0]
    skipped = Dataset.range(9).flat_map(fails_at, on_error="skip", **how)
    with skipped.open(dead_letters=tmp_path / "bad.jsonl") as loader:
        assert list(loader) == [0, 0, 1, 1, 2, 2, 4, 4, 5, 5, 6, 6, 8, 8]
        (stage,) = (stage for stage in loader.stats().stages if stage.name == "flat_map")
        assert stage.skipped == 2
    assert len((tmp_path / "bad.jsonl").read_text().splitlines()) == 2
    replaced = Dataset.range(5).flat_map(fails_at, on_error=asd.Replace([-1]), **how)
    assert list(replaced) == [0, 0, 1, 1, 2, 2, -1, 4, 4]
    with pytest.raises(asd.ErrorBudgetError):
        list(Dataset.range(9).flat_map(fails_at, on_error=asd.Skip(max_count=1), **how))


def test_an_iterator_that_fails_delivers_the_items_before() -> None:
    with Dataset.range(9).flat_map(breaks_at_three, concurrency=3).open() as loader:
        assert [next(loader) for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="broken"):
            next(loader)


def test_a_process_reads_an_iterator_up_to_its_error() -> None:
    rows = iter(pickle.loads(pickle.dumps(listed(breaks_at_three(3)))))
    assert next(rows) == 3
    with pytest.raises(ValueError, match="broken"):
        next(rows)
    assert list(listed(zip([1], [2], strict=True))) == [(1, 2)]
    assert listed([1]) == [1]
    dataset = Dataset.range(3)
    assert listed(dataset) is dataset


def test_a_replacement_that_is_a_list_reaches_processes() -> None:
    replaced = Dataset.range(5).flat_map(fails_at, on_error=asd.Replace([-1]), executor="process", concurrency=1)
    assert list(replaced) == [0, 0, 1, 1, 2, 2, -1, 4, 4]


def test_an_element_that_ends_its_process_is_skipped() -> None:
    dataset = Dataset.range(4).flat_map(dies_at_two, executor="process", concurrency=1, on_error="skip")
    assert list(dataset) == [0, 1, 3]


def test_a_result_that_is_no_iterable_is_refused() -> None:
    with pytest.raises(PlanError, match="must return a Dataset or an iterable"):
        list(Dataset.range(4).flat_map(int, concurrency=2))  # type: ignore[arg-type]


def test_bad_arguments_raise_at_the_call() -> None:
    flat_map: Any = Dataset.range(4).flat_map
    with pytest.raises(PlanError, match="executor must be"):
        flat_map(tens, executor="interpreter")
    with pytest.raises(PlanError, match="concurrency must be at least 1"):
        flat_map(tens, concurrency=0)
    with pytest.raises(StageBuildError, match="async generator function, which cannot run in a process"):
        flat_map(generated_later, executor="process")
    lock = threading.Event()
    with pytest.raises(StageBuildError, match="cannot be pickled"):
        flat_map(lambda number: [lock], executor="process")
    assert "executor='process', concurrency=2" in flat_map(tens, executor="process", concurrency=2).explain()


# -- resuming


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(8).flat_map(tens, concurrency=3),
        Dataset.range(8).flat_map(generated, concurrency=3).shuffle(4),
        Dataset.range(8).shuffle(4).interleave(drawn, cycle_length=2, concurrency=3).repeat(2),
        Dataset.range(8).flat_map(fails_at, concurrency=3, on_error="skip").batch(3),
    ],
    ids=["lists", "generators", "datasets", "skipped"],
)
def test_it_resumes_after_every_element(dataset: Dataset[Any]) -> None:
    resumes_everywhere(dataset)


def test_a_state_fits_another_executor() -> None:
    with Dataset.range(8).flat_map(generated).open(seed=1) as loader:
        before = [next(loader) for _ in range(5)]
        state = loader.state_dict()
    apart = Dataset.range(8).flat_map(generated, executor="process", concurrency=2)
    with apart.open(state) as loader:
        assert before + list(loader) == list(Dataset.range(8).flat_map(generated))


def test_leaving_early_cancels_the_calls_ahead() -> None:
    held = threading.Event()

    def waits_behind_two(number: int) -> list[int]:
        if number > 2:
            held.wait(30)
        return [int(number)]

    with Dataset.range(9).flat_map(waits_behind_two, concurrency=4).open() as loader:
        assert next(loader) == 0
        held.set()
