"""Elements are skipped and given again, rows and shards blocked: at open or while running, and in the state."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import aiostream_data as asd
from aiostream_data import Dataset, Loader
from aiostream_data.errors import PlanError, StateMismatchError

SEED = 3
FILES = 3
ROWS = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three TFRecord files of 30 records; record r of file f says "f-r"."""
    folder = tmp_path_factory.mktemp("steered")
    for number in range(FILES):
        with asd.TFRecordWriter(folder / f"{number}.tfrecord") as writer:
            for row in range(ROWS):
                writer.write(record(number, row))
    return folder


def record(file: int, row: int) -> bytes:
    return f"{file}-{row}".encode()


def url(folder: Path, file: int) -> str:
    return str(folder / f"{file}.tfrecord")


def records(folder: Path) -> Dataset[Any]:
    return Dataset.from_tfrecord(str(folder / "*.tfrecord"), cycle_length=2, shuffle_shards=True)


NUMBERS = Dataset.range(100).shuffle(20).batch(5)


def lists(loader: Any) -> list[list[Any]]:
    return [batch.tolist() for batch in loader]


def read(dataset: Dataset[Any], state: Any = None, **options: Any) -> list[list[Any]]:
    """Return the batches as lists."""
    with dataset.open(state, seed=SEED if state is None else None, **options) as loader:
        return lists(loader)


def rows(batches: list[list[Any]]) -> list[Any]:
    return [row for batch in batches for row in batch]


def as_json(loader: Loader[Any]) -> Any:
    return json.loads(json.dumps(loader.state_dict()))


# -- skip


def test_skipped_elements_are_not_given() -> None:
    whole = read(NUMBERS)
    assert read(NUMBERS, skip=[(3, 5)]) == whole[:3] + whole[5:]
    assert read(NUMBERS, skip=[(0, 2), (4, 6), (5, 7), (18, 99)]) == whole[2:4] + whole[7:18]
    assert read(NUMBERS, skip=[(0, 20)]) == []


def test_elements_are_skipped_while_running() -> None:
    whole = read(NUMBERS)
    with NUMBERS.open(seed=SEED) as loader:
        first = lists(islice(loader, 4))
        loader.skip(3)
        second = lists(islice(loader, 2))
        loader.skip(1)
        assert first + second + lists(loader) == whole[:4] + whole[7:9] + whole[10:]


def test_elements_are_skipped_inside_of_a_running_for_loop() -> None:
    whole = read(NUMBERS)
    given = []
    with NUMBERS.open(seed=SEED) as loader:
        for batch in loader:
            given.append(batch.tolist())
            if len(given) == 3:
                loader.skip(5)
    assert given == whole[:3] + whole[8:]


def test_what_is_skipped_is_part_of_the_state() -> None:
    whole = read(NUMBERS)
    with NUMBERS.open(seed=SEED, skip=[(6, 8)]) as loader:
        assert lists(islice(loader, 2)) == whole[:2]
        loader.skip(2)
        state = as_json(loader)
        assert lists(loader) == [*whole[4:6], *whole[8:]]
    assert read(NUMBERS, state) == [*whole[4:6], *whole[8:]]
    assert read(NUMBERS, state, skip=[(10, 20)]) == [*whole[4:6], *whole[8:10]]


def test_elements_are_numbered_from_the_very_beginning_after_a_resume_too() -> None:
    whole = read(NUMBERS)
    with NUMBERS.open(seed=SEED) as loader:
        assert len(lists(islice(loader, 7))) == 7
        state = as_json(loader)
    assert read(NUMBERS, state, skip=[(0, 3), (9, 12)]) == whole[7:9] + whole[12:]


@pytest.mark.parametrize("skip", [[(3, 3)], [(5, 2)], [(-1, 2)], [3], ["ab"], [(1, 2, 3)]])
def test_spans_that_make_no_sense_are_refused(skip: Any) -> None:
    with pytest.raises(PlanError, match=r"\(first, stop\)"):
        NUMBERS.open(skip=skip)


# -- replay


