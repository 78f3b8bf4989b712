"""in_subprocess(): elements, order, origins and hash are those of the chain without it, for any number of workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import subprocess_functions as functions
from leaks import leaves_nothing
from thread_child import ThreadChild

from aiostream_data import Dataset, FixedLen, TFRecordWriter, encode_example
from aiostream_data._engine.processes import process_handle as hosting_process
from aiostream_data.errors import CardinalityError, PlanError, RecordError, StageBuildError, WorkerDiedError
from aiostream_data.testing.comparing import same

WORKERS = (1, 2, 3)

CHAINS: dict[str, Callable[[Path], Dataset[Any]]] = {
    "rows": lambda _: Dataset.range(50),
    "nothing": lambda _: Dataset.range(0),
    "fewer elements than workers": lambda _: Dataset.range(1).map(functions.squared),
    "a shuffle and batches": lambda _: Dataset.range(50).shuffle(16).map(functions.with_draw).batch(8),
    "full batches only": lambda _: Dataset.range(50).shuffle(16).map(functions.with_draw).batch(8, drop_remainder=True),
    "batches of batches": lambda _: Dataset.range(50).batch(4).batch(3),
    "padded batches": lambda _: Dataset.range(50).map(np.arange).padded_batch(7),
    "a filter": lambda _: Dataset.range(50).filter(functions.is_even).map(functions.squared),
    "a shuffle of batches": lambda _: Dataset.range(50).batch(4).shuffle(3),
    "epochs": lambda _: Dataset.range(10).shuffle(4).repeat(3).map(functions.with_draw).batch(4),
    "batches of epochs": lambda _: Dataset.range(10).shuffle(4).batch(4).repeat(3),
    "epochs of data in memory": lambda _: Dataset.range(6).shuffle(6).map(str).repeat(3),
    "large batches": lambda _: Dataset.range(40).map(functions.image).batch(16),
    "records": lambda f: Dataset.from_tfrecord(f"{f}/*.tfrecord", cycle_length=2).shuffle(8).batch(5),
    "parsed records": lambda f: (
        Dataset.from_tfrecord(f"{f}/*.tfrecord", shuffle_shards=True)
        .parse_example({"n": FixedLen((), np.int64), "name": FixedLen((), bytes)})
        .batch(6)
    ),
    "two data sets": lambda _: Dataset.zip(Dataset.range(20).shuffle(5), Dataset.range(30).map(functions.squared)),
    "unbatched": lambda _: Dataset.range(20).batch(3).unbatch().enumerate(),
    "cached": lambda _: Dataset.range(9).map(functions.with_draw).cache().repeat(2),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    for file, rows in enumerate((7, 0, 12, 4)):
        with TFRecordWriter(folder / f"{file}.tfrecord") as writer:
            for row in range(rows):
                writer.write(encode_example({"n": 100 * file + row, "name": f"{file}:{row}"}))
    return folder


@pytest.fixture
def threads_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads stand in for processes, which take half a second each to start."""
    monkeypatch.setattr(hosting_process, "Child", ThreadChild)


def read(dataset: Dataset[Any], **options: Any) -> tuple[list[Any], str]:
    """Return the elements of a data set, and the hash of its stream."""
    with dataset.open(**{"seed": 7, **options}) as loader:
        return list(loader), loader.stream_hash


def assert_same(expected: tuple[list[Any], str], found: tuple[list[Any], str]) -> None:
    assert len(found[0]) == len(expected[0])
    assert all(map(same, expected[0], found[0]))
    assert found[1] == expected[1]


@pytest.mark.usefixtures("threads_host")
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("chain", CHAINS)
def test_elements_order_and_hash_are_those_of_the_chain_without_it(chain: str, workers: int, folder: Path) -> None:
    dataset = CHAINS[chain](folder)
    with leaves_nothing():
        assert_same(read(dataset), read(dataset.in_subprocess(workers)))


