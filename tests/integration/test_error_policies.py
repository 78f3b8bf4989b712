"""Records that fail are raised, retried, skipped, replaced or quarantined as the stage or the loader was told."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import policy_functions as fn
import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data import Dataset, Quarantine, Replace, Retry, Skip
from aiostream_data.errors import (
    DeadLetterError,
    ErrorBudgetError,
    ExampleParseError,
    PlanError,
    RecordTimeoutError,
    StageBuildError,
)
from aiostream_data.testing.resume import resumes_everywhere

GOOD = [2 * number for number in range(1000) if number % 100 != 7]
MAPS: dict[str, Callable[[Any], Dataset[Any]]] = {
    "thread": lambda policy: Dataset.range(1000).map(fn.fails_on_every_hundredth, on_error=policy),
    "threads": lambda policy: Dataset.range(1000).map(fn.fails_on_every_hundredth, concurrency=3, on_error=policy),
    "inline": lambda policy: Dataset.range(1000).map(fn.fails_on_every_hundredth, executor="inline", on_error=policy),
    "process": lambda policy: Dataset.range(1000).map(
        fn.fails_on_every_hundredth, executor="process", concurrency=2, on_error=policy
    ),
    "unordered": lambda policy: Dataset.range(1000).map(
        fn.fails_on_every_hundredth, concurrency=3, ordered=False, on_error=policy
    ),
    "coroutine": lambda policy: Dataset.range(1000).map(fn.awaits_and_fails, on_error=policy),
    "unordered coroutine": lambda policy: Dataset.range(1000).map(fn.awaits_and_fails, ordered=False, on_error=policy),
    "batched": lambda policy: Dataset.range(1000).map(fn.fails_on_arrays, batched=True, on_error=policy),
    "flat_map": lambda policy: Dataset.range(1000).flat_map(
        lambda number: [fn.fails_on_every_hundredth(number)], on_error=policy
    ),
}


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def stage(loader: Any, name: str) -> Any:
    return next(counters for counters in loader.stats().stages if counters.name == name)


@pytest.mark.parametrize("name", MAPS)
def test_skip_leaves_out_the_records_that_fail_and_nothing_else(name: str, tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"
    with leaves_nothing(), MAPS[name]("skip").open(dead_letters=log) as loader:
        given = list(loader)
        counters = stage(loader, "flat_map" if name == "flat_map" else "map")
    assert (sorted(given) if "unordered" in name else given) == GOOD
    assert counters.skipped == 10
    assert sorted(entry["index"] for entry in entries(log)) == list(range(7, 1000, 100))


@pytest.mark.parametrize("name", MAPS)
def test_replace_gives_the_value_in_the_records_place(name: str) -> None:
    policy = Replace([-1]) if name == "flat_map" else Replace(-1)
    given = list(MAPS[name](policy))
    expected = [-1 if number % 100 == 7 else 2 * number for number in range(1000)]
    assert Counter(given) == Counter(expected)
    if "unordered" not in name:
        assert given == expected


@pytest.mark.parametrize("name", MAPS)
def test_without_a_policy_the_error_ends_the_stream(name: str) -> None:
    with leaves_nothing(), pytest.raises(ValueError):
        list(MAPS[name](None))


@pytest.mark.parametrize("name", MAPS)
def test_the_policy_of_open_holds_for_stages_that_have_none(name: str) -> None:
    with MAPS[name](None).open(on_error="skip") as loader:
        assert sorted(loader) == GOOD
    with pytest.raises(ValueError), MAPS[name]("raise").open(on_error="skip") as loader:
        list(loader)


@pytest.mark.filterwarnings("ignore::aiostream_data.HiddenStateWarning")
@pytest.mark.parametrize("executor", ["thread", "coroutine", "flat_map"])
def test_retry_tries_again_and_counts_the_attempts(executor: str) -> None:
    attempts: Counter[int] = Counter()
    lock = threading.Lock()

    def fails_twice(number: int) -> int:
        with lock:
            attempts[number] += 1
        if number % 10 == 3 and attempts[number] < 3:
            raise OSError("not yet")
        return number

    async def awaited(number: int) -> int:
        return fails_twice(number)

    numbers = Dataset.range(100)
    policy = Retry(2, backoff_s=0.001)
    dataset: Dataset[int] = {
        "thread": lambda: numbers.map(fails_twice, on_error=policy),
        "coroutine": lambda: numbers.map(awaited, on_error=policy),
        "flat_map": lambda: numbers.flat_map(lambda number: [fails_twice(number)], on_error=policy),
    }[executor]()
    with dataset.open() as loader:
        assert list(loader) == list(range(100))
        assert loader.stats().stages[1].retries == 20
    assert attempts[3] == 3
    assert attempts[4] == 1


def test_after_the_last_attempt_comes_what_then_says() -> None:
    policy = Retry(1, backoff_s=0.0, then="skip")
    assert list(MAPS["thread"](policy)) == GOOD
    with pytest.raises(ValueError):
        list(MAPS["thread"](Retry(1, backoff_s=0.0)))


@pytest.mark.parametrize(("policy", "failures"), [(Skip(max_count=4), 5), (Skip(max_rate=0.003), 4)])
def test_one_failure_more_than_the_budget_is_an_error_at_its_row(policy: Skip, failures: int, tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"
    dataset = MAPS["thread"](policy)
    with (
        leaves_nothing(),
        pytest.raises(ErrorBudgetError, match="ValueError") as caught,
        dataset.open(dead_letters=log) as loader,
    ):
        list(loader)
    assert caught.value.failures == failures
    assert caught.value.rows == 100 * (failures - 1) + 8
    assert len(entries(log)) == failures - 1
    del caught


def test_a_rate_that_is_kept_to_never_raises() -> None:
    assert list(MAPS["thread"](Skip(max_rate=0.01))) == GOOD


def test_quarantine_has_a_log_of_its_own(tmp_path: Path) -> None:
    own, common = tmp_path / "own.jsonl", tmp_path / "common.jsonl"
    dataset = Dataset.range(1000).map(fn.fails_on_every_hundredth, on_error=Quarantine(own))
    with dataset.filter(fn.is_even_or_fails).open(on_error="skip", dead_letters=common) as loader:
        list(loader)
    assert len(entries(own)) == 10
    assert not common.exists()  # what is doubled never ends in 07


def test_a_predicate_that_fails_is_skipped_and_told_from_what_it_leaves_out(tmp_path: Path) -> None:
    with Dataset.range(1000).filter(fn.is_even_or_fails, on_error="skip").open() as loader:
        assert list(loader) == list(range(0, 1000, 2))
        counters = stage(loader, "filter")
    assert (counters.rows_in, counters.rows, counters.skipped, counters.dropped) == (1000, 500, 10, 490)


def test_fused_stages_account_for_themselves(tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"
    dataset = (
        Dataset.range(1000)
        .map(fn.fails_on_every_hundredth, on_error="skip")
        .filter(lambda number: number % 4 == 0)
        .map(lambda number: 1 // (number % 40), on_error=Skip())
        .batch(50)
    )
    with dataset.open(dead_letters=log) as loader:
        rows = [int(row) for batch in loader for row in batch]
        stats = loader.stats().stages
    assert len(rows) == 450
    assert [(each.name, each.rows_in, each.rows, each.skipped, each.dropped) for each in stats[1:4]] == [
        ("map", 1000, 990, 10, 0),
        ("filter", 990, 500, 0, 490),
        ("map", 500, 450, 50, 0),
    ]
    assert Counter(entry["nth"] for entry in entries(log)) == {0: 10, 1: 50}


@pytest.mark.parametrize("name", ["thread", "process", "coroutine"])
def test_what_the_log_says_of_a_record(name: str, tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"
    with MAPS[name]("skip").open(dead_letters=log) as loader:
        list(loader)
    entry = entries(log)[0]
    assert (entry["url"], entry["index"], entry["stage"], entry["done"]) == ("range", 7, "map", "skipped")
    assert entry["error"] == "ValueError: number 7"
    assert "in fails_on_every_hundredth" in entry["traceback"]
    assert "aiostream_data" not in entry["traceback"].replace("policy_functions.py", "")
    assert entry["element"] == "7"
    assert {"offset", "epoch", "seed", "row"} <= entry.keys()


def test_records_of_files_are_named_by_url_offset_and_index(tmp_path: Path) -> None:
    path, log = tmp_path / "numbers.tfrecord", tmp_path / "dead.jsonl"
    with asd.TFRecordWriter(str(path)) as writer:
        for number in range(100):
            writer.write(str(number).encode())
    dataset = Dataset.from_tfrecord(str(path)).map(lambda record: 1 // (int(record) - 50), on_error="skip")
    with dataset.open(dead_letters=log) as loader:
        assert len(list(loader)) == 99
    (entry,) = entries(log)
    assert entry["url"].endswith("numbers.tfrecord")
    assert entry["index"] == 50
    assert 0 <= entry["offset"] <= path.stat().st_size


def test_a_record_that_does_not_parse_is_skipped_in_its_place(tmp_path: Path) -> None:
    path, log = tmp_path / "mixed.tfrecord", tmp_path / "dead.jsonl"
    with asd.TFRecordWriter(str(path)) as writer:
        for number in range(50):
            writer.write(asd.encode_example({"x": number}) if number % 10 != 4 else b"no example")
    dataset = Dataset.from_tfrecord(str(path)).parse_example({"x": asd.FixedLen((), int)})
    with pytest.raises(ExampleParseError):
        list(dataset)
    with dataset.open(on_error="skip", dead_letters=log) as loader:
        assert [element["x"] for element in loader] == [number for number in range(50) if number % 10 != 4]
    assert [entry["index"] for entry in entries(log)] == [4, 14, 24, 34, 44]
    assert list(dataset.replay(log).map(lambda element: element).open(on_error="skip")) == []


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_hundred_thousand_records_of_which_one_in_a_hundred_fails(executor: Any, tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"

    def chain(numbers: Dataset[int]) -> Dataset[Any]:
        return numbers.map(fn.fails_on_every_hundredth, executor=executor).shuffle(500, seed=3).batch(64)

    failing = chain(Dataset.range(100_000))
    clean = chain(Dataset.from_tensor_slices(np.array([x for x in range(100_000) if x % 100 != 7])))
    with failing.open(on_error="skip", dead_letters=log) as loader, clean.open() as expected:
        given = [batch.tolist() for batch in loader]
        wanted = [batch.tolist() for batch in expected]
    assert given == wanted
    assert [entry["index"] for entry in entries(log)] == list(range(7, 100_000, 100))


def test_the_rest_is_what_the_clean_run_gives_without_the_records_that_fail() -> None:
    with Dataset.range(1000).map(fn.adds_noise_or_fails, on_error="skip").open(seed=5) as loader:
        given = list(loader)
    with Dataset.range(1000).map(fn.adds_noise_or_fails, on_error=Replace(None)).open(seed=5) as loader:
        assert [element for element in loader if element is not None] == given


@pytest.mark.parametrize("name", [name for name in MAPS if name not in ("process", "batched")])
def test_a_run_that_skips_goes_on_at_every_element(name: str) -> None:
    dataset = MAPS[name]("skip").take(45).batch(3)
    if "unordered" in name:
        with MAPS[name]("skip").open() as loader:
            first = [element for _, element in zip(range(500), loader, strict=False)]
            state = json.loads(json.dumps(loader.state_dict()))
        with MAPS[name]("skip").open(state) as loader:
            assert sorted(first + list(loader)) == GOOD
        return
    resumes_everywhere(dataset)


def test_a_run_that_is_taken_up_again_writes_no_record_twice(tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"
    dataset = MAPS["thread"]("skip").batch(10)
    with dataset.open(seed=1, dead_letters=log) as loader:
        for _ in zip(range(30), loader, strict=False):
            pass
        state = loader.state_dict()
    with log.open("a") as file:
        file.write('{"url": "cut short by a k')
    with dataset.open(state, dead_letters=log) as loader:
        list(loader)
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    assert sorted(entry["index"] for entry in lines) == list(range(7, 1000, 100))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("policy", ["skip", Replace([-1, -2]), Retry(1, backoff_s=0.0, then="skip")])
def test_a_run_goes_on_where_an_element_that_failed_sits_in_a_slot(policy: Any, ordered: bool) -> None:
    dataset = Dataset.range(30).interleave(fn.few_or_failing, cycle_length=2, ordered=ordered, on_error=policy)
    resumes_everywhere(dataset, unordered=not ordered)
    resumes_everywhere(dataset.shuffle(7), unordered=not ordered)


def test_an_element_that_failed_and_sits_in_a_slot_is_in_the_log_once(tmp_path: Path) -> None:
    dataset = Dataset.range(30).interleave(fn.few_or_failing, cycle_length=2, on_error="skip")
    whole = list(dataset)
    for stop in range(len(whole)):
        log = tmp_path / f"{stop}.jsonl"
        with dataset.open(dead_letters=log) as loader:
            first = list(itertools.islice(loader, stop))
            state = loader.state_dict()
        with dataset.open(state, dead_letters=log) as loader:
            assert first + list(loader) == whole
        assert sorted(entry["index"] for entry in entries(log)) == list(range(2, 30, 5))


@pytest.mark.parametrize("held", [False, True])
def test_an_element_that_gave_rows_is_not_left_out_when_a_state_is_opened(held: bool) -> None:
    calls: Counter[int] = Counter()

    def fails_the_second_time(number: int) -> list[int]:
        calls[number] += 1
        if calls[number] > 1:
            raise OSError("no longer")
        return [number, number]

    dataset = Dataset.range(3).flat_map(fails_the_second_time, on_error="skip")
    dataset = dataset.shuffle(6) if held else dataset
    with dataset.open() as loader:
        next(iter(loader))
        state = loader.state_dict()
    with pytest.raises(OSError, match="no longer"), dataset.open(state) as loader:
        list(loader)


@pytest.mark.parametrize("then", ["raise", "skip"])
@pytest.mark.parametrize("name", ["map", "coroutine", "flat_map", "interleave"])
def test_rows_that_are_made_again_get_all_their_attempts(name: str, then: Any) -> None:
    calls: Counter[int] = Counter()

    def fails_every_other_time(number: int) -> int:
        calls[number] += 1
        if calls[number] % 2:
            raise OSError("not yet")
        return number

    async def awaited(number: int) -> int:
        return fails_every_other_time(number)

    numbers, policy = Dataset.range(20), Retry(1, backoff_s=0.0, then=then)
    dataset: Dataset[int] = {
        "map": lambda: numbers.map(fails_every_other_time, on_error=policy),
        "coroutine": lambda: numbers.map(awaited, on_error=policy),
        "flat_map": lambda: numbers.flat_map(lambda number: [fails_every_other_time(number)] * 2, on_error=policy),
        "interleave": lambda: numbers.interleave(
            lambda number: [fails_every_other_time(number)] * 2, cycle_length=3, on_error=policy
        ),
    }[name]()
    resumes_everywhere(dataset, twice=False)
    resumes_everywhere(dataset.shuffle(7), twice=False)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_an_entry_stays_short_however_long_the_message(executor: Any, tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"
    dataset = Dataset.range(3).map(fn.fails_at_length, executor=executor, on_error="skip")
    for _ in range(2):  # the second reads what the first has written
        with dataset.open(dead_letters=log) as loader:
            assert list(loader) == [0, 2]
    (entry,) = entries(log)
    assert log.stat().st_size < 100_000
    assert entry["error"].startswith("ValueError: begin xxx")
    assert entry["error"].endswith("xxx end")
    assert "fails_at_length" in entry["traceback"]


@pytest.mark.parametrize("name", ["thread", "coroutine", "process", "flat_map"])
def test_replay_runs_the_records_of_a_log_through_a_mended_chain(name: str, tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"
    with MAPS[name]("skip").batch(7).open(dead_letters=log) as loader:
        list(loader)
    mended = Dataset.range(1000)
    again = (mended.flat_map(lambda x: [x]) if name == "flat_map" else mended.map(lambda x: x)).batch(4).repeat()
    given = [row for batch in again.replay(log) for row in batch.tolist()]
    assert given == list(range(7, 1000, 100))
    still = tmp_path / "still.jsonl"
    with MAPS[name](None).replay(log).open(on_error="skip", dead_letters=still) as loader:
        assert list(loader) == []
    assert len(entries(still)) == 10


def test_replay_draws_the_random_numbers_that_the_record_would_have_had(tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"
    with Dataset.range(300).map(fn.adds_noise_or_fails, on_error="skip").open(dead_letters=log) as loader:
        list(loader)
        seed = loader.state_dict()["seed"]
    mended = Dataset.range(300).map(lambda number, rng: (2 * number, float(rng.random())))
    with mended.open(seed=seed) as loader:
        whole = list(loader)
    assert list(mended.replay(log)) == [whole[number] for number in (7, 107, 207)]


def test_replay_puts_records_in_at_the_stage_in_which_each_failed(tmp_path: Path) -> None:
    log = tmp_path / "dead.jsonl"

    def chain(first: Callable[[int], int], second: Callable[[int], int]) -> Dataset[int]:
        return Dataset.range(100).map(first).map(second)

    broken = chain(lambda x: x * (1 // (x % 10)) + x, lambda x: x + 0 * (1 // abs(x - 32)))
    with broken.open(on_error="skip", dead_letters=log) as loader:
        list(loader)
    assert {entry["nth"] for entry in entries(log)} == {0, 1}
    given = list(chain(lambda x: x, lambda x: -x).replay(log))
    assert sorted(given) == sorted(-entry["index"] for entry in entries(log))


def test_logs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    nothing, other, log = tmp_path / "nothing.jsonl", tmp_path / "other.txt", tmp_path / "dead.jsonl"
    nothing.touch()
    other.write_text("a poem\nof two lines\n")
    with pytest.raises(DeadLetterError, match="empty"):
        Dataset.range(3).replay(nothing)
    with pytest.raises(DeadLetterError, match="cannot be read"):
        Dataset.range(3).replay(tmp_path / "missing.jsonl")
    with pytest.raises(DeadLetterError, match="line 1"):
        Dataset.range(3).replay(other)
    with MAPS["thread"]("skip").open(dead_letters=log) as loader:
        list(loader)
    with pytest.raises(DeadLetterError, match="does not have"):
        Dataset.range(1000).replay(log)
    with leaves_nothing(), pytest.raises(DeadLetterError, match="is not a dead-letter log"):
        list(MAPS["thread"]("skip").open(dead_letters=other))
    assert other.read_text() == "a poem\nof two lines\n"
    with leaves_nothing(), pytest.raises(DeadLetterError, match="cannot be opened"):
        list(MAPS["thread"]("skip").open(dead_letters=tmp_path / "no" / "folder"))


@pytest.mark.parametrize("wrong", ["ignore", 3, Skip, ["skip"], np.zeros(2), memoryview], ids=repr)
def test_what_is_no_policy_is_refused_where_it_is_written(wrong: Any) -> None:
    with pytest.raises(PlanError, match="on_error"):
        Dataset.range(3).map(abs, on_error=wrong)
    with pytest.raises(PlanError, match="on_error"):
        Dataset.range(3).open(on_error=wrong)


def test_budgets_and_retries_are_checked_where_they_are_written() -> None:
    for wrong in (lambda: Skip(max_count=-1), lambda: Skip(max_rate=1.5), lambda: Retry(0), lambda: Quarantine("")):
        with pytest.raises(PlanError):
            wrong()
    with pytest.raises(PlanError):
        Retry(1, then=Retry(1))
    with pytest.raises(PlanError, match="backoff_s"):
        Retry(1, backoff_s=True)
    with pytest.raises(StageBuildError, match="flat_map"):
        Dataset.range(3).map(lambda number: (yield number))


def test_signals_and_errors_of_the_plan_are_never_skipped() -> None:
    def interrupted(number: int) -> int:
        raise KeyboardInterrupt

    with leaves_nothing(), pytest.raises(KeyboardInterrupt):
        list(Dataset.range(10).map(interrupted, on_error="skip"))
    with leaves_nothing(), pytest.raises(PlanError, match="scalar bool"):
        list(Dataset.range(10).filter(lambda number: number, on_error="skip"))


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_call_that_takes_too_long_is_an_error_of_its_record(executor: Any) -> None:
    dataset = Dataset.range(40).map(fn.sleeps_on_13, executor=executor, concurrency=2, timeout=0.3)
    with pytest.raises(RecordTimeoutError) as caught:
        list(dataset)
    assert any("record 13" in note for note in caught.value.__notes__)
    del caught


@pytest.mark.parametrize("how", [{}, {"executor": "inline"}, {"executor": asd.AUTO}, {"concurrency": 1}], ids=repr)
@pytest.mark.parametrize("stuck", [0, 13])
def test_a_call_that_does_not_return_is_given_up_however_many_run_at_once(stuck: int, how: dict[str, Any]) -> None:
    release = threading.Event()

    def waits(number: int) -> int:
        if number == stuck:
            release.wait(60)
        return number

    found = []
    with Dataset.range(40).map(waits, timeout=0.2, on_error="skip", **how).open() as loader:
        for number in loader:
            found.append(number)
            if number > stuck:
                release.set()
    assert found == [number for number in range(40) if number != stuck]


@pytest.mark.parametrize("how", [{}, {"executor": "inline"}, {"concurrency": 2}, {"executor": "process"}], ids=repr)
def test_a_call_that_takes_too_long_can_be_skipped(how: dict[str, Any]) -> None:
    dataset = Dataset.range(40).map(fn.sleeps_on_13, timeout=0.3, on_error="skip", **how)
    with dataset.open() as loader:
        assert list(loader) == [number for number in range(40) if number != 13]
        assert stage(loader, "map").skipped == 1


def test_a_coroutine_that_takes_too_long_is_cancelled() -> None:
    cancelled: list[int] = []

    async def slow(number: int) -> int:
        try:
            await asyncio.sleep(30 if number == 5 else 0)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    assert list(Dataset.range(20).map(slow, timeout=0.1, on_error="skip")) == [x for x in range(20) if x != 5]
    with leaves_nothing(), pytest.raises(RecordTimeoutError):
        list(Dataset.range(20).map(slow, timeout=0.1))
    assert cancelled == [5, 5]


@pytest.mark.parametrize("executor", ["thread", "inline", "process"])
def test_init_makes_one_state_per_worker(executor: Any) -> None:
    dataset = Dataset.range(200).map(_counted, executor=executor, concurrency=2, init=_counter)
    seen = list(dataset)
    per_worker: Counter[Any] = Counter(worker for worker, _ in seen)
    assert len(per_worker) <= 3  # the thread for cheap rows is one of its own
    for worker, calls in per_worker.items():
        assert sorted(call for name, call in seen if name == worker) == list(range(1, calls + 1))


@pytest.mark.parametrize("executor", ["thread", "inline", "process"])
def test_the_state_of_a_worker_outlives_epochs(executor: Any) -> None:
    dataset = Dataset.range(20).map(_counted_with_rng, executor=executor, concurrency=1, init=_counter).repeat(70)
    calls: dict[str, list[int]] = {}
    for worker, call in dataset:
        calls.setdefault(worker, []).append(call)
    assert len(calls) <= 2  # the thread for cheap rows is one of its own
    assert sum(map(len, calls.values())) == 1400
    assert all(sorted(each) == list(range(1, len(each) + 1)) for each in calls.values())


def test_states_of_inner_data_sets_go_when_their_function_does() -> None:
    states: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def inner(number: int) -> Dataset[int]:
        def init() -> _State:
            state = _State()
            states.append(weakref.ref(state))
            if len(states) % 50 == 0:
                gc.collect()  # a stage that has ended is a cycle
                alive.append(sum(each() is not None for each in states))
            return state

        return Dataset.range(3).map(lambda x, state: x, init=init, concurrency=1)

    assert len(list(Dataset.range(400).flat_map(inner))) == 1200
    assert len(states) >= 400
    assert max(alive) < 200  # as many as the place in the stream may still lie in


def test_init_of_a_coroutine_function_may_be_awaited() -> None:
    made: list[int] = []

    async def init() -> int:
        await asyncio.sleep(0)
        made.append(1)
        return 7

    async def times(number: int, state: int) -> int:
        return number * state

    assert list(Dataset.range(50).map(times, init=init)) == [7 * number for number in range(50)]
    assert made == [1]
    assert len(list(Dataset.range(50).map(times, init=init).repeat(5))) == 250
    assert made == [1, 1]


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_an_init_that_fails_ends_the_stream_whatever_the_policy(executor: Any) -> None:
    with leaves_nothing(), pytest.raises(ZeroDivisionError) as caught:
        list(Dataset.range(50).map(_counted, executor=executor, init=_fails, on_error="skip"))
    assert any("init" in note for note in caught.value.__notes__)
    del caught


def test_an_init_that_cannot_serve_is_refused_where_it_is_written() -> None:
    async def awaited() -> int:
        return 1

    def with_state(number: int, state: int) -> int:
        return number

    for wrong, said in ((awaited, "coroutine"), (lambda size: size, "without arguments"), (3, "init must be")):
        with pytest.raises(PlanError, match=said):
            Dataset.range(3).map(with_state, init=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"ordered": "no"}, {"batched": 1}, {"concurrency": True}], ids=repr)
def test_arguments_of_map_are_checked_where_they_are_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=next(iter(wrong))):
        Dataset.range(3).map(abs, **wrong)


def test_a_coroutine_function_is_not_given_batches() -> None:
    with pytest.raises(PlanError, match="batched"):
        Dataset.range(3).map(fn.awaits_and_fails, batched=True)


def test_init_without_a_parameter_for_it_is_refused() -> None:
    with pytest.raises(PlanError, match="state"):
        Dataset.range(3).map(abs, init=dict)


class _State:
    pass


def _counted_with_rng(number: int, state: list[int], rng: np.random.Generator) -> tuple[str, int]:
    return _counted(number, state)


def _counter() -> list[int]:
    return [0]


def _counted(number: int, state: list[int]) -> tuple[str, int]:
    state[0] += 1
    return f"{threading.get_ident()} {id(state)}", state[0]


def _fails() -> None:
    raise ZeroDivisionError("no state")
