"""Resuming where shards were added, removed or replaced: exactly the rows that are left, or a refusal that says why."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data.errors import ObjectChangedError, StateMismatchError

SHARDS, ROWS = 6, 10

Build = Callable[[Path], Dataset[Any]]


def write(folder: Path, name: str, rows: int = ROWS, content: str = "") -> list[str]:
    """Write a shard of lines and return them."""
    lines = [f"{name}{content}:{row}" for row in range(rows)]
    path = folder / f"{name}.txt"
    before = path.stat().st_mtime if path.exists() else 0
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (before + 1, before + 1))
    return lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six shards of ten lines: ``m0`` to ``m5``."""
    for number in range(SHARDS):
        write(tmp_path, f"m{number}")
    return tmp_path


def rows_of(elements: Any) -> list[str]:
    return [str(row) for element in elements for row in (element if isinstance(element, np.ndarray) else [element])]


def run(dataset: Dataset[Any], state: Any = None, take: int | None = None, **options: Any) -> tuple[list[str], Any]:
    """Return the rows of some elements, or of all that are left, and the state behind them as JSON gives it back."""
    more = {"seed": 7} if state is None else {"allow": ["shards"]}
    with dataset.open(state, **{**more, **options}) as loader:
        rows = rows_of(loader if take is None else islice(loader, take))
        return rows, json.loads(json.dumps(loader.state_dict()))


def refusal(dataset: Dataset[Any], state: Any, **options: Any) -> str:
    """Return what resuming is refused with, at open or by the first element; it says what to do."""
    with pytest.raises(StateMismatchError) as caught:
        run(dataset, state, **options)
    assert caught.value.cure
    return str(caught.value)


def lines(name: str, rows: range = range(ROWS), content: str = "") -> list[str]:
    return [f"{name}{content}:{row}" for row in rows]


def lines_of(url: str) -> Dataset[str]:
    return Dataset.from_text(url)


def text(folder: Path, **options: Any) -> Dataset[Any]:
    return Dataset.from_text(f"{folder}/*.txt", **options)


def names(folder: Path, **options: Any) -> Dataset[Any]:
    return Dataset.list_files(f"{folder}/*.txt", **options)


def content_of(file: dict[str, Any]) -> str:
    return str(file["data"].decode())


ORDERS: dict[str, Build] = {
    "in order": text,
    "interleaved": lambda folder: text(folder, cycle_length=3, block_length=2),
    "read ahead": lambda folder: text(folder, read_ahead=4),
    "shards shuffled": lambda folder: text(folder, shuffle_shards=True),
    "shards shuffled and interleaved": lambda folder: text(folder, shuffle_shards=True, cycle_length=4),
    "shards in an order of their own seed": lambda folder: text(folder, shuffle_shards=True, seed=3),
    "in any order": lambda folder: text(folder, cycle_length=3, ordered=False),
    "names in a row": lambda folder: names(folder).interleave(lines_of, cycle_length=3),
    "names shuffled": lambda folder: names(folder, seed=5).flat_map(lines_of),
    "batched": lambda folder: text(folder, cycle_length=2).batch(1),
}
"""Orders in which a source holds no row back."""

HOLDING: dict[str, Build] = {
    "shuffled": lambda folder: text(folder, cycle_length=2).shuffle(8),
    "shuffled by choice": lambda folder: text(folder).shuffle(),
    "shuffled twice": lambda folder: text(folder, shuffle_shards=True).shuffle(5).shuffle(9),
    "mapped in any order": lambda folder: text(folder).map(str.strip, ordered=False, concurrency=2),
    "expanded": lambda folder: text(folder).interleave(lambda row: [row], cycle_length=4),
}
"""Orders in which rows are held back."""

EVERY_ORDER = {**ORDERS, **HOLDING}


# -- shards that are new


def test_one_more_of_ten_shuffled_shards_repeats_no_row_and_drops_none(tmp_path: Path) -> None:
    def plan() -> Dataset[Any]:
        return text(tmp_path, shuffle_shards=True)

    for number in range(10):
        write(tmp_path, f"m{number}", 100)
    expected = Counter(list(plan()))
    given, state = run(plan(), take=450)
    expected.update(write(tmp_path, "m10", 100))
    left, _ = run(plan(), state)
    assert Counter(given + left) == expected


