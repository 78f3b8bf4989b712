"""Several ranks of one data set, opened beside each other: every row once, as many batches, one state for all."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset, FixedLen, Loader, TFRecordWriter, encode_example
from aiostream_data.errors import RankError, StateMismatchError
from aiostream_data.ranks import Sharing

SEED = 11
TAILS = ["drop", "pad", "repeat"]


def open_rank(
    dataset: Dataset[Any], rank: int, world: int, state: Any = None, sharing: Sharing | None = None, **options: Any
) -> Loader[Any]:
    """Open one rank's part of a data set."""
    asked = sharing or Sharing()
    return dataset.open(
        state,
        seed=SEED,
        rank=rank,
        world_size=world,
        policy=asked.policy,
        tail=asked.tail,
        counts=asked.counts,
        consensus=asked.consensus,
        **options,
    )


def read(dataset: Dataset[Any], rank: int, world: int, state: Any = None, sharing: Sharing | None = None) -> list[Any]:
    with open_rank(dataset, rank, world, state, sharing) as loader:
        return list(loader)


def read_all(dataset: Dataset[Any], world: int, state: Any = None, sharing: Sharing | None = None) -> list[list[Any]]:
    """Return what every rank gives."""
    return [read(dataset, rank, world, state, sharing) for rank in range(world)]


def rows_of(batches: Sequence[Any]) -> list[int]:
    return [int(row) for batch in batches for row in np.atleast_1d(batch)]


def in_turn(ranks: list[list[Any]]) -> list[Any]:
    """Return the rows of all ranks in the global order: one of each rank after the other."""
    return [row for group in zip(*ranks, strict=True) for row in group]


def is_odd(row: int) -> bool:
    return row % 2 == 1


def doubled(row: int) -> int:
    return 2 * row


def noisy(row: int, rng: np.random.Generator) -> float:
    return row + rng.random()


def three_of(row: int) -> list[int]:
    return [10 * row, 10 * row + 1, 10 * row + 2]


PIPELINES: dict[str, Callable[[], Dataset[Any]]] = {
    "rows": lambda: Dataset.range(120),
    "map": lambda: Dataset.range(120).map(doubled),
    "map rng": lambda: Dataset.range(120).shuffle(30).map(noisy).map(np.floor),
    "shuffle": lambda: Dataset.range(120).shuffle(30),
    "filter shuffle": lambda: Dataset.range(240).filter(is_odd).shuffle(30).map(doubled),
    "flat_map": lambda: Dataset.range(40).shuffle(9).flat_map(three_of),
    "interleave": lambda: Dataset.range(40).interleave(three_of, cycle_length=4),
    "zip": lambda: Dataset.zip(Dataset.range(120).shuffle(7), Dataset.range(120)).map(np.add),
    "repeat shuffle": lambda: Dataset.range(40).repeat(3).shuffle(17),
    "cache": lambda: Dataset.range(120).cache().shuffle(9),
    "unbatch": lambda: Dataset.range(120).batch(7).unbatch().shuffle(20),
}
"""120 rows each, whatever the operators."""


