"""What a predicate of ``filter`` may be: a coroutine function, one that draws, one with a state."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import PlanError, RecordTimeoutError
from aiostream_data.testing.resume import resumes_everywhere

Dataset = asd.Dataset


async def is_even(x: int) -> bool:
    await asyncio.sleep(0)
    return x % 2 == 0


async def is_in_time(x: int) -> bool:
    await asyncio.sleep(60 if x == 3 else 0)
    return True


async def fails_on_three(x: int) -> bool:
    if x == 3:
        raise ValueError("three")
    return x != 4


async def kept_at_random(x: int, rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.5)


def drawn(x: int, rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.5)


async def connected() -> set[int]:
    return {1, 2, 5}


async def is_known(x: int, state: set[int]) -> bool:
    return x in state


def number(x: int) -> np.ndarray[Any, Any]:
    return np.array([x, x], np.int16)


async def is_small(x: np.ndarray[Any, Any]) -> Any:
    return x[0] < np.int16(5)  # a bool of NumPy


def counters(loader: asd.Loader[Any]) -> Any:
    return next(stage for stage in loader.stats().stages if stage.name == "filter")


@pytest.mark.parametrize("debug", [False, True])
def test_a_coroutine_function_is_awaited_and_what_it_says_is_counted(debug: bool) -> None:
    with Dataset.range(1_000).filter(is_even, concurrency=7).open(debug=debug) as loader:
        assert list(loader) == list(range(0, 1_000, 2))
        stage = counters(loader)
    assert (stage.rows_in, stage.rows, stage.dropped, stage.skipped) == (1_000, 500, 500, 0)


def test_elements_come_out_as_they_went_in() -> None:
    rows = list(Dataset.range(10).map(number).filter(is_small))
    assert [row.tolist() for row in rows] == [[x, x] for x in range(5)]
    assert all(row.dtype == np.int16 for row in rows)


async def is_odd_row(row: dict[str, Any]) -> bool:
    return bool(row["n"] % 2)


def test_arrays_of_several_lengths_are_still_batched_as_one_ragged_array() -> None:
    features: dict[str, Any] = {"n": asd.FixedLen((), np.int64), "values": asd.VarLen(np.int64)}
    records = [asd.encode_example({"n": n, "values": list(range(n))}) for n in range(8)]
    rows = Dataset.from_iterable(records).parse_example(features).filter(is_odd_row, concurrency=3)
    (batch,) = rows.batch(8)
    assert batch["n"].tolist() == [1, 3, 5, 7]
    assert [values.tolist() for values in batch["values"]] == [list(range(n)) for n in (1, 3, 5, 7)]


def test_a_run_goes_on_anywhere_behind_a_coroutine_function() -> None:
    resumes_everywhere(Dataset.range(30).filter(is_even).shuffle(4, seed=1).batch(2))
    resumes_everywhere(Dataset.range(30).filter(kept_at_random).shuffle(4, seed=1))


@pytest.mark.parametrize("predicate", [drawn, kept_at_random])
def test_a_predicate_that_draws_keeps_the_same_rows_wherever_it_runs(predicate: Any) -> None:
    def kept(**how: Any) -> list[int]:
        rows = Dataset.range(400).filter(predicate, **how)
        return list(rows.open(seed=3))

    whole = kept()
    assert 120 < len(whole) < 280
    assert kept(concurrency=3) == whole
    assert kept(seed=5) == kept(seed=5) != whole
    assert list(Dataset.range(400).filter(predicate).open(seed=4)) != whole
    if predicate is drawn:
        assert kept(executor="inline") == kept(executor="process", concurrency=2) == whole
    else:
        assert kept() == list(Dataset.range(400).filter(drawn).open(seed=3))


def test_a_state_is_made_once_and_given_to_every_call() -> None:
    assert list(Dataset.range(8).filter(is_known, init=connected)) == [1, 2, 5]


def test_failures_are_skipped_replaced_or_raised_as_in_map() -> None:
    with Dataset.range(6).filter(fails_on_three, on_error="skip").open() as loader:
        assert list(loader) == [0, 1, 2, 5]
        stage = counters(loader)
    assert (stage.rows, stage.dropped, stage.skipped) == (4, 1, 1)
    assert list(Dataset.range(6).filter(fails_on_three, on_error=asd.Replace(True))) == [0, 1, 2, 3, 5]
    with pytest.raises(ValueError, match="three") as caught:
        list(Dataset.range(6).filter(fails_on_three))
    assert any("range record 3" in note for note in caught.value.__notes__)
    with pytest.raises(RecordTimeoutError):
        list(Dataset.range(6).filter(is_in_time, timeout=0.05))


def test_an_answer_that_is_no_bool_is_an_error_that_names_predicate_and_record() -> None:
    async def length(x: int) -> int:
        return x

    with pytest.raises(PlanError, match=r"scalar bool, but .*length.* returned 0") as caught:
        list(Dataset.range(3).filter(length))  # type: ignore[arg-type]
    assert any("range record 0" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("executor", ["process", "inline"])
def test_a_coroutine_function_cannot_run_in_another_place(executor: Any) -> None:
    with pytest.raises(PlanError, match="runs on the event loop"):
        Dataset.range(3).filter(is_even, executor=executor)