def test_elements_are_given_again_beside_the_loader_which_stays_where_it_is() -> None:
    with NUMBERS.open(seed=SEED) as loader:
        given = lists(islice(loader, 9))
        with loader.replay(2, 6) as again:
            assert lists(again) == given[2:6]
        assert given + lists(loader) == read(NUMBERS)


def test_elements_are_given_again_after_a_resume_from_its_place_on() -> None:
    whole = read(NUMBERS)
    with NUMBERS.open(seed=SEED) as loader:
        assert len(lists(islice(loader, 7))) == 7
        state = as_json(loader)
    with NUMBERS.open(state) as loader:
        assert lists(islice(loader, 6)) == whole[7:13]
        with loader.replay(8, 11) as again:
            assert lists(again) == whole[8:11]
        with pytest.raises(PlanError, match="opened at element 7"):
            loader.replay(6, 8)


def test_blocked_rows_stay_out_of_what_is_given_again(folder: Path) -> None:
    dataset = records(folder).batch(5)
    with dataset.open(seed=SEED, block=[url(folder, 1)]) as loader:
        given = lists(islice(loader, 6))
        with loader.replay(1, 4) as again:
            assert lists(again) == given[1:4]


# -- block


def test_blocked_rows_and_shards_are_not_given(folder: Path) -> None:
    block = [url(folder, 1), (url(folder, 0), 7), (url(folder, 2), 29)]
    whole = read(records(folder).batch(1))
    left = [row for row in rows(whole) if not row.startswith(b"1-") and row not in (record(0, 7), record(2, 29))]
    assert rows(read(records(folder).batch(4), block=block)) == left
    assert sorted(rows(read(records(folder).shuffle(20).batch(4), block=block))) == sorted(left)


def test_what_origins_name_can_be_blocked(folder: Path) -> None:
    dataset = records(folder).shuffle(20).batch(5)
    with dataset.open(seed=SEED) as loader:
        batch = next(iter(loader))
        origins = loader.origins(batch)
    left = rows(read(dataset, block=origins))
    assert len(left) == FILES * ROWS - 5
    assert not set(batch) & set(left)


def test_all_rows_made_of_a_blocked_record_are_blocked(folder: Path) -> None:
    dataset = records(folder).flat_map(lambda row: [row, row]).batch(4)
    with dataset.open(seed=SEED) as loader:
        batch = next(iter(loader))
        origins = loader.origins(batch)
    left = rows(read(dataset, block=origins))
    assert len(left) == 2 * (FILES * ROWS - len(set(batch)))
    assert not set(batch) & set(left)


def test_rows_are_blocked_while_running(folder: Path) -> None:
    dataset = records(folder).shuffle(20).batch(5)
    with dataset.open(seed=SEED) as loader:
        before = rows(lists(islice(loader, 4)))
        loader.block([url(folder, 1), (url(folder, 0), 7)])
        after = rows(lists(loader))
    assert sorted({*before, *after}) == sorted(
        row for row in rows(read(dataset)) if row in before or not (row.startswith(b"1-") or row == record(0, 7))
    )
    assert len(before) + len(after) == len({*before, *after})
    assert not [row for row in after if row.startswith(b"1-") or row == record(0, 7)]


def test_what_is_blocked_is_part_of_the_state(folder: Path) -> None:
    dataset = records(folder).shuffle(20).batch(5)
    with dataset.open(seed=SEED, block=[(url(folder, 2), 3)]) as loader:
        iterator = iter(loader)
        assert len(lists(islice(iterator, 2))) == 2
        loader.block([url(folder, 1)])
        assert len(lists(islice(loader, 2))) == 2
        state = as_json(loader)
        left = lists(loader)
    assert read(dataset, state) == left
    assert not [row for row in rows(left) if row.startswith(b"1-")]
    more = rows(read(dataset, state, block=[url(folder, 0)]))
    assert sorted(more) == sorted(row for row in rows(left) if not row.startswith(b"0-"))


