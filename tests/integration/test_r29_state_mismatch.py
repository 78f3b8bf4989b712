"""R29: a state of other shards, another plan or seed is refused with what differs, and so is a damaged one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data.errors import AiostreamError, PlanError, StateMismatchError

SEED = 5
ROWS_PER_FILE = 40


def write(path: Path, rows: int = ROWS_PER_FILE) -> None:
    with asd.TFRecordWriter(path) as writer:
        for row in range(rows):
            writer.write(f"{path.stem}-{row}".encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files a, b and c of 40 records."""
    for name in "abc":
        write(tmp_path / f"{name}.tfrecord")
    return tmp_path


def text_of(record: bytes) -> str:
    return record.decode()


def shouted(record: bytes) -> str:
    return record.decode().upper()


def of_files(
    folder: Path,
    function: Callable[..., Any] = text_of,
    buffer_size: int = 10,
    batch_size: int = 8,
    seed: int | None = None,
) -> Dataset[Any]:
    data: Dataset[Any] = Dataset.from_tfrecord(str(folder / "*.tfrecord"), cycle_length=2)
    return data.map(function).shuffle(buffer_size, seed=seed).batch(batch_size)


def state_after(dataset: Dataset[Any], elements: int = 3, **options: Any) -> dict[str, Any]:
    with dataset.open(seed=SEED, **options) as loader:
        assert sum(1 for _ in islice(loader, elements)) == elements
        state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def rows_left(dataset: Dataset[Any], state: Any, **options: Any) -> list[Any]:
    with dataset.open(state, **options) as loader:
        return [row for batch in loader for row in np.asarray(batch).tolist()]


def refusal(dataset: Dataset[Any], state: Any, **options: Any) -> str:
    """Return what opening a state is refused with."""
    with pytest.raises(StateMismatchError) as caught:
        dataset.open(state, **options)
    return str(caught.value)


# -- what is refused, and what allows it


def test_r29_shards_that_are_new_or_missing_are_named(folder: Path) -> None:
    dataset = of_files(folder)
    state = state_after(dataset)
    write(folder / "d.tfrecord")
    message = refusal(dataset, state)
    assert f"1 shard is new: {folder}/d.tfrecord" in message
    assert 'allow=["shards"]' in message
    (folder / "d.tfrecord").unlink()
    (folder / "c.tfrecord").unlink()
    assert "1 shard of the state is missing" in refusal(dataset, state)


def test_r29_a_shard_that_was_replaced_is_named(folder: Path) -> None:
    dataset = of_files(folder)
    state = state_after(dataset)
    write(folder / "b.tfrecord", rows=ROWS_PER_FILE + 1)
    message = refusal(dataset, state)
    assert "1 shard was changed since in size, time or version" in message
    assert "b.tfrecord" in message


def test_r29_shards_that_were_added_at_the_end_are_read_where_that_is_allowed(folder: Path) -> None:
    dataset = of_files(folder)
    state = state_after(dataset)
    left = rows_left(dataset, state)
    write(folder / "d.tfrecord")
    of_d = {f"d-{row}" for row in range(ROWS_PER_FILE)}
    for options in ({"allow": ["shards"]}, {"force": True}):
        assert sorted(rows_left(dataset, state, **options)) == sorted([*left, *of_d])


CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("function", "the function was", {"function": shouted}),
    ("batch.batch_size", "batch_size was 8, is 4", {"batch_size": 4}),
    ("shuffle.buffer_size", "buffer_size was 10, is 20", {"buffer_size": 20}),
    ("argument", "buffer_size was 10, is 3", {"buffer_size": 3}),
    ("seed", "seed was not set, is 4", {"seed": 4}),
]


@pytest.mark.parametrize(("kind", "sentence", "changes"), CHANGES)
def test_r29_a_changed_plan_is_refused_with_what_changed(
    folder: Path, kind: str, sentence: str, changes: dict[str, Any]
) -> None:
    state = state_after(of_files(folder))
    assert sentence in refusal(of_files(folder, **changes), state)
    assert sentence in refusal(of_files(folder, **changes), state, allow=["operator", "shards"])


