"""Every value of a state is checked before anything runs; an error names its path. Checksums are right here."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data.errors import DamagedStateError, StateMismatchError
from aiostream_data.state_checksum import checksum_of_state

SEED = 5


def state_after(dataset: Dataset[Any], elements: int = 5, **options: Any) -> dict[str, Any]:
    with dataset.open(seed=SEED, **options) as loader:
        assert sum(1 for _ in islice(loader, elements)) == elements
        state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def changed(state: dict[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    """Return a copy of a state with another value at a path, and the right checksum."""
    found = json.loads(json.dumps(state))
    holder = found
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = to
    del found["check"]
    return {**found, "check": checksum_of_state(found)}


def refusal(dataset: Dataset[Any], state: Any, **options: Any) -> DamagedStateError:
    """Return what opening a state is refused with, soon."""
    started = perf_counter()
    with pytest.raises(DamagedStateError) as caught:
        dataset.open(state, **options)
    assert perf_counter() - started < 5
    return caught.value


def rows_left(dataset: Dataset[Any], state: Any, **options: Any) -> list[Any]:
    with dataset.open(state, **options) as loader:
        return list(loader)


# -- what opened before, and hung or raised something else


@pytest.mark.parametrize("dataset", [Dataset.range(90).window(3, 2), Dataset.range(90).batch(2).rebatch([3, 1])])
@pytest.mark.parametrize("pushed", [2**62, 2**31, -1, True, None, 4.0, "4"])
def test_rows_that_windows_cannot_have_taken_are_refused_with_their_path(dataset: Dataset[Any], pushed: Any) -> None:
    error = refusal(dataset, changed(state_after(dataset), "position", "pushed", to=pushed))
    assert error.path == 'state["position"]["pushed"]'
    assert f"got {pushed!r}" in str(error)
    assert "Open the dataset without this state" in str(error)


@pytest.mark.parametrize("share", [10**9, -1, 1, None, "0"])
def test_a_rank_that_is_none_is_refused(share: Any) -> None:
    dataset = Dataset.range(90).batch(3)
    error = refusal(dataset, changed(state_after(dataset), "stream", "share", to=share))
    assert error.path == 'state["stream"]["share"]'


def test_a_state_that_is_still_json_is_refused_with_how_to_read_it() -> None:
    dataset = Dataset.range(9)
    text = json.dumps(state_after(dataset))
    for state in (text, text.encode()):
        with pytest.raises(StateMismatchError, match=r"json\.loads"):
            dataset.open(state)  # type: ignore[arg-type]


def test_a_table_that_would_unpack_to_gigabytes_is_refused() -> None:
    dataset = Dataset.range(90).shuffle(5)
    state = state_after(dataset)
    lows, rows = [2, 0, 0], 2**26
    entry = [2, {"rows": rows, "lows": lows, "widths": [0, 0, 0], "data": ""}]
    error = refusal(dataset, changed(state, "rows", "rows", 0, to=entry))
    assert error.path == 'state["rows"]["rows"][0]'


def test_a_source_without_end_is_not_read_up_to_a_number_that_nothing_accounts_for() -> None:
    dataset: Dataset[Any] = Dataset.from_generator(for_ever).map(abs).batch(2)
    error = refusal(dataset, changed(state_after(dataset), "position", "next", to=2**40))
    assert error.path == 'state["position"]["next"]'


def for_ever() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def test_numbers_of_one_state_have_to_agree() -> None:
    dataset = Dataset.range(90).enumerate().take(50)
    state = state_after(dataset)
    assert "equal to 5" in str(refusal(dataset, changed(state, "position", "input", "next", to=6)))
    assert "from 1 to" in str(refusal(dataset, changed(state, "position", "taken", to=0)))


def test_shards_that_nobody_would_take_are_refused(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("".join(f"{number}:{row}\n" for row in range(3)))
    dataset = Dataset.from_text(str(tmp_path / "*.txt"), cycle_length=3)
    state = state_after(dataset, 11)
    assert (state["position"]["order"]["more_streams"], state["position"]["next"]) == (False, 4)
    error = refusal(dataset, changed(state, "position", "next", to=2), memory_limit="64KB")
    assert 'state["position"]["next"]' in str(error)


def test_the_place_of_an_operator_that_gave_rows_cannot_be_missing() -> None:
    dataset = Dataset.range(90).enumerate()
    state = state_after(dataset)
    for path in (("position",), ("position", "input")):
        assert "must be the position" in str(refusal(dataset, changed(state, *path, to=None)))


# -- data sets that are made while running


def tens(number: int) -> Dataset[Any]:
    return Dataset.range(10 * int(number), 10 * int(number) + 9).enumerate().batch(2)


def test_the_place_of_an_inner_data_set_is_checked_too() -> None:
    dataset = Dataset.range(9).flat_map(tens)
    state = state_after(dataset, 2)
    inner = ("position", "merge", "streams", 0, "inner")
    shown = 'state["position"]["merge"]["streams"][0]["inner"]'
    error = refusal(dataset, changed(state, *inner, "next", to="4"))
    assert error.path == f'{shown}["next"]'
    for next_row in (7, 2**60):
        with pytest.raises(DamagedStateError) as caught:
            rows_left(dataset, changed(state, *inner, "next", to=next_row))
        assert caught.value.path == f'{shown}["next"]'


# -- what stays as it is


def fails_again(number: int) -> int:
    if fails_again.count > 0:  # type: ignore[attr-defined]
        raise ValueError("the user's own")
    return int(number)


def test_the_error_of_a_function_that_makes_held_rows_again_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fails_again, "count", 0, raising=False)
    dataset = Dataset.range(90).map(fails_again).shuffle(5)
    state = state_after(dataset)
    monkeypatch.setattr(fails_again, "count", 1)
    with pytest.raises(ValueError, match="the user's own") as caught:
        rows_left(dataset, state)
    assert type(caught.value) is ValueError


class FailsLater:
    """Gives numbers; the second pass fails at once, in code that is not a function of the pipeline."""

    passes = 0

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return map(int, ["1", "2", "3", "x"] if self.passes > 1 else map(str, range(50)))


def test_the_error_of_a_source_that_is_passed_over_is_the_users() -> None:
    source = FailsLater()
    dataset: Dataset[Any] = Dataset.from_iterable(source).shuffle(5)
    state = state_after(dataset)
    with pytest.raises(ValueError, match="invalid literal"):
        rows_left(dataset, state)


def test_a_damaged_state_error_says_where_and_survives_pickling() -> None:
    dataset = Dataset.range(9).take(8)
    error = refusal(dataset, changed(state_after(dataset), "position", "taken", to=9))
    again = pickle.loads(pickle.dumps(error))
    assert (again.path, again.problem, str(again)) == (error.path, error.problem, str(error))
    assert error.problem == "must be an integer from 1 to 8, got 9"


# -- plans that were changed


def mixture(*inputs: Dataset[Any], choose: bool = False) -> Dataset[Any]:
    if choose:
        return Dataset.choose_from(inputs, Dataset.from_iterable([0, 1] * 30), stop="all")
    return Dataset.sample_from(inputs, stop="all")


FIRST, SECOND, THIRD = Dataset.range(20), Dataset.range(100, 120), Dataset.range(200, 220)


@pytest.mark.parametrize("choose", [False, True])
@pytest.mark.parametrize("options", [{"allow": ["operator"]}, {"force": True}])
def test_a_new_input_of_a_mixture_begins_at_its_beginning(choose: bool, options: dict[str, Any]) -> None:
    old, new = mixture(FIRST, SECOND, choose=choose), mixture(FIRST, SECOND, THIRD, choose=choose)
    state = state_after(old, 10)
    with pytest.raises(StateMismatchError, match=r"input 3 \(range\) is new"):
        new.open(state)
    left = rows_left(new, state, **(options if not choose else {"force": True}))
    expected = {*range(5, 20), *range(105, 120), *(() if choose else range(200, 220))}
    assert set(left) == expected
    assert len(left) == len(expected)


@pytest.mark.parametrize("choose", [False, True])
def test_a_mixture_that_lost_an_input_says_so(choose: bool) -> None:
    state = state_after(mixture(FIRST, SECOND, THIRD, choose=choose), 10)
    with pytest.raises(StateMismatchError, match="the saved mixture has 3 inputs, this one has 2"):
        mixture(FIRST, SECOND, choose=choose).open(state, force=True)


def test_an_interleave_of_more_slots_goes_on_where_that_is_allowed() -> None:
    def plan(cycle_length: int) -> Dataset[Any]:
        return Dataset.range(6).interleave(tens, cycle_length=cycle_length)

    state = state_after(plan(2))
    left = [row for batch in rows_left(plan(2), state) for row in batch[1].tolist()]
    more = rows_left(plan(4), state, allow=["argument"])
    assert sorted(row for batch in more for row in batch[1].tolist()) == sorted(left)
    with pytest.raises(StateMismatchError):
        rows_left(plan(1), state, allow=["argument"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Dataset.range(90).window(3, 2), Dataset.range(90).window(5, 1)),
        (Dataset.range(90).window(2, 1), Dataset.range(90).window(2, 9)),
        (Dataset.range(90).batch(2).rebatch([3, 1]), Dataset.range(90).batch(2).rebatch([7])),
    ],
)
def test_windows_of_another_size_begin_with_the_next_row_where_that_is_allowed(
    old: Dataset[Any], new: Dataset[Any]
) -> None:
    state = state_after(old)
    first = rows_left(old, state)[0][0]
    assert rows_left(new, state, allow=["argument"])[0][0] == first


def test_a_source_that_can_be_read_once_gives_the_rows_held_by_a_shuffle_right_behind_it() -> None:
    def plan() -> Dataset[Any]:
        return Dataset.from_iterable(iter(range(30))).shuffle(4)

    state = state_after(plan(), 10)
    left = rows_left(plan(), state)
    assert len(left) == 20
    assert len({*left, *islice(plan().open(seed=SEED), 10)}) == 30


def test_a_shard_that_has_lost_records_is_named(tmp_path: Path) -> None:
    def write(rows: int) -> None:
        with asd.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
            for row in range(rows):
                writer.write(b"%d" % row)

    write(30)
    dataset: Dataset[Any] = Dataset.from_tfrecord(f"{tmp_path}/a.tfrecord")
    state = state_after(dataset, 20)
    write(10)
    with pytest.raises(StateMismatchError, match=r"a\.tfrecord"):
        rows_left(dataset, state, allow=["shards"])


@pytest.mark.parametrize("make", [lambda: Dataset.range(40).window(3, 2), lambda: Dataset.range(40).shuffle(4)])
def test_a_state_in_debug_mode_is_checked_alike(make: Callable[[], Dataset[Any]]) -> None:
    state = changed(state_after(make()), "position", "pushed", to=2**62)
    assert refusal(make(), state, debug=True).path == 'state["position"]["pushed"]'
