"""Workers of PyTorch's DataLoader: together they give each element of their rank once, and each goes on by itself."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_worker import IndexedDataset, fake_data, in_worker

import aiostream_data as asd
from aiostream_data.errors import ArgumentTypeError, DamagedStateError, PlanError, RankError, StateMismatchError
from aiostream_data.ranks.loader_workers import LoaderWorkers, find_workers

ROWS = 103
RANGE: Any = asd.Dataset.range(ROWS)


def value(x: Any) -> Any:
    return {"n": int(x), "x": np.full(2, x, np.float32)}


async def later(x: Any) -> Any:
    return x


PLANS: dict[str, Callable[[], Any]] = {
    "rows": lambda: RANGE,
    "map": lambda: RANGE.map(value),
    "batch": lambda: RANGE.map(value).batch(8),
    "batch and drop": lambda: RANGE.map(value).batch(8, drop_remainder=True),
    "shuffle": lambda: RANGE.shuffle(20).map(value).batch(8),
    "shuffle without a size": lambda: RANGE.shuffle().batch(8),
    "shuffle of batches": lambda: RANGE.batch(8).shuffle(4),
    "coroutines": lambda: RANGE.map(later).batch(8),
    "repeat": lambda: RANGE.batch(8).repeat(2),
    "repeat below": lambda: RANGE.shuffle(9).repeat(2).batch(8),
    "take": lambda: RANGE.batch(8).take(7),
    "filter": lambda: RANGE.filter(lambda x: bool(x % 3)).batch(8),
    "batch of batches": lambda: RANGE.batch(4, drop_remainder=True).batch(3),
    "padded": lambda: RANGE.map(lambda x: np.arange(int(x) % 5)).padded_batch(8),
    "buckets": lambda: RANGE.map(lambda x: np.arange(int(x) % 5)).bucket_by_sequence_length(
        len, bucket_boundaries=[2, 4], bucket_batch_sizes=[3, 4, 5]
    ),
    "unbatch": lambda: RANGE.batch(8).unbatch(),
    "flat_map": lambda: RANGE.flat_map(lambda x: range(int(x) % 4)).batch(8),
    "enumerate": lambda: RANGE.enumerate().batch(8),
    "prefetch": lambda: RANGE.map(value).batch(8).prefetch(3),
    "skipping": lambda: RANGE.map(refuse_sevens, on_error="skip").batch(8),
    "replacing": lambda: RANGE.map(refuse_sevens, on_error=asd.Replace(-1)).batch(8),
    "fewer than workers": lambda: RANGE.batch(50),
    "one": lambda: RANGE.take(1),
    "none": lambda: RANGE.take(0),
}


def refuse_sevens(x: Any) -> int:
    if x % 7 == 0:
        raise ValueError("a seven")
    return int(x)


def plain(element: Any) -> Any:
    if isinstance(element, dict):
        return {name: plain(part) for name, part in element.items()}
    if isinstance(element, tuple):
        return tuple(map(plain, element))
    return element.tolist() if isinstance(element, (np.ndarray, np.generic)) else element


def given(dataset: Any, **options: Any) -> list[Any]:
    with dataset.open(**options) as loader:
        return [plain(element) for element in loader]


def of_workers(dataset: Any, count: int, **options: Any) -> list[list[Any]]:
    """Return what each worker of a DataLoader gives."""
    found = []
    for number in range(count):
        with in_worker(number, count):
            found.append(given(dataset, **options))
    return found


def in_turn(workers: list[list[Any]]) -> list[Any]:
    """Return what a DataLoader without batches of its own gives: one element of each worker at a time."""
    nothing = object()
    rounds = zip_longest(*workers, fillvalue=nothing)
    return [element for element in chain.from_iterable(rounds) if element is not nothing]


def rows_of(elements: list[Any]) -> list[int]:
    """Return the numbers in elements, ascending."""
    return sorted(chain.from_iterable(_numbers(element) for element in elements))


def _numbers(element: Any) -> list[int]:
    if isinstance(element, dict):
        return _numbers(element["n"])
    return element if isinstance(element, list) else [element]


# -- each element once


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("name", PLANS)
def test_workers_give_in_turn_what_one_process_gives(name: str, count: int) -> None:
    dataset = PLANS[name]()
    assert in_turn(of_workers(dataset, count, seed=3)) == given(dataset, seed=3)


@pytest.mark.parametrize("how", ["opened", "iterated"])
def test_workers_without_a_seed_have_one_order_and_another_one_in_every_epoch_of_the_dataloader(how: str) -> None:
    dataset = RANGE.shuffle(50).batch(8)
    orders = []
    for base_seed in (1, 2):
        workers = []
        for number in range(3):
            with in_worker(number, 3, base_seed=base_seed):
                mine = pickle.loads(pickle.dumps(dataset))
                workers.append(given(mine) if how == "opened" else [plain(element) for element in mine])
        orders.append(list(chain.from_iterable(in_turn(workers))))
        assert sorted(orders[-1]) == list(range(ROWS))
    assert orders[0] != orders[1]


def test_workers_that_stay_count_the_epochs_of_a_dataset_that_is_iterated() -> None:
    copies = [pickle.loads(pickle.dumps(RANGE.shuffle(50))) for _ in range(2)]
    orders = []
    for _ in range(2):
        workers = []
        for number, copied in enumerate(copies):
            with in_worker(number, 2):
                workers.append(list(copied))
        orders.append(in_turn(workers))
        assert sorted(orders[-1]) == list(range(ROWS))
    assert orders[0] != orders[1]


def test_functions_of_rows_run_for_the_rows_of_the_worker_alone() -> None:
    called: list[int] = []
    dataset = RANGE.shuffle(20, seed=1).map(called.append).batch(8)
    with in_worker(1, 2):
        batches = given(dataset)
    assert len(called) == sum(map(len, batches)) < ROWS


def test_a_worker_that_is_the_only_one_gives_everything() -> None:
    with in_worker(0, 1):
        assert given(RANGE) == list(range(ROWS))


def test_a_dataset_with_indices_is_shared_by_the_dataloader_and_not_again() -> None:
    with in_worker(1, 2, dataset=IndexedDataset()):
        assert given(RANGE) == list(range(ROWS))
    assert find_workers({"torch.utils.data": fake_data(None)}) == LoaderWorkers()


def test_pytorch_is_not_imported() -> None:
    loaded = "torch" in sys.modules
    assert find_workers() == LoaderWorkers()
    given(RANGE)
    assert ("torch" in sys.modules) is loaded


def test_origins_are_those_of_one_process() -> None:
    dataset = RANGE.shuffle(20).batch(8)
    with dataset.open(seed=1) as loader:
        wanted = [[origin.index for origin in loader.origins(batch)] for batch in loader]
    for number in range(2):
        with in_worker(number, 2), dataset.open(seed=1) as loader:
            assert [[origin.index for origin in loader.origins(batch)] for batch in loader] == wanted[number::2]


def test_a_chain_in_a_subprocess_is_shared_below() -> None:
    dataset = RANGE.shuffle(20).map(value).batch(8)
    assert in_turn(of_workers(dataset.in_subprocess(), 2, seed=3)) == given(dataset, seed=3)


def test_a_chain_in_several_subprocesses_is_shared_below() -> None:
    dataset = RANGE.map(value).batch(8)
    assert in_turn(of_workers(dataset.in_subprocess(2), 2, seed=3)) == given(dataset, seed=3)


# -- an order of its own


def test_a_map_in_any_order_runs_for_the_rows_of_the_worker() -> None:
    workers = of_workers(RANGE.map(lambda x: int(x), ordered=False, concurrency=2).batch(8), 3)
    assert rows_of(in_turn(workers)) == list(range(ROWS))


def test_stages_in_any_order_are_free_to_be_so_behind_the_rows_of_the_worker() -> None:
    workers = of_workers(RANGE.shuffle(20).map(value).batch(8), 3, deterministic=False)
    assert rows_of(in_turn(workers)) == list(range(ROWS))


def test_a_stage_in_any_order_below_what_workers_share_is_refused() -> None:
    dataset = RANGE.map(lambda x: int(x), ordered=False).shuffle(9)
    with in_worker(0, 2), pytest.raises(PlanError, match=r"map with ordered=False has another order in every worker"):
        given(dataset)


# -- ranks


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    def launch(rank: int, world_size: int) -> None:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world_size))

    return launch


Launch = Callable[[int, int], None]


@pytest.mark.parametrize("told", ["found", "given and found"])
@pytest.mark.parametrize(("ranks", "workers"), [(2, 2), (3, 2), (2, 3), (4, 2)])
@pytest.mark.parametrize("tail", ["drop", "repeat", "pad"])
def test_workers_share_what_their_rank_gets(launched: Launch, told: str, ranks: int, workers: int, tail: Any) -> None:
    dataset = RANGE.shuffle(20, seed=1).map(lambda x: {"n": int(x)}).batch(4)
    everything = []
    for rank in range(ranks):
        launched(rank, ranks)
        options = {"rank": rank, "world_size": ranks} if told.startswith("given") else {}
        mine = in_turn(of_workers(dataset, workers, tail=tail, **options))
        assert mine == given(dataset, rank=rank, world_size=ranks, tail=tail)
        everything += mine
    rows = rows_of(everything)
    assert len(rows) - len(set(rows)) == (0 if tail == "drop" else -ROWS % ranks)
    assert len(set(rows)) == (ROWS - ROWS % ranks if tail == "drop" else ROWS)


def test_ranks_that_nobody_launched_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rank in range(3):
        found += in_turn(of_workers(RANGE, 2, rank=rank, world_size=3, tail="pad"))
    assert sorted(n for n, valid in found if valid) == list(range(ROWS))


def test_the_only_rank_shares_with_its_workers() -> None:
    assert in_turn(of_workers(RANGE, 2, rank=0, world_size=1)) == list(range(ROWS))


def test_numbers_that_may_count_workers_already_are_refused_by_one_worker_and_by_all_if_they_do() -> None:
    def refused(count: int, rank_of: Callable[[int], int]) -> list[str]:
        found = []
        for number in range(count):
            with in_worker(number, count):
                try:
                    given(RANGE, rank=rank_of(number), world_size=4)
                except PlanError as error:
                    found.append(str(error))
        return found

    [one] = refused(2, lambda number: 3)
    assert "this is worker 1 of 2 of a DataLoader, and rank=3 and world_size=4 may already count its workers" in one
    assert "worker=(0, 1) to open() if it does, or worker=(1, 2) if it does not" in one
    assert len(refused(2, lambda number: 1 * 2 + number)) == 2


def test_whether_numbers_count_workers_can_be_said() -> None:
    by_hand, by_rank = [], []
    for number in range(2):
        with in_worker(number, 2):
            by_hand.append(given(RANGE, rank=number, world_size=2, tail="drop", worker=(0, 1)))
            by_rank.append(given(RANGE, rank=0, world_size=2, tail="drop", worker=(number, 2)))
    assert rows_of(in_turn(by_hand)) == list(range(ROWS - 1))
    assert in_turn(by_rank) == list(range(0, ROWS - 1, 2))


def test_workers_can_be_given_without_pytorch() -> None:
    dataset = RANGE.shuffle(50).batch(8)
    workers = [given(dataset, worker=(number, 3)) for number in range(3)]
    assert sorted(chain.from_iterable(in_turn(workers))) == list(range(ROWS))


@pytest.mark.parametrize("worker", [3, (1,), (2, 2), (-1, 2), (0, 0), ("a", 2), (0, 1.5)])
def test_what_is_no_worker_is_refused(worker: Any) -> None:
    with pytest.raises((PlanError, ArgumentTypeError), match="worker"):
        RANGE.open(worker=worker)


# -- shard() by hand


def test_a_shard_that_counts_the_workers_is_all_there_is_to_it() -> None:
    for ranks in (1, 2):
        found = []
        for rank in range(ranks):
            for number in range(2):
                with in_worker(number, 2):
                    found.append(given(RANGE.shuffle(50).shard(2 * ranks, 2 * rank + number)))
        assert rows_of(in_turn(found)) == list(range(ROWS))


def test_a_shard_that_does_not_count_the_workers_is_refused_by_one_of_them() -> None:
    for shards, index in ((2, 0), (2, 1), (3, 1), (4, 2)):
        errors = []
        for number in range(2):
            with in_worker(number, 2):
                try:
                    given(RANGE.shard(shards, index))
                except PlanError as error:
                    errors.append(str(error))
        assert errors
        assert f"shard({shards}, {index}) may already count its workers" in errors[0]
    workers = []
    for number in range(2):
        with in_worker(number, 2):
            workers.append(given(RANGE.shard(2, 0), worker=(number, 2)))
    assert in_turn(workers) == list(range(0, ROWS, 2))


# -- files


@pytest.fixture
def files(tmp_path: Path) -> str:
    for number in range(6):
        lines = "".join(f"{number * 10 + line}\n" for line in range(7))
        (tmp_path / f"{number}.txt").write_text(lines)
    return str(tmp_path / "*.txt")


@pytest.mark.parametrize("policy", ["row", "file"])
def test_rows_of_files_are_given_once(files: str, policy: Any) -> None:
    dataset = asd.Dataset.from_text(files).shuffle(10).map(int).batch(4)
    wanted = sorted(number * 10 + line for number in range(6) for line in range(7))
    assert rows_of(in_turn(of_workers(dataset, 3, policy=policy))) == wanted
    found = []
    for rank in range(2):
        workers = [given(dataset, rank=rank, world_size=2, worker=(number, 3), policy=policy) for number in range(3)]
        found += in_turn(workers)
    assert rows_of(found) == wanted


def test_fewer_files_than_workers_are_an_error(files: str) -> None:
    with in_worker(0, 7), pytest.raises(RankError, match="6 files cannot be shared by 7 ranks"):
        given(asd.Dataset.from_text(files), policy="file")


def test_counts_of_files_are_those_of_all_workers(files: str) -> None:
    dataset = asd.Dataset.from_text(files).map(int)
    assert len(rows_of(in_turn(of_workers(dataset, 3, policy="file", tail="drop", counts=[14] * 3)))) == 42
    with in_worker(0, 3), pytest.raises(PlanError, match=r"one number per share of the files \(3\), got 1"):
        given(dataset, policy="file", tail="drop", counts=[42])


def test_what_every_rank_calls_once_is_refused_in_workers(files: str) -> None:
    dataset = asd.Dataset.from_text(files)
    with in_worker(0, 2):
        with pytest.raises(
            RankError, match=r"consensus= must be called once per rank, but this process is worker 0 of 2"
        ):
            given(dataset, policy="file", tail="drop", consensus=bool)
        with pytest.raises(RankError, match="broadcast= must be called once per rank"):
            given(dataset, broadcast=lambda message: message or b"")


# -- states


@pytest.mark.parametrize("name", ["rows", "batch", "batch and drop", "shuffle", "repeat", "flat_map", "buckets"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_each_worker_goes_on_from_its_own_state_after_any_element(name: str, ranks: int) -> None:
    dataset = PLANS[name]()
    options: dict[str, Any] = {"rank": ranks - 1, "world_size": ranks}
    for number in range(3):
        whole = given(dataset, seed=3, worker=(number, 3), **options)
        for taken in (0, 1, 2, len(whole) // 2, max(0, len(whole) - 1), len(whole)):
            with dataset.open(seed=3, worker=(number, 3), **options) as loader:
                first = [plain(element) for element in islice(loader, taken)]
                state = json.loads(json.dumps(loader.state_dict()))
            with dataset.open(state, worker=(number, 3), **options) as loader:
                second = [plain(element) for element in islice(loader, 1)]
                state = loader.state_dict()
            assert first + second + given(dataset, state=state, worker=(number, 3), **options) == whole


def state_of(dataset: Any, taken: int = 2, **options: Any) -> Any:
    with dataset.open(seed=3, **options) as loader:
        list(islice(loader, taken))
        return loader.state_dict()


@pytest.mark.parametrize(
    ("saved", "opened"),
    [
        ({"worker": (0, 2)}, {"worker": (1, 2)}),
        ({"worker": (0, 2)}, {"worker": (0, 3)}),
        ({"worker": (0, 2)}, {}),
        ({}, {"worker": (0, 2)}),
        ({"worker": (0, 2), "rank": 0, "world_size": 2}, {"worker": (0, 2), "rank": 1, "world_size": 2}),
        ({"worker": (0, 2), "rank": 0, "world_size": 2}, {"worker": (0, 2), "rank": 0, "world_size": 3}),
    ],
)
def test_a_state_of_another_worker_is_refused(saved: Any, opened: Any) -> None:
    state = state_of(RANGE.batch(8), **saved)
    with pytest.raises(StateMismatchError, match=r"saved by worker \d of \d of rank .* but this is worker") as caught:
        given(RANGE.batch(8), state=state, **opened)
    assert "the same numbers of workers and ranks" in str(caught.value)


def test_the_states_of_workers_are_no_list_of_ranks() -> None:
    states = [state_of(RANGE.batch(8), worker=(number, 2)) for number in range(2)]
    with pytest.raises(StateMismatchError, match="worker"):
        given(RANGE.batch(8), state=states, worker=(0, 2))


@pytest.mark.parametrize("worker", [None, [0], [2, 2], [-1, 2], [0, "2"], "0"])
def test_a_damaged_worker_in_a_state_is_told(worker: Any) -> None:
    from aiostream_data.state_checksum import checksum_of_state

    state = {**state_of(RANGE, worker=(0, 2))}
    del state["check"]
    state["stream"] = {**state["stream"], "worker": worker}
    with pytest.raises(DamagedStateError, match=r'state\["stream"\]\["worker"\]'):
        given(RANGE, state={**state, "check": checksum_of_state(state)}, worker=(0, 2))


@pytest.mark.parametrize("row", [None, -1, 16, "1"])
def test_a_damaged_place_of_a_worker_is_told(row: Any) -> None:
    from aiostream_data.state_checksum import checksum_of_state

    state = json.loads(json.dumps(state_of(RANGE.batch(8), worker=(0, 2))))
    del state["check"]
    assert state["position"]["row"] == 8
    state["position"]["row"] = row
    with pytest.raises(DamagedStateError, match=r'state\["position"\]\["row"\]'):
        given(RANGE.batch(8), state={**state, "check": checksum_of_state(state)}, worker=(0, 2))


def test_elements_and_rows_are_left_out_of_a_worker_that_runs() -> None:
    dataset = RANGE.map(lambda x: int(x))
    with in_worker(1, 2), dataset.open() as loader:
        first = [next(loader) for _ in range(3)]
        loader.skip(2)
        second = [next(loader) for _ in range(2)]
        loader.block([loader.origins()[0]])
        assert first + second == [1, 3, 5, 11, 13]


# -- seeds of ranks


def test_ranks_that_iterate_a_data_set_have_one_order(launched: Launch) -> None:
    found: list[list[int]] = [[], []]
    for rank in range(2):
        launched(rank, 2)
        copied = pickle.loads(pickle.dumps(RANGE.shuffle(50)))
        for epoch in range(2):
            found[epoch] += list(copied)
    assert [len(set(rows)) for rows in found] == [ROWS - 1] * 2