@pytest.mark.parametrize(("kind", "sentence", "changes"), CHANGES)
def test_r29_a_changed_plan_goes_on_with_the_rows_that_were_left_where_it_is_allowed(
    folder: Path, kind: str, sentence: str, changes: dict[str, Any]
) -> None:
    state = state_after(of_files(folder))
    left = sorted(row.lower() for row in rows_left(of_files(folder), state))
    for options in ({"allow": [kind]}, {"force": True}):
        rows = rows_left(of_files(folder, **changes), state, **options)
        assert sorted(row.lower() for row in rows) == left


def test_r29_an_operator_that_is_new_is_named(folder: Path) -> None:
    state = state_after(of_files(folder))
    assert "take (operator 4 from the source) is new" in refusal(of_files(folder).take(9), state)


def test_r29_another_seed_is_refused_and_none_is_the_states(folder: Path) -> None:
    dataset = of_files(folder)
    state = state_after(dataset)
    assert f"the seed was {SEED}, is {SEED + 1}" in refusal(dataset, state, seed=SEED + 1)
    left = rows_left(dataset, state)
    assert rows_left(dataset, state, seed=SEED) == left
    for options in ({"allow": ["seed"]}, {"force": True}):
        assert sorted(rows_left(dataset, state, seed=SEED + 1, **options)) == sorted(left)


def test_r29_what_can_be_allowed_is_said_where_it_is_misspelt(folder: Path) -> None:
    dataset = of_files(folder)
    with pytest.raises(PlanError, match="allow must contain kinds"):
        dataset.open(state_after(dataset), allow=["shard"])


def test_r29_a_plan_of_other_operators_fails_cleanly_even_by_force(folder: Path) -> None:
    state = state_after(of_files(folder))
    assert "but this plan has" in refusal_when_read(Dataset.range(100).batch(4), state)
    assert "but this plan has" in refusal_when_read(Dataset.range(10).zip(Dataset.range(20)), state)


def refusal_when_read(dataset: Dataset[Any], state: Any) -> str:
    with pytest.raises(StateMismatchError) as caught:
        rows_left(dataset, state, force=True)
    return str(caught.value)


# -- what may always be changed


def mixture(weights: Any) -> Dataset[Any]:
    return Dataset.sample_from([Dataset.range(400), Dataset.range(400, 800)], weights=weights, stop="all")


def loud(row: int) -> int:
    return -row