def test_a_state_is_taken_after_every_batch_of_a_stream_with_blocked_rows(folder: Path) -> None:
    dataset = records(folder).shuffle(20).batch(5)
    with dataset.open(seed=SEED, block=[url(folder, 1), (url(folder, 0), 7)]) as loader:
        states, whole = [as_json(loader)], []
        for batch in loader:
            whole.append(batch.tolist())
            states.append(as_json(loader))
    for number, state in enumerate(states):
        assert read(dataset, state) == whole[number:]


@pytest.mark.parametrize("block", [[7], [("a", "b", "c")], [(3, "a")]])
def test_what_cannot_be_blocked_is_refused(block: Any) -> None:
    with pytest.raises(PlanError, match="block must contain URLs"):
        NUMBERS.open(block=block)


# -- together


def test_ranks_share_what_is_left_of_blocked_rows_and_skip_the_same_steps(folder: Path) -> None:
    dataset = records(folder).shuffle(20).batch(2)
    options: dict[str, Any] = {"block": [url(folder, 1)], "skip": [(1, 3)]}
    whole = rows(read(dataset, rank=0, world_size=1, block=[url(folder, 1)]))
    ranks = [read(dataset, rank=rank, world_size=3, **options) for rank in range(3)]
    in_turn = [row for group in zip(*map(rows, ranks), strict=True) for row in group]
    assert in_turn == whole[:6] + whole[18:]


def test_steering_of_all_ranks_holds_for_another_number_of_ranks_with_steps_of_as_many_rows(folder: Path) -> None:
    shuffled = records(folder).shuffle(20)
    given, states = [], []
    for rank in range(3):
        with shuffled.batch(2).open(seed=SEED, rank=rank, world_size=3) as loader:
            given += rows(lists(islice(loader, 4)))
            loader.block([url(folder, 1)])
            loader.skip(1)
            states.append(as_json(loader))
    on_three = [rows(read(shuffled.batch(2), states[0], rank=rank, world_size=3, tail="repeat")) for rank in range(3)]
    options: dict[str, Any] = {"tail": "repeat", "allow": ["batch.batch_size"]}
    on_two = [rows(read(shuffled.batch(3), states, rank=rank, world_size=2, **options)) for rank in range(2)]
    left = rows(read(shuffled.batch(6), states, rank=0, world_size=1, **options))
    assert not [row for row in left if row.startswith(b"1-")]
    assert not set(given) & set(left)
    for ranks in (on_three, on_two):
        in_turn = [row for group in zip(*ranks, strict=True) for row in group]
        assert in_turn[: len(left)] == left


def test_the_hash_of_the_stream_is_of_the_rows_that_were_given() -> None:
    with NUMBERS.open(seed=SEED, skip=[(3, 5)]) as loader:
        assert len(lists(loader)) == 18
        assert loader.stats().stream_rows == 90
        steered = loader.stream_hash
    with NUMBERS.open(seed=SEED) as loader:
        assert len(lists(loader)) == 20
        assert loader.stream_hash != steered


def test_damaged_steering_is_refused() -> None:
    with NUMBERS.open(seed=SEED, skip=[(3, 5)]) as loader:
        state = as_json(loader)
    state["steering"]["skip"] = [[5, 3]]
    with pytest.raises(StateMismatchError):
        NUMBERS.open(state)


def test_an_async_loop_is_steered_alike(folder: Path) -> None:
    dataset = records(folder).shuffle(20).batch(5)

    async def steered() -> list[list[Any]]:
        given = []
        async with dataset.open(seed=SEED) as loader:
            async for batch in loader:
                given.append(batch.tolist())
                if len(given) == 2:
                    async with loader.replay(0, 2) as again:
                        assert [batch.tolist() async for batch in again] == given
                    loader.skip(2)
                if len(given) == 4:
                    loader.block([url(folder, 1)])
        return given

    def plainly() -> list[list[Any]]:
        with dataset.open(seed=SEED) as loader:
            given = lists(islice(loader, 2))
            loader.skip(2)
            given += lists(islice(loader, 2))
            loader.block([url(folder, 1)])
            return given + lists(loader)

    assert asyncio.run(steered()) == plainly()