@pytest.mark.usefixtures("threads_host")
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(
    "follow",
    [
        lambda d: d.map(functions.with_draw).shuffle(6),
        lambda d: d.shuffle(),
        lambda d: d.batch(4).prefetch(2),
        lambda d: d.repeat(3),
        lambda d: d.take(7),
        lambda d: d.enumerate(),
        lambda d: d.cache().repeat(2),
        lambda d: Dataset.zip(d, Dataset.range(40).shuffle(7)),
        lambda d: Dataset.zip(Dataset.range(40).shuffle(7), d),
        lambda d: d.concatenate(Dataset.range(5)),
        lambda d: Dataset.sample_from([d, Dataset.range(100, 140)], [0.5, 0.5]),
    ],
    ids=[
        "map, shuffle",
        "shuffle()",
        "batch",
        "repeat",
        "take",
        "enumerate",
        "cache",
        "zip",
        "zipped",
        "concat",
        "mix",
    ],
)
def test_whatever_follows_gets_what_it_would_have_got(
    follow: Callable[[Dataset[Any]], Dataset[Any]], workers: int
) -> None:
    before = Dataset.range(25).shuffle(5).map(functions.squared)
    assert_same(read(follow(before)), read(follow(before.in_subprocess(workers))))


@pytest.mark.usefixtures("threads_host")
def test_every_epoch_has_an_order_of_its_own_and_the_same_as_without_it() -> None:
    dataset = Dataset.range(12).shuffle(12).in_subprocess()
    plain = Dataset.range(12).shuffle(12)
    orders = [read(dataset, epoch=epoch)[0] for epoch in range(3)]
    assert orders == [read(plain, epoch=epoch)[0] for epoch in range(3)]
    assert len(set(map(tuple, orders))) == 3


@pytest.mark.usefixtures("threads_host")
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_the_same_rows_as_without_it(workers: int, world_size: int) -> None:
    plain = Dataset.range(40).shuffle(9).map(functions.squared).batch(4)
    for rank in range(world_size):
        options = {"rank": rank, "world_size": world_size, "tail": "pad"}
        assert_same(read(plain, **options), read(plain.in_subprocess(workers), **options))


@pytest.mark.usefixtures("threads_host")
def test_in_any_order_every_element_comes_once() -> None:
    dataset = Dataset.range(60).map(functions.squared, concurrency=4)
    for workers in WORKERS:
        elements, _ = read(dataset.in_subprocess(workers), deterministic=False)
        assert sorted(elements) == [number**2 for number in range(60)]
    unordered = Dataset.range(60).map(functions.squared, concurrency=4, ordered=False)
    assert sorted(read(unordered.in_subprocess())[0]) == [number**2 for number in range(60)]


@pytest.mark.usefixtures("threads_host")
def test_what_is_skipped_and_blocked_is_what_it_would_be_without(folder: Path) -> None:
    dataset = CHAINS["records"](folder)
    block = [(f"{folder}/2.tfrecord", 3)]
    for chain in (dataset, dataset.in_subprocess(), dataset.in_subprocess(2)):
        with chain.open(seed=7, block=block, skip=[(1, 3)]) as loader:
            first = next(iter(loader))
            loader.skip(1)
            found = [first, *loader]
        if chain is dataset:
            expected = found
        assert len(found) == len(expected)
        assert all(map(same, expected, found))


@pytest.mark.usefixtures("threads_host")
@pytest.mark.parametrize("workers", WORKERS)
def test_elements_are_given_again_when_asked_for(workers: int, folder: Path) -> None:
    with CHAINS["records"](folder).in_subprocess(workers).open(seed=7) as loader:
        elements = list(loader)
        with loader.replay(1, 3) as again:
            assert all(map(same, elements[1:3], again))


@pytest.mark.usefixtures("threads_host")
@pytest.mark.parametrize("workers", WORKERS)
def test_origins_name_files_records_and_offsets_and_fetch_makes_the_row_again(workers: int, folder: Path) -> None:
    dataset = CHAINS["records"](folder)
    plain, hosted = dataset.open(seed=7), dataset.in_subprocess(workers).open(seed=7)
    with plain, hosted:
        for expected, found in zip(plain, hosted, strict=True):
            assert same(expected, found)
            origins = hosted.origins()
            assert [(o.url, o.index, o.offset, o.epoch) for o in origins] == [
                (o.url, o.index, o.offset, o.epoch) for o in plain.origins()
            ]
    assert dataset.in_subprocess(workers).fetch(origins[0]) == found[0]
    assert dataset.fetch(origins[-1]) == found[-1]


@pytest.mark.usefixtures("threads_host")
@pytest.mark.parametrize("workers", WORKERS)
def test_origins_name_the_epochs_of_data_in_memory(workers: int, folder: Path) -> None:
    with CHAINS["epochs of data in memory"](folder).in_subprocess(workers).open() as loader:
        epochs = [origin.epoch for _ in loader for origin in loader.origins()]
    assert epochs == [0] * 6 + [1] * 6 + [2] * 6