HARMLESS: dict[str, tuple[Dataset[Any], Dataset[Any]]] = {
    "prefetch": (Dataset.range(99).batch(5), Dataset.range(99).batch(5).prefetch(7)),
    "less prefetch": (Dataset.range(99).batch(5).prefetch(7), Dataset.range(99).batch(5).prefetch(1)),
    "concurrency": (
        Dataset.range(99).map(loud, concurrency=1).shuffle(9).batch(5),
        Dataset.range(99).map(loud, concurrency=4).shuffle(9).batch(5),
    ),
    "executor": (
        Dataset.range(99).map(loud).shuffle(9).batch(5),
        Dataset.range(99).map(loud, executor="inline").shuffle(9).batch(5),
    ),
    "processes": (
        Dataset.range(99).map(loud).batch(5),
        Dataset.range(99).map(loud, executor="process", concurrency=2).batch(5),
    ),
    "device": (Dataset.range(99).shuffle(9).batch(5), Dataset.range(99).shuffle(9).batch(5).to_device("cpu")),
    "no device": (Dataset.range(99).shuffle(9).batch(5).to_device("cpu"), Dataset.range(99).shuffle(9).batch(5)),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_r29_how_it_is_run_may_be_changed_at_any_time(name: str) -> None:
    old, new = HARMLESS[name]
    state = state_after(old)
    assert rows_left(new, state) == rows_left(old, state)
    assert rows_left(new, state, memory_limit="64MB") == rows_left(old, state)


def test_r29_weights_of_a_mixture_may_be_changed_at_any_time() -> None:
    state = state_after(mixture([1, 1]).batch(10), 5)
    before = rows_left(mixture([1, 1]).batch(10), state)
    after = rows_left(mixture([9, 1]).batch(10), state)
    assert sorted(after) == sorted(before)
    assert sum(row < 400 for row in after[:100]) >= 88


def test_r29_the_number_of_ranks_may_be_changed_at_any_time() -> None:
    dataset = Dataset.range(96).shuffle(20).batch(4)
    state = state_after(dataset, rank=1, world_size=4)
    left = rows_left(dataset, state, rank=0, world_size=1)
    assert len(left) == 96 - 3 * 4 * 4
    ranks = [rows_left(dataset, state, rank=rank, world_size=3) for rank in range(3)]
    assert [row for rows in zip(*ranks, strict=True) for row in rows] == left


# -- damaged states


@pytest.mark.parametrize("state", [{}, [], "state", 7, [1], {"version": 1}, {"version": 99}, [{}]])
def test_r29_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(StateMismatchError):
        Dataset.range(9).open(state)


def test_r29_a_damaged_state_is_refused_even_by_force(folder: Path) -> None:
    dataset = of_files(folder)
    state = state_after(dataset)
    state["elements"] += 1
    assert "the state is damaged" in refusal(dataset, state, force=True)


def test_r29_the_order_of_a_states_entries_is_no_damage(folder: Path) -> None:
    dataset = of_files(folder)
    state = state_after(dataset)
    assert rows_left(dataset, turned_round(state)) == rows_left(dataset, state)


def turned_round(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: turned_round(part) for name, part in reversed(list(value.items()))}
    return [turned_round(part) for part in value] if isinstance(value, list) else value


FUZZED: dict[str, Callable[[], Dataset[Any]]] = {
    "shuffle": lambda: Dataset.range(200).shuffle(10).batch(4),
    "filter, flat_map and windows": lambda: (
        Dataset.range(200).filter(lambda row: row % 3 > 0).flat_map(lambda row: [row, row]).window(3, 2).shuffle(4)
    ),
    "a mixture of repeats": lambda: Dataset.sample_from(
        [Dataset.range(9).repeat(), Dataset.range(50).shuffle(5).repeat()], weights=[1, 2], seed=1
    ).take(300),
    "zip of batches": lambda: Dataset.range(90).batch(3).shuffle(4).zip(Dataset.range(30).enumerate()).skip(2),
}


@cache
def saved(name: str) -> str:
    return json.dumps(state_after(FUZZED[name](), 5))


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where every value stands, the whole first."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places_in(part, (*path, name))


OTHERS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.just({}),
)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> Any:
    """Draw a state in which one to three values are dropped, doubled, cut short, or other ones."""
    state = json.loads(text)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places_in(state))[1:]))
        holder = state
        for name in path[:-1]:
            holder = holder[name]
        found = holder[path[-1]]
        how = draw(st.sampled_from(["drop", "other", "nudge", "cut", "double"]))
        if how == "drop":
            del holder[path[-1]]
        elif how == "nudge" and type(found) is int:
            holder[path[-1]] = found + draw(st.sampled_from([-1, 1, 2**31, -(2**63)]))
        elif how == "cut" and isinstance(found, (str, list)):
            holder[path[-1]] = found[: draw(st.integers(0, len(found)))]
        elif how == "double" and isinstance(found, list):
            holder[path[-1]] = found + copy.deepcopy(found)
        else:
            holder[path[-1]] = draw(OTHERS)
    return state


@pytest.mark.parametrize("name", FUZZED)
@settings(max_examples=60, deadline=5_000)
@given(data=st.data())
def test_r29_a_state_of_which_anything_was_changed_is_refused_with_an_error_of_ours(name: str, data: Any) -> None:
    text = saved(name)
    state = data.draw(damaged(text))
    if json.dumps(state, sort_keys=True) == json.dumps(json.loads(text), sort_keys=True):
        return
    with pytest.raises(StateMismatchError):
        FUZZED[name]().open(state)


@pytest.mark.parametrize("name", FUZZED)
@pytest.mark.parametrize("other", FUZZED)
def test_r29_a_state_forced_upon_another_plan_gives_rows_or_an_error_of_ours(name: str, other: str) -> None:
    try:
        with FUZZED[other]().open(json.loads(saved(name)), force=True) as loader:
            assert sum(1 for _ in islice(loader, 1_000)) < 1_000
    except AiostreamError:
        assert name != other