@pytest.mark.parametrize("name", ["a", "m2b", "z"])
@pytest.mark.parametrize("order", EVERY_ORDER)
@pytest.mark.parametrize("take", [0, 1, 23, 59, 60])
def test_new_shards_are_read_once_wherever_they_are_listed(folder: Path, order: str, name: str, take: int) -> None:
    plan = EVERY_ORDER[order]
    given, state = run(plan(folder), take=take)
    write(folder, name)
    left, _ = run(plan(folder), state)
    assert Counter(given + left) == Counter([*(line for number in range(SHARDS) for line in lines(f"m{number}")),
                                             *lines(name)])  # fmt: skip


@pytest.mark.parametrize("order", ["in order", "interleaved", "shards shuffled and interleaved"])
def test_old_rows_keep_their_order_and_new_shards_follow_them(folder: Path, order: str) -> None:
    _, state = run(ORDERS[order](folder), take=25)
    without, _ = run(ORDERS[order](folder), state)
    write(folder, "a")
    write(folder, "m3b")
    left, _ = run(ORDERS[order](folder), state)
    assert left[: len(without)] == without
    assert Counter(left[len(without) :]) == Counter(lines("a") + lines("m3b"))


def test_new_shards_have_a_shuffled_order_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, "a", 1)
    plan = text(tmp_path, shuffle_shards=True)
    _, state = run(plan, take=1)
    for number in range(30):
        write(tmp_path, f"m{number:02}", 1)
    left, _ = run(plan, state)
    assert left != sorted(left)
    assert left == run(plan, state)[0]


def test_later_epochs_have_the_order_of_the_new_list(folder: Path) -> None:
    def plan(epochs: int = 3) -> Dataset[Any]:
        return text(folder, shuffle_shards=True, cycle_length=2).repeat(epochs)

    given, state = run(plan(), take=70)
    write(folder, "a")
    left, _ = run(plan(), state)
    whole, _ = run(plan())
    epoch = (SHARDS + 1) * ROWS
    assert left[-epoch:] == whole[-epoch:]
    assert Counter(given + left)["a:3"] == 2  # in the epoch in progress, and in the one behind it


def test_functions_draw_for_old_rows_what_they_would_have_drawn(folder: Path) -> None:
    def drawn(row: str, rng: np.random.Generator) -> str:
        return f"{row} {rng.integers(1 << 40)}"

    plan = text(folder, shuffle_shards=True, cycle_length=2).map(drawn).shuffle(5)
    _, state = run(plan, take=20)
    without, _ = run(plan, state)
    write(folder, "a")
    left, _ = run(plan, state)
    assert set(without) <= set(left)


# -- shards that are gone


def taken(rows: list[str]) -> Counter[str]:
    """Return how many rows of each shard were given."""
    return Counter(row.split(":")[0] for row in rows)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("take", [1, 23, 44, 59])
def test_rows_of_a_shard_that_is_gone_are_gone_and_all_others_follow(folder: Path, order: str, take: int) -> None:
    given, state = run(ORDERS[order](folder), take=take)
    read = {name: taken(given)[name] for name in (f"m{number}" for number in range(SHARDS))}
    for gone in {min(read.items(), key=key)[0] for key in (fewest_rows, half_of_the_rows, most_rows)}:
        away = (folder / f"{gone}.txt").rename(folder / "away")
        left, _ = run(ORDERS[order](folder), state)
        others = [line for name in read if name != gone for line in lines(name)]
        assert Counter(row for row in given + left if not row.startswith(f"{gone}:")) == Counter(others)
        assert not taken(left)[gone]
        away.rename(folder / f"{gone}.txt")


def fewest_rows(read: tuple[str, int]) -> int:
    return read[1]


def most_rows(read: tuple[str, int]) -> int:
    return -read[1]