@pytest.mark.parametrize(
    ("name", "world"), [*itertools.product(PIPELINES, [2, 8]), *(("filter shuffle", n) for n in (1, 3))]
)
def test_ranks_take_the_rows_of_the_one_global_order_in_turn(name: str, world: int) -> None:
    whole = rows_of(read(PIPELINES[name](), 0, 1))
    assert len(whole) == 120
    ranks = [rows_of(batches) for batches in read_all(PIPELINES[name]().batch(4), world)]
    assert in_turn(ranks) == whole


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("world", [2, 5, 9])
def test_every_rank_has_as_many_batches_of_as_many_rows(world: int, tail: Any) -> None:
    dataset = Dataset.range(100).filter(is_odd).shuffle(13).map(lambda row: {"row": row}).batch(4)
    ranks = read_all(dataset, world, sharing=Sharing(tail=tail))
    shapes = {tuple(len(batch["row"]) for batch in batches) for batches in ranks}
    assert len(shapes) == 1
    own = [[row for batch in batches for row in batch["row"][batch.get("valid", slice(None))]] for batches in ranks]
    rows = sorted(row for rank in own for row in rank)
    odd = list(range(1, 100, 2))
    if tail == "pad":
        assert rows == odd
    elif tail == "repeat":
        assert sorted(set(rows)) == odd
        assert len(rows) == world * -(-50 // world)
    else:
        assert len(rows) == len(set(rows)) == 50 // world * world


def test_rows_that_no_rank_gets_are_counted() -> None:
    with open_rank(Dataset.range(10).batch(2), 1, 4) as loader:
        assert rows_of(list(loader)) == [1, 5]
        [counters] = [stage for stage in loader.stats().stages if stage.name == "rank_shard"]
    assert counters.dropped == 8


def test_padding_is_marked_for_any_number_of_ranks() -> None:
    dataset = Dataset.range(5).map(doubled).batch(2)
    one = read(dataset, 0, 1, sharing=Sharing(tail="pad"))
    assert [flags.tolist() for _, flags in one] == [[True, True], [True, True], [True]]
    last = read(dataset, 1, 2, sharing=Sharing(tail="pad"))[-1]
    assert (last[0].tolist(), last[1].tolist()) == ([8], [False])


def test_padding_is_marked_on_the_right_row_when_functions_run_out_of_order() -> None:
    dataset = Dataset.range(9).map(doubled, ordered=False, concurrency=4).batch(8)
    rows, valid = read(dataset, 1, 2, sharing=Sharing(tail="pad"))[0]
    assert sorted(rows[valid].tolist()) == [2, 6, 10, 14]
    assert rows[~valid].tolist() == [16]


def test_padding_draws_as_the_row_does_that_it_repeats() -> None:
    dataset = Dataset.range(3).map(noisy)
    first, second = read_all(dataset, 2, sharing=Sharing(tail="pad"))
    assert second[-1] == (first[-1][0], False)


def test_elements_with_a_flag_of_their_own_are_refused_when_they_come() -> None:
    dataset = Dataset.range(4).map(lambda row: {"valid": row})
    with pytest.raises(RankError, match="has 'valid' already"):
        read(dataset, 0, 2, sharing=Sharing(tail="pad"))


def test_every_epoch_is_shared_by_itself() -> None:
    ranks = read_all(Dataset.range(5).shuffle(5).batch(1).repeat(2), 2, sharing=Sharing(tail="repeat"))
    for epoch in range(2):
        rows = [int(batch[0]) for batches in ranks for batch in batches[3 * epoch : 3 * epoch + 3]]
        assert sorted(set(rows)) == list(range(5))


def scattered(example: dict[str, Any], rng: np.random.Generator) -> float:
    return float(example["row"] + rng.random())


@pytest.mark.parametrize("world", [1, 2, 3])
def test_rows_draw_the_same_random_numbers_for_any_number_of_ranks(tmp_path: Path, world: int) -> None:
    with TFRecordWriter(tmp_path / "rows.tfrecord") as writer:
        for row in range(30):
            writer.write(encode_example({"row": row}))
    records = Dataset.from_tfrecord(tmp_path / "rows.tfrecord")
    parsed = records.parse_example({"row": FixedLen((), np.int64)})  # which one rank alone does while it reads
    whole = read(parsed.map(scattered).prefetch(), 0, 1)
    assert len({row % 1 for row in whole}) == 30
    assert in_turn(read_all(parsed.map(scattered).prefetch(), world)) == whole


def length_row(number: int) -> dict[str, Any]:
    return {"number": number, "text": np.zeros(number % 13, np.int8)}


def text_length(row: dict[str, Any]) -> int:
    return len(row["text"])


def bucketed() -> Dataset[Any]:
    shuffled = Dataset.range(150).shuffle(40).map(length_row)
    return shuffled.bucket_by_sequence_length(text_length, [4, 9], [6, 4, 2])


def bucket_of(batch: Any) -> int:
    [bucket] = {int(length >= 4) + int(length >= 9) for length in batch["number"] % 13}
    return bucket


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("world", [1, 2, 3])
def test_in_one_step_all_ranks_have_a_batch_of_the_same_bucket(world: int, tail: Any) -> None:
    ranks = read_all(bucketed(), world, sharing=Sharing(tail=tail))
    assert len({len(batches) for batches in ranks}) == 1
    for step in zip(*ranks, strict=True):
        assert len({bucket_of(batch) for batch in step}) == 1
        assert len({len(batch["number"]) for batch in step}) == 1
    own = [batch["number"][batch.get("valid", slice(None))].tolist() for batches in ranks for batch in batches]
    rows = [row for batch in own for row in batch]
    assert len(rows) >= 150 - 3 * world
    if tail == "pad":
        assert sorted(rows) == list(range(150))
    if tail == "repeat":
        assert sorted(set(rows)) == list(range(150))
    if tail == "drop":
        assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("given", [0, 1, 4, 7, 14, 17])
def test_ranks_go_on_with_the_buckets_that_were_being_filled(given: int, tail: Any) -> None:
    sharing = Sharing(tail=tail)
    for rank in range(2):
        dataset = bucketed().map(lambda batch: batch, ordered=False)
        whole = [str(batch) for batch in read(dataset, rank, 2, sharing=sharing)]
        with open_rank(dataset, rank, 2, sharing=sharing) as loader:
            elements = iter(loader)
            first = [str(next(elements)) for _ in range(min(given, len(whole)))]
            state = json_state(loader)
        rest = [str(batch) for batch in read(dataset, rank, 2, state, sharing)]
        assert sorted(first + rest) == sorted(whole)


def test_replicas_get_the_same_rows() -> None:
    def of(rank: int) -> list[int]:
        with Dataset.range(24).shuffle(6).open(seed=SEED, rank=rank, world_size=6, replicate=3) as loader:
            return list(loader)

    groups = [of(rank) for rank in range(6)]
    assert groups[0] == groups[1] == groups[2]
    assert groups[3] == groups[4] == groups[5]
    assert sorted(groups[0] + groups[3]) == list(range(24))


def test_fewer_rows_than_ranks_are_an_error_on_every_rank() -> None:
    for rank in range(4):
        with pytest.raises(RankError, match="3 rows cannot be shared by 4 ranks"):
            read(Dataset.range(6).filter(is_odd), rank, 4)


# -- going on


def json_state(loader: Loader[Any]) -> Any:
    return json.loads(json.dumps(loader.state_dict()))


def save_after(dataset: Dataset[Any], world: int, batches: int) -> tuple[list[list[int]], list[Any]]:
    """Return what every rank has given after so many batches, and the ranks' states."""
    given, states = [], []
    for rank in range(world):
        with open_rank(dataset, rank, world) as loader:
            elements = iter(loader)
            given.append(rows_of([next(elements) for _ in range(batches)]))
            states.append(json_state(loader))
    return given, states


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "cache"])  # of which one process has one
def test_the_place_in_the_stream_is_the_same_on_every_rank(name: str) -> None:
    _, states = save_after(PIPELINES[name]().batch(2), 4, 5)
    for state in states:
        del state["stream"], state["check"]  # of the rank's own rows
    assert all(state == states[0] for state in states)