@pytest.mark.usefixtures("threads_host")
@pytest.mark.parametrize("workers", WORKERS)
def test_the_report_shows_the_stages_of_the_process_before_the_one_that_reads_it(workers: int, folder: Path) -> None:
    dataset = CHAINS["records"](folder).in_subprocess(workers).map(len)
    with dataset.open(memory_limit="64MB") as loader:
        count = len(list(loader))
        stats = loader.stats()
    names = [stage.name for stage in stats.stages]
    assert names[0] == "in_subprocess/read_tfrecord"
    assert names.index("in_subprocess/batch") < names.index("in_subprocess") < names.index("map")
    rows = {stage.name: stage.rows for stage in stats.stages}
    assert rows["in_subprocess/read_tfrecord"] == 23 * workers
    assert rows["in_subprocess/batch"] == rows["in_subprocess"] == rows["map"] == count
    assert stats.memory.limit == 64 << 20
    assert stats.memory.holders["in_subprocess/ranges"][1] > 0
    assert stats.storage["requests"] > 0
    assert "in_subprocess/shuffle" in str(loader.report())


def test_explain_says_what_several_workers_share_and_how_much_each_may_hold() -> None:
    rows = Dataset.range(50).shuffle(16)
    said = rows.map(functions.squared).batch(8).in_subprocess(2).explain(memory_limit="64MB")
    assert "2 processes of in_subprocess may hold 24 MiB each" in said
    assert "each process runs all up to shuffle" in said
    assert "each process runs all of it" in rows.in_subprocess(3).explain()
    assert "each process" not in rows.in_subprocess().explain()


@pytest.mark.usefixtures("threads_host")
def test_weights_of_a_mixture_in_a_process_change_at_the_row_asked_for_and_are_in_the_state() -> None:
    def mixture() -> Dataset[Any]:
        return Dataset.sample_from({"a": Dataset.range(5000), "b": Dataset.range(10_000, 15_000)}, [0.9, 0.1])

    def read_from_row(dataset: Dataset[Any]) -> list[int]:
        with dataset.open(seed=7) as loader:
            elements = iter(loader)
            found = list(islice(elements, 10))
            assert loader.set_weights([0.1, 0.9], from_row=4000) == 4000
            found += islice(elements, 10)
            state = loader.state_dict()
            found += islice(elements, 4500)
        with dataset.open(state=state) as loader:
            assert list(islice(loader, 4500)) == found[20:]
        return found

    assert read_from_row(mixture().in_subprocess()) == read_from_row(mixture())
    with mixture().in_subprocess(2).open() as loader:
        next(iter(loader))
        with pytest.raises(PlanError, match="several workers"):
            loader.set_weights([0.5, 0.5])


# -- errors


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_once_as_it_was_raised_with_notes_of_where(workers: int) -> None:
    dataset = Dataset.range(30).map(functions.refused_13).batch(4).in_subprocess(workers)
    with leaves_nothing(), dataset.open() as loader:
        with pytest.raises(ValueError, match="thirteen is refused") as caught:
            list(loader)
        state = loader.state_dict()
    notes = "\n".join(caught.value.__notes__)
    assert notes.count("stage: ") - notes.partition("worker traceback:")[2].count("stage: ") == 1
    for said in ("stage: map", "refused_13", "range record 13", "worker traceback:", "in refused_13"):
        assert said in notes
    assert "aiostream_data/_engine" not in notes
    assert state["elements"] <= 3


@pytest.mark.usefixtures("threads_host")
def test_an_error_that_cannot_travel_comes_as_a_record_error_with_its_name_and_traceback() -> None:
    with pytest.raises(RecordError, match="1 and 3") as caught:
        read(Dataset.range(30).map(functions.oddly_refused_13).in_subprocess())
    assert caught.value.type_name.endswith("OddError")
    assert "in oddly_refused_13" in caught.value.worker_traceback


@pytest.mark.usefixtures("threads_host")
def test_an_interrupt_raised_by_a_function_reaches_the_consumer_as_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        read(Dataset.range(30).map(functions.interrupted_at_13).in_subprocess())