def half_of_the_rows(read: tuple[str, int]) -> int:
    return abs(read[1] - ROWS // 2)


@pytest.mark.parametrize("order", ["shuffled", "shuffled by choice", "shuffled twice"])
def test_a_shard_of_which_rows_are_held_must_not_be_gone(folder: Path, order: str) -> None:
    given, state = run(HOLDING[order](folder), take=9)
    held = next(name for name, count in taken(given).items() if count < ROWS)
    away = (folder / f"{held}.txt").rename(folder / "away")
    message = refusal(HOLDING[order](folder), state)
    assert "which is no longer listed" in message
    assert "Put the shard back" in message
    before = f"behind {folder}/m{int(held[1]) - 1}.txt" if held != "m0" else f"before {folder}/m1.txt"
    assert f"the shard that was listed {before}" in message
    away.rename(folder / f"{held}.txt")
    left, _ = run(HOLDING[order](folder), state)
    assert len(set(given + left)) == len(given + left) == SHARDS * ROWS


def test_a_shard_that_was_renamed_is_another_one(folder: Path) -> None:
    given, state = run(text(folder), take=25)
    (folder / "m0.txt").rename(folder / "n0.txt")
    left, _ = run(text(folder), state)
    assert Counter(given + left) == Counter([*(line for number in range(1, SHARDS) for line in lines(f"m{number}")),
                                             *lines("m0"), *lines("m0")])  # fmt: skip


# -- shards that were replaced


@pytest.mark.parametrize("order", EVERY_ORDER)
def test_an_unread_shard_that_was_replaced_gives_its_new_rows(folder: Path, order: str) -> None:
    plan = EVERY_ORDER[order]
    _, state = run(plan(folder), take=0)
    write(folder, "m4", 3, "new")
    left, _ = run(plan(folder), state)
    others = [line for number in range(SHARDS) if number != 4 for line in lines(f"m{number}")]
    assert Counter(left) == Counter([*others, *lines("m4", range(3), "new")])


@pytest.mark.parametrize("order", EVERY_ORDER)
@pytest.mark.parametrize("take", [3, 35, 60])
def test_a_shard_that_was_replaced_after_it_was_begun_is_refused_by_name(folder: Path, order: str, take: int) -> None:
    plan = EVERY_ORDER[order]
    given, state = run(plan(folder), take=take)
    begun = next(iter(taken(given)))
    write(folder, begun, 12, "new")
    message = refusal(plan(folder), state)
    assert f"{folder}/{begun}.txt" in message
    assert "was changed after rows of it had been read" in message
    assert 'add "content" to allow=' in message


@pytest.mark.parametrize("order", EVERY_ORDER)
@pytest.mark.parametrize("take", [0, 3, 35, 60])
def test_shards_that_were_only_copied_go_on_where_that_is_allowed(folder: Path, order: str, take: int) -> None:
    plan = EVERY_ORDER[order]
    given, state = run(plan(folder), take=take)
    for number in range(SHARDS):
        write(folder, f"m{number}")  # the same lines at another time
    assert "6 shards were changed since in size, time or version" in refusal(plan(folder), state, allow=[])
    left, state = run(plan(folder), state, allow=["content"], take=5)
    rest, _ = run(plan(folder), state)
    assert Counter(given + left + rest) == Counter(lines_of_all())


def test_shards_that_were_repaired_go_on_beside_new_ones(folder: Path) -> None:
    given, state = run(text(folder), take=4)
    write(folder, "m0", 8)
    write(folder, "n0")
    left, _ = run(text(folder), state, allow=["shards", "content"])
    assert given + left == [*lines("m0", range(8)), *lines_of_all()[ROWS:], *lines("n0")]


def lines_of_all() -> list[str]:
    return [line for number in range(SHARDS) for line in lines(f"m{number}")]


def test_a_shard_of_which_rows_are_held_must_not_be_replaced(folder: Path) -> None:
    plan = text(folder).shuffle(30)
    given, state = run(plan, take=1)
    held = next(f"m{number}" for number in range(3) if f"m{number}" not in taken(given))
    write(folder, held, content="new")
    assert f"{folder}/{held}.txt" in refusal(plan, state)


LONG: dict[str, Build] = {
    "in order": text,
    "interleaved": lambda folder: text(folder, cycle_length=3, block_length=2),
    "batched": lambda folder: text(folder).batch(8),
    "skipping": lambda folder: text(folder, on_error="skip"),
}


@pytest.mark.parametrize("order", LONG)
@pytest.mark.parametrize("change", ["appended to", "replaced"])
def test_a_run_that_ends_at_a_changed_shard_resumes_from_its_last_state(
    tmp_path: Path, order: str, change: str
) -> None:
    shards = {number: write(tmp_path, f"m{number}", 100, "x" * 2000) for number in range(10)}
    given: list[str] = []
    with LONG[order](tmp_path).open(seed=7, memory_limit="1MB") as loader:
        given += rows_of(islice(loader, 1))
        shards[9] = write(tmp_path, "m9", 101 if change == "appended to" else 7, "x" * 2000)
        with pytest.raises(ObjectChangedError) as caught:
            given.extend(row for element in loader for row in rows_of([element]))
        state = json.loads(json.dumps(loader.state_dict()))
    assert not any(row.startswith("m9") for row in given)
    assert "m9.txt: the file was modified after it was listed. Do not change files" in str(caught.value)
    assert 'resume the last state with allow=["shards"]' in str(caught.value)
    left, _ = run(LONG[order](tmp_path), state)
    assert Counter(given + left) == Counter(line for lines in shards.values() for line in lines)


def test_by_force_a_replaced_shard_goes_on_behind_the_number_of_records_delivered(folder: Path) -> None:
    given, state = run(text(folder), take=4)
    write(folder, "m0", 8, "copy")
    left, _ = run(text(folder), state, force=True)
    assert left[:4] == lines("m0", range(4, 8), "copy")
    assert len(given + left) == SHARDS * ROWS - 2


def test_a_shard_that_was_replaced_in_an_epoch_before_is_read_anew(folder: Path) -> None:
    plan = text(folder).repeat(2)
    _, state = run(plan, take=63)
    write(folder, "m4", 3, "new")
    left, _ = run(plan, state)
    assert Counter(left)["m4new:1"] == 1


def test_replaced_and_new_shards_at_once_are_told_apart(folder: Path) -> None:
    given, state = run(text(folder), take=12)
    write(folder, "a")
    (folder / "m3.txt").unlink()
    write(folder, "m5", 2, "new")
    left, _ = run(text(folder), state)
    assert Counter(given + left) == Counter([*lines("m0"), *lines("m1"), *lines("m2"), *lines("m4"), *lines("a"),
                                             *lines("m5", range(2), "new")])  # fmt: skip
    write(folder, "m1", 4, "new")
    assert "m1.txt" in refusal(text(folder), state)


# -- one change after another


@pytest.mark.parametrize("order", ORDERS)
def test_shards_may_change_at_every_stop(folder: Path, order: str) -> None:
    plan = ORDERS[order]
    left = Counter(line for number in range(SHARDS) for line in lines(f"m{number}"))
    rows, state = run(plan(folder), take=15)
    for stop, (new, gone) in enumerate([("z", "m4"), ("a", "m2"), ("m1b", "z")]):
        left.subtract(rows)
        assert min(left.values()) == 0
        left = Counter({row: count for row, count in left.items() if not row.startswith(f"{gone}:")})
        (folder / f"{gone}.txt").unlink()
        left.update(write(folder, new))
        rows, state = run(plan(folder), state, take=7 if stop < 2 else None)
    assert Counter(rows) == +left


@pytest.mark.parametrize("order", EVERY_ORDER)
def test_a_state_that_is_saved_at_once_after_a_change_is_as_good(folder: Path, order: str) -> None:
    plan = EVERY_ORDER[order]
    given, state = run(plan(folder), take=60)
    write(folder, "m2b")
    none, again = run(plan(folder), state, take=0)
    left, _ = run(plan(folder), again, allow=[])
    assert none == []
    assert Counter(left) == Counter(lines("m2b"))
    assert len(given) == SHARDS * ROWS


def test_a_shard_that_comes_back_is_a_new_one(folder: Path) -> None:
    given, state = run(text(folder), take=14)
    kept = (folder / "m1.txt").rename(folder / "away")
    more, state = run(text(folder), state, take=3)
    kept.rename(folder / "m1.txt")
    left, _ = run(text(folder), state)
    assert more == lines("m2", range(3))
    assert Counter(left) == Counter(
        [*lines("m2", range(3, 10)), *lines("m3"), *lines("m4"), *lines("m5"), *lines("m1")]
    )
    assert given[-1] == "m1:3"


# -- long lists


def test_a_long_list_may_gain_shards_at_its_end_and_loses_none(tmp_path: Path) -> None:
    for number in range(200):
        write(tmp_path, f"m{number:03}", 2)
    plan = text(tmp_path, shuffle_shards=True, cycle_length=3)
    given, state = run(plan, take=111)
    size = len(json.dumps(state))
    write(tmp_path, "z")
    more, state = run(plan, state, take=100)
    assert len(json.dumps(state)) < size + 60
    write(tmp_path, "zz")
    left, _ = run(plan, state)
    counts = Counter(given + more + left)
    assert set(counts.values()) == {1}
    assert len(counts) == 420
    (tmp_path / "m000.txt").unlink()
    assert "Only lists of up to 128 shards may change in any way" in refusal(plan, state)
    (tmp_path / "z.txt").unlink()
    assert "add new shards at the end" in refusal(plan, state)


def test_a_long_list_of_which_a_shard_was_replaced_is_refused(tmp_path: Path) -> None:
    for number in range(150):
        write(tmp_path, f"m{number:03}", 1)
    _, state = run(text(tmp_path), take=20)
    write(tmp_path, "m100", 2)
    assert "at least one shard" in refusal(text(tmp_path), state)
    left, _ = run(text(tmp_path), state, allow=["content"])
    assert len(left) == 131


@pytest.mark.parametrize("take", range(5, 12))
def test_rows_cut_from_an_element_that_a_gone_shard_has_a_part_in_are_not_lost(folder: Path, take: int) -> None:
    write(folder, "m0", 4)
    whole = (folder / "m0.txt").read_text()
    plan = text(folder).batch(5).rebatch(4).unbatch().prefetch(2).flat_map(lambda row: [row])
    others = Counter(line for line in lines_of_all() if not line.startswith("m0"))
    for _ in range(10):  # what the flat_map holds then depends on time
        given, state = run(plan, take=take)
        (folder / "m0.txt").unlink()
        left = None  # refused
        with suppress(StateMismatchError):
            left, _ = run(plan, state)
        assert left is None or Counter(row for row in given + left if not row.startswith("m0")) == others
        (folder / "m0.txt").write_text(whole)


# -- operators that hold rows, count them, or are at their end


def test_a_shuffle_that_is_being_emptied_takes_rows_of_new_shards(folder: Path) -> None:
    plan = text(folder).shuffle(20)
    given, state = run(plan, take=50)
    write(folder, "z", 40)
    more, state = run(plan, state, take=15)
    write(folder, "zz")
    left, _ = run(plan, state)
    assert Counter(given + more + left)["z:39"] == 1
    assert len(set(given + more + left)) == len(given + more + left) == 110


def test_an_input_of_a_mixture_that_was_exhausted_gives_its_new_shards(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    write(tmp_path / "a", "a0", 3)
    write(tmp_path / "b", "b0", 40)
    inputs = [text(tmp_path / "a"), text(tmp_path / "b")]
    for plan in (Dataset.sample_from(inputs, stop="all"),
                 Dataset.choose_from(inputs, Dataset.range(2).repeat(), stop="all")):  # fmt: skip
        given, state = run(plan, take=20)
        write(tmp_path / "a", "a1", 5)
        left, _ = run(plan, state)
        assert len(set(given + left)) == len(given + left) == 48
        (tmp_path / "a" / "a1.txt").unlink()


def padded(row: str) -> Any:
    return np.frombuffer(row.encode(), np.uint8)


@pytest.mark.parametrize(
    "batched",
    [
        lambda rows: rows.map(padded).padded_batch(8),
        lambda rows: rows.map(padded).batch(8, drop_remainder=False),
        lambda rows: rows.map(padded).batch(4).rebatch(8),
        lambda rows: rows.map(padded).window(8, 8),
        lambda rows: rows.map(padded).bucket_by_sequence_length(len, [3], [8, 8]),
    ],
)
def test_no_row_is_lost_behind_a_last_batch_that_was_not_full(folder: Path, batched: Any) -> None:
    plan = batched(text(folder))
    with plan.open(seed=1) as loader:
        given = sum(len(batch) for batch in loader)
        state = loader.state_dict()
    write(folder, "z")
    with plan.open(state, allow=["shards"]) as loader:
        more = [len(batch) for batch in islice(loader, 1)]
        state = json.loads(json.dumps(loader.state_dict()))
    with plan.open(state) as loader:
        more += [len(batch) for batch in loader]
    assert given + sum(more) == 70


def test_an_element_that_is_half_delivered_keeps_its_rows_or_is_refused(folder: Path) -> None:
    in_order = text(folder, cycle_length=2).batch(7).unbatch()
    given, state = run(in_order, take=58)
    write(folder, "a")
    left, _ = run(in_order, state)
    assert Counter(given + left) == Counter(list(in_order))
    given, state = run(in_order, take=24)
    (folder / "m0.txt").unlink()  # which is over
    left, _ = run(in_order, state)
    assert len(set(given + left)) == len(given + left) == 70
    (folder / "m5.txt").unlink()
    assert "is inside an element that unbatch() was splitting" in refusal(in_order, state)


def test_rows_of_a_complete_cache_are_counted_so_that_shards_must_not_change(folder: Path) -> None:
    plan = text(folder).cache().repeat(3)
    _, state = run(plan, take=70)
    write(folder, "z")
    assert "counts rows of a complete cache" in refusal(text(folder).cache().repeat(3), state)


def test_a_cache_that_is_being_filled_is_filled_with_new_shards_as_well(folder: Path) -> None:
    given, state = run(text(folder).cache().repeat(2), take=33)
    write(folder, "a")
    left, _ = run(text(folder).cache().repeat(2), state)
    assert Counter(given + left) == Counter(dict.fromkeys([*given, *left], 2))
    assert len(given + left) == 140


def test_new_shards_of_a_source_that_concatenate_has_passed_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        write(tmp_path / name, f"{name}0")
    plan = text(tmp_path / "a").concatenate(text(tmp_path / "b"))
    given, state = run(plan, take=12)
    write(tmp_path / "b", "b1")
    more, state = run(plan, state, take=2)
    write(tmp_path / "a", "a1")
    assert "concatenate() is past that source" in refusal(plan, state)
    left, _ = run(plan, state, force=True)
    assert len(set(given + more + left)) == 30
    (tmp_path / "a" / "a1.txt").unlink()
    (tmp_path / "a" / "a0.txt").unlink()
    write(tmp_path / "a", "a2", 0)
    assert "has 1 new shard" in refusal(plan, state)


# -- lists that only a running plan knows


@pytest.mark.parametrize("function", [lambda name: Dataset.from_text(f"{name}/*.txt"),
                                      lambda name: Dataset.list_files(f"{name}/*.txt")])  # fmt: skip
@pytest.mark.parametrize("held", [False, True])
def test_files_that_a_function_lists_must_stay_while_they_are_read(
    tmp_path: Path, function: Callable[[str], Dataset[Any]], held: bool
) -> None:
    (tmp_path / "part").mkdir()
    for number in range(4):
        write(tmp_path / "part", f"m{number}", 1)
    plan = Dataset.from_tensor_slices([str(tmp_path / "part")]).flat_map(function)
    plan = plan.shuffle(4).skip(0) if held else plan
    _, state = run(plan, take=1)
    write(tmp_path / "part", "a", 1)
    assert "read other files" in refusal(plan, state, allow=[])


def test_files_that_another_data_set_lists_must_stay_while_they_are_read(folder: Path) -> None:
    plan = Dataset.from_text(names(folder).shuffle(3))
    _, state = run(plan, take=12)
    write(folder, "a")
    assert "holds rows of files that another dataset lists" in refusal(plan, state)
    _, state = run(Dataset.from_text(Dataset.from_iterable(Names(folder))), take=12)
    write(folder, "b")
    assert "read other files" in refusal(Dataset.from_text(Dataset.from_iterable(Names(folder))), state, allow=[])


class Names:
    """Names of files, which nothing but reading them tells."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(map(str, self._folder.glob("*.txt"))))


# -- ranks and processes


@pytest.mark.parametrize("order", ["in order", "shards shuffled and interleaved", "shuffled"])
def test_another_number_of_ranks_goes_on_with_other_shards(folder: Path, order: str) -> None:
    plan = EVERY_ORDER[order](folder)
    states = [run(plan, take=7, rank=rank, world_size=2) for rank in range(2)]
    given = [row for rows, _ in states for row in rows]
    write(folder, "m0b", 12)
    left = [row for rank in range(3) for row in run(plan, states[0][1], rank=rank, world_size=3, tail="repeat")[0]]
    assert Counter(set(left)) + Counter(given) == Counter(list(plan))
    assert len(left) <= 58 + 2


def test_ranks_with_files_of_their_own_share_new_shards(folder: Path) -> None:
    plan = text(folder, shuffle_shards=True, cycle_length=2)
    options: dict[str, Any] = {"world_size": 2, "policy": "file", "tail": None}
    ranks = [run(plan, take=11, rank=rank, **options) for rank in range(2)]
    write(folder, "a")
    write(folder, "b")
    left = [run(plan, state, rank=rank, **options)[0] for rank, (_, state) in enumerate(ranks)]
    given = [row for rows, _ in ranks for row in rows]
    assert Counter([*given, *left[0], *left[1]]) == Counter(list(plan))
    assert all(set(taken(rows)) & {"a", "b"} for rows in left)


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_that_run_the_chain_go_on_with_other_shards(folder: Path, workers: int) -> None:
    plan = text(folder, shuffle_shards=True, cycle_length=2).shuffle(9).in_subprocess(workers)
    given, state = run(plan, take=55)
    write(folder, "a")
    more, state = run(plan, state, take=3)
    write(folder, "b")
    left, _ = run(plan, state)
    assert Counter(given + more + left) == Counter(list(text(folder)))


def test_a_process_refuses_rows_of_a_shard_that_is_gone(folder: Path) -> None:
    plan = text(folder).shuffle(20).in_subprocess()
    _, state = run(plan, take=1)
    (folder / "m1.txt").unlink()
    message = refusal(plan, state)
    assert f"the shard that was listed behind {folder}/m0.txt" in message


# -- names of rows


def test_origins_of_rows_are_found_in_another_list(folder: Path) -> None:
    plan = text(folder, shuffle_shards=True, cycle_length=2).shuffle(5)
    _, state = run(plan, take=20)
    write(folder, "a")
    with plan.open(state, allow=["shards"]) as loader:
        kept = [(row, loader.origins(row)[0]) for row in loader]
    for row, origin in kept:
        assert origin.url == f"{folder}/{row.split(':')[0]}.txt"
        assert plan.fetch(origin) == row
    (folder / "m3.txt").unlink()
    gone = next(origin for row, origin in kept if row.startswith("m3:"))
    with pytest.raises(StateMismatchError, match=r"m3\.txt, which is no longer listed"):
        plan.fetch(gone)


def test_a_row_that_would_be_read_from_another_file_is_not_fetched(folder: Path) -> None:
    plan = names(folder).flat_map(lines_of)
    with plan.open() as loader:
        row = next(iter(loader))
        origin = loader.origins(row)[0]
    assert plan.fetch(origin) == row
    write(folder, "a")
    with pytest.raises(StateMismatchError, match=r"was read from .*m0\.txt"):
        plan.fetch(origin)


# -- what tells a shard's content


def test_an_index_without_versions_is_not_another_content(folder: Path) -> None:
    given, state = run(text(folder), take=25)
    asd.write_index(f"{folder}/*.txt", folder / "i")
    left, _ = run(text(folder, index=folder / "i"), state, allow=[])
    assert Counter(given + left) == Counter(list(text(folder)))


def test_a_source_below_no_repetition_does_not_matter(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path, name, 2)
    lines = Dataset.from_text(str(tmp_path / "*.txt"))
    dataset = lines.repeat(0).concatenate(lines)
    with dataset.open() as loader:
        before = list(islice(loader, 2))
        state = loader.state_dict()
    write(tmp_path, "d", 2)
    with dataset.open(state, allow=["shards"]) as loader:
        assert sorted(before + list(loader)) == [f"{name}:{row}" for name in "abcd" for row in range(2)]