@pytest.mark.parametrize("world", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("name", PIPELINES)
def test_r28_what_eight_ranks_left_is_given_in_the_same_order_by_any_number(name: str, world: int) -> None:
    whole = rows_of(read(PIPELINES[name](), 0, 1))
    given, states = save_after(PIPELINES[name]().batch(1), 8, 5)
    assert in_turn(given) == whole[:40]
    last = read_all(PIPELINES[name]().batch(1), world, states[world % 8], Sharing(tail="repeat"))
    assert in_turn([rows_of(batches) for batches in last])[:80] == whole[40:]


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("batches", range(8))
def test_a_rank_goes_on_after_any_batch(batches: int, tail: Any) -> None:
    dataset = Dataset.range(17).shuffle(5).map(lambda row: {"row": row}).batch(2).repeat(2)
    sharing = Sharing(tail=tail)
    for rank in range(3):
        whole = read(dataset, rank, 3, sharing=sharing)
        with open_rank(dataset, rank, 3, sharing=sharing) as loader:
            elements = iter(loader)
            for _ in range(min(batches, len(whole))):
                next(elements)
            state = json_state(loader)
        rest = read(dataset, rank, 3, state, sharing)
        assert [str(batch) for batch in rest] == [str(batch) for batch in whole[batches:]]


def test_a_state_of_one_rank_is_refused_by_another_where_rows_come_as_they_are_ready() -> None:
    dataset = Dataset.range(40).map(doubled, ordered=False).batch(2)
    with open_rank(dataset, 1, 4) as loader:
        next(iter(loader))
        state = json_state(loader)
    read(dataset, 1, 4, state)
    for rank, world in [(0, 4), (1, 2), (0, 1)]:
        with pytest.raises(StateMismatchError, match=r"saved by share 1 of 4 by row.*map has ordered=False"):
            open_rank(dataset, rank, world, state)


def test_states_saved_without_an_order_are_refused_by_other_ranks_that_are_in_order() -> None:
    states = []
    for rank in range(2):
        with open_rank(Dataset.range(40).map(doubled, ordered=False), rank, 2) as loader:
            next(iter(loader))
            states.append(json_state(loader))
    in_order = Dataset.range(40).map(doubled)
    read(in_order, 0, 2, states[0])
    for given, rank, world in [(states[0], 1, 2), (states[0], 0, 1), (states, 0, 1), (states, 0, 2)]:
        with pytest.raises(StateMismatchError, match=r"saved by share . of 2 by row.*a stage had ordered=False"):
            open_rank(in_order, rank, world, given)


# -- by file

ROWS_PER_FILE = [3, 5, 4, 2, 7]


@pytest.fixture
def files(tmp_path: Path) -> str:
    for number, rows in enumerate(ROWS_PER_FILE):
        (tmp_path / f"{number}.txt").write_text("".join(f"{number}-{row}\n" for row in range(rows)))
    return str(tmp_path / "*.txt")


def lines(pattern: str, **options: Any) -> Dataset[str]:
    return Dataset.from_text(pattern, **options)


BY_FILE = Sharing(policy="file")


def test_by_file_every_file_is_read_by_one_rank(files: str) -> None:
    first, second = read_all(lines(files, shuffle_shards=True), 2, sharing=BY_FILE)
    of_first, of_second = ({line.split("-")[0] for line in part} for part in (first, second))
    assert not of_first & of_second
    assert len(of_first | of_second) == len(ROWS_PER_FILE)
    assert len(set(first + second)) == sum(ROWS_PER_FILE)


def test_by_file_names_are_shared_where_files_are_opened_by_a_function(files: str) -> None:
    dataset = Dataset.list_files(files).flat_map(lines)
    first, second = read_all(dataset, 2, sharing=BY_FILE)
    assert sorted(first + second) == sorted(read(dataset, 0, 1))
    assert {line[0] for line in first} == {"0", "2", "4"}


def test_by_file_more_ranks_than_files_are_an_error_at_open(files: str) -> None:
    with pytest.raises(RankError, match="5 files cannot be shared by 6 ranks"):
        open_rank(lines(files), 0, 6, sharing=BY_FILE)


def test_by_file_a_state_fits_the_rank_that_saved_it_alone(files: str) -> None:
    with open_rank(lines(files), 1, 2, sharing=BY_FILE) as loader:
        next(iter(loader))
        state = json_state(loader)
    assert len(read(lines(files), 1, 2, state, BY_FILE)) == 5 + 2 - 1
    for rank, world, sharing in [(0, 2, BY_FILE), (1, 3, BY_FILE), (0, 1, BY_FILE), (1, 2, Sharing())]:
        with pytest.raises(StateMismatchError, match="saved by share 1 of 2 by file"):
            open_rank(lines(files), rank, world, state, sharing)


def test_by_file_a_single_process_has_the_same_order_as_by_row(files: str) -> None:
    with open_rank(lines(files), 0, 1, sharing=BY_FILE) as loader:
        next(iter(loader))
        state = json_state(loader)
    assert sum(map(len, read_all(lines(files), 2, state))) == sum(ROWS_PER_FILE) - 1
    with pytest.raises(StateMismatchError, match="0 of 1 by row, but this loader is share 0 of 2 by file"):
        open_rank(lines(files), 0, 2, state, BY_FILE)


COUNTS = [3 + 4 + 7, 5 + 2]


@pytest.mark.parametrize("tail", TAILS)
def test_by_file_known_counts_make_ranks_equal(files: str, tail: Any) -> None:
    sharing = Sharing(policy="file", tail=tail, counts=COUNTS)
    ranks = read_all(lines(files).map(lambda line: {"line": line}).batch(2), 2, sharing=sharing)
    assert {len(batches) for batches in ranks} == {4 if tail == "drop" else 7}
    own = [[line for batch in batches for line in batch["line"][batch.get("valid", slice(None))]] for batches in ranks]
    if tail == "drop":
        assert [len(rank) for rank in own] == [7, 7]
    else:
        assert len(set(own[0] + own[1])) == sum(ROWS_PER_FILE)
        assert [len(rank) for rank in own] == ([14, 7] if tail == "pad" else [14, 14])


def test_by_file_fewer_rows_than_were_said_are_an_error(files: str) -> None:
    sharing = Sharing(policy="file", tail="drop", counts=[20, 15])
    with pytest.raises(RankError, match="have 20 rows according to counts=, but 14 rows were read"):
        read(lines(files), 0, 2, sharing=sharing)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("given", range(15))
def test_by_file_a_rank_goes_on_after_any_row(files: str, tail: Any, given: int) -> None:
    sharing = Sharing(policy="file", tail=tail, counts=COUNTS)
    whole = read(lines(files, cycle_length=2), 1, 2, sharing=sharing)
    with open_rank(lines(files, cycle_length=2), 1, 2, sharing=sharing) as loader:
        elements = iter(loader)
        for _ in range(min(given, len(whole))):
            next(elements)
        state = json_state(loader)
    assert read(lines(files, cycle_length=2), 1, 2, state, sharing) == whole[given:]


class Vote:
    """Asks all ranks of this process, as a collective operation asks those of several."""

    def __init__(self, ranks: int) -> None:
        self._barrier = Barrier(ranks, timeout=20)
        self._said: list[bool] = []
        self.rounds = 0

    def __call__(self, mine: bool) -> bool:
        self._said.append(mine)
        self._barrier.wait()
        everyone = all(self._said[-self._barrier.parties :])
        if self._barrier.wait() == 0:
            self.rounds += 1
        self._barrier.wait()
        return everyone


@pytest.mark.parametrize("tail", TAILS)
def test_by_file_ranks_agree_on_every_batch(files: str, tail: Any) -> None:
    sharing = Sharing(policy="file", tail=tail, consensus=Vote(2))
    dataset = lines(files).batch(3)
    loaders = [open_rank(dataset, rank, 2, sharing=sharing) for rank in range(2)]
    ranks: list[list[Any]] = [[], []]
    running = [iter(loader) for loader in loaders]
    for row in range(20):
        for rank, elements in enumerate(running):
            batch = next(elements, None)
            if batch is not None:
                assert len(ranks[rank]) == row
                ranks[rank].append(batch)
    for loader in loaders:
        loader.close()
    assert [len(batches) for batches in ranks] == ([3, 3] if tail == "drop" else [5, 5])
    if tail == "pad":
        assert [flags.all() for _, flags in ranks[1]] == [True, True, True, False, False]
        assert {len(element) == len(flags) for element, flags in ranks[0] + ranks[1]} == {True}
    if tail == "repeat":
        assert [batch.tolist() for batch in ranks[1][2:]] == [["3-1"]] * 3


def test_by_file_ranks_without_rows_cannot_fill_up(tmp_path: Path) -> None:
    (tmp_path / "0.txt").write_text("a\n")
    (tmp_path / "1.txt").write_text("")
    sharing = Sharing(policy="file", tail="repeat", consensus=lambda mine: False)
    with pytest.raises(RankError, match="have no rows"):
        read(lines(str(tmp_path / "*.txt")), 1, 2, sharing=sharing)