@pytest.mark.parametrize(
    ("function", "said"), [(functions.killed_at_13, "killed by signal 9"), (functions.leaves_at_13, "exit code 7")]
)
def test_a_process_that_dies_is_an_error_that_says_how(function: Callable[[int], int], said: str) -> None:
    with leaves_nothing(), Dataset.range(30).map(function).in_subprocess().open() as loader:
        with pytest.raises(WorkerDiedError, match=said):
            list(loader)
        if loader._received.number(loader._left):
            with pytest.raises(WorkerDiedError, match="has ended"):
                loader.state_dict()


@pytest.mark.usefixtures("threads_host")
def test_workers_that_give_different_elements_are_found_out(tmp_path: Path) -> None:
    iterable = functions.OneMoreForEachReader(tmp_path)
    with pytest.raises(CardinalityError, match="do not make the same elements"):
        read(Dataset.from_iterable(iterable).in_subprocess(2))


def test_lambdas_and_closures_reach_the_process_by_value() -> None:
    offset = 5
    dataset = Dataset.range(4).map(lambda number: number + offset).in_subprocess()
    assert read(dataset)[0] == [5, 6, 7, 8]


def test_without_cloudpickle_a_lambda_is_refused_where_the_chain_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiostream_data.plan.reaching.find_spec", lambda name: None)
    with pytest.raises(StageBuildError, match=r"lambda.*aiostream-data\[process\]"):
        Dataset.range(4).map(lambda number: number).in_subprocess()


@pytest.mark.filterwarnings("ignore::aiostream_data.HiddenStateWarning")
def test_what_never_pickles_is_refused_where_the_chain_is_written() -> None:
    lock = threading.Lock()
    with pytest.raises(StageBuildError, match="'lock'"):
        Dataset.range(4).map(lambda number: lock.locked()).in_subprocess()
    with pytest.raises(StageBuildError, match="list_iterator"):
        Dataset.from_iterable(iter([1, 2])).in_subprocess()


def test_what_makes_no_sense_is_refused() -> None:
    rows = Dataset.range(4)
    with pytest.raises(PlanError, match="at least 1"):
        rows.in_subprocess(0)
    with pytest.raises(PlanError, match="cannot follow in_subprocess"):
        rows.in_subprocess().map(functions.squared).in_subprocess()
    with pytest.raises(PlanError, match="ordered=False"):
        rows.map(functions.squared, ordered=False).in_subprocess(2)
    with pytest.raises(PlanError, match="on_error="):
        rows.map(functions.refused_13, on_error="skip").in_subprocess(2).open()


@pytest.mark.usefixtures("threads_host")
def test_a_data_set_made_by_a_function_cannot_have_a_process() -> None:
    dataset = Dataset.range(3).flat_map(lambda number: Dataset.range(number).shuffle(2).in_subprocess())
    with pytest.raises(PlanError, match="after flat_map"):
        read(dataset)


# -- processes, and memory


def test_everything_up_to_it_runs_in_other_processes_and_the_rest_here() -> None:
    dataset = (
        Dataset.range(8).map(functions.process_id).in_subprocess(2).map(lambda pid: (pid, functions.process_id(0)))
    )
    elements = read(dataset)[0]
    here = functions.process_id(0)
    assert {own for _, own in elements} == {here}
    assert len({pid for pid, _ in elements}) == 2
    assert here not in {pid for pid, _ in elements}
    assert [pid for pid, _ in elements[::2]] == [elements[0][0]] * 4  # they are dealt out in turn


def test_batches_belong_to_the_consumer_who_may_keep_all_of_them_and_write_into_them() -> None:
    dataset = Dataset.range(640).map(functions.image).batch(64).in_subprocess()
    with leaves_nothing():
        with dataset.open(memory_limit="16MB") as loader:
            batches = list(loader)
        for number, batch in enumerate(batches):  # good after the process has ended
            assert batch.shape == (64, 64, 64, 3)
            batch += 1
            assert (batch[:, 0, 0, 0] == (np.arange(64 * number, 64 * number + 64) % 251 + 1)).all()
        del batches, batch


def test_what_is_on_its_way_is_bounded_by_the_memory_limit() -> None:
    dataset = Dataset.range(64 * 40).map(functions.image).batch(64).in_subprocess()
    with dataset.open(memory_limit="16MB") as loader:
        elements = iter(loader)
        next(elements)
        threading.Event().wait(0.3)  # long enough for the process to send all, if nothing held it back
        sent = {stage.name: stage.rows for stage in loader.stats().stages}["in_subprocess"]
        assert sent <= 10
        assert sum(1 for _ in elements) == 39
