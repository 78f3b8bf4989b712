"""Arguments that cannot serve are refused where they are written, by errors of this package that say which and why."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import Dataset, PlanError

DIGITS = "9" * 5000
ROWS: Any = Dataset.range(4)
DATASET: Any = Dataset

ODD: tuple[Any, ...] = ("x", b"x", 1.5, [], {}, object(), np.array([1, 2]), float("nan"), DIGITS, int, {1: 2})
TOO_MANY: tuple[Any, ...] = (2**63, 10**400)

COUNTS: dict[str, Callable[[Any], Any]] = {
    "batch": ROWS.batch,
    "padded_batch": ROWS.padded_batch,
    "window": ROWS.window,
    "shift": lambda value: ROWS.window(2, value),
    "stride": lambda value: ROWS.window(2, 1, value),
    "max_cost": lambda value: ROWS.batch(max_cost=value, cost=int),
    "max_length": ROWS.pack,
    "open_bins": lambda value: ROWS.pack(3, open_bins=value),
    "shuffle": ROWS.shuffle,
    "repeat": ROWS.repeat,
    "take": ROWS.take,
    "skip": ROWS.skip,
    "num_shards": lambda value: ROWS.shard(value, 0),
    "index": lambda value: ROWS.shard(2, value),
    "enumerate": ROWS.enumerate,
    "prefetch": ROWS.prefetch,
    "in_subprocess": ROWS.in_subprocess,
    "concurrency": lambda value: ROWS.map(abs, concurrency=value),
    "cycle_length": lambda value: ROWS.interleave(range, cycle_length=value),
    "block_length": lambda value: ROWS.interleave(range, block_length=value),
    "read_ahead": lambda value: DATASET.from_text("x", read_ahead=value),
    "record_nbytes": lambda value: DATASET.from_fixed_length("x", value),
    "header_nbytes": lambda value: DATASET.from_fixed_length("x", 2, header_nbytes=value),
    "footer_nbytes": lambda value: DATASET.from_fixed_length("x", 2, footer_nbytes=value),
    "range start": lambda value: DATASET.range(value, 3),
    "range step": lambda value: DATASET.range(1, 3, value),
    "schedule_every": lambda value: DATASET.sample_from([ROWS, ROWS], schedule_every=value),
    "epoch": lambda value: ROWS.open(epoch=value),
    "replicate": lambda value: ROWS.open(rank=0, world_size=1, replicate=value),
    "max_rows": lambda value: ROWS.shuffle_quality(max_rows=value),
    "timeout": lambda value: ROWS.map(abs, timeout=value),
    "stage_timeout": lambda value: ROWS.open(stage_timeout=value),
    "stall_after": lambda value: ROWS.open(stall_after=value),
    "memory_limit": lambda value: ROWS.open(memory_limit=value),
}

TAKES_NUMBERS = {"timeout", "stage_timeout", "stall_after", "memory_limit"}

FLAGS: dict[str, Callable[[Any], Any]] = {
    "drop_remainder": lambda value: ROWS.batch(2, drop_remainder=value),
    "padded": lambda value: ROWS.batch(max_cost=3, cost=int, padded=value),
    "window": lambda value: ROWS.window(2, drop_remainder=value),
    "rebatch": lambda value: ROWS.batch(2).rebatch(3, drop_remainder=value),
    "reshuffle": lambda value: ROWS.shuffle(2, reshuffle_each_iteration=value),
    "map ordered": lambda value: ROWS.map(abs, ordered=value),
    "interleave ordered": lambda value: ROWS.interleave(range, ordered=value),
    "read ordered": lambda value: DATASET.from_text("x", ordered=value),
    "shuffle_shards": lambda value: DATASET.from_text("x", shuffle_shards=value),
    "verify text": lambda value: DATASET.from_text("x", verify=value),
    "verify records": lambda value: DATASET.from_tfrecord("x", verify=value),
    "random": lambda value: DATASET.sample_from([ROWS, ROWS], random=value),
    "force": lambda value: ROWS.open(force=value),
    "debug": lambda value: ROWS.open(debug=value),
    "deterministic": lambda value: ROWS.open(deterministic=value),
}

REFUSED: dict[str, Callable[[], Any]] = {
    "broadcast": lambda: ROWS.open(broadcast=4),
    "consensus": lambda: ROWS.open(rank=0, world_size=1, policy="file", tail="drop", consensus=4),
    "allow a name of nothing": lambda: ROWS.open(allow=["nope"]),
    "allow an operator": lambda: ROWS.shuffle(2).open(allow=["shufle.buffer_size"]),
    "allow no argument": lambda: ROWS.open(allow=["range."]),
    "allow no text": lambda: ROWS.open(allow=[[]]),
    "no prices": lambda: ROWS.open(prices={}),
    "prices of a store": lambda: ROWS.open(prices={"s3": {}}),
    "prices by number": lambda: ROWS.open(prices={5: {"GET": 1.0}}),
    "a fixed length": lambda: asd.FixedLen(cast(Any, None), "int64"),
    "a fixed length of text": lambda: asd.FixedLen(cast(Any, "x"), "int64"),
    "a sequence": lambda: asd.FixedLenSequence(cast(Any, None), "int64"),
    "a feature's dtype": lambda: asd.FixedLen((), "("),
    "a spec's shape": lambda: asd.ArraySpec(cast(Any, "x"), None),
    "a spec's axis": lambda: asd.ArraySpec((2, -1), None),
    "a spec's dtype": lambda: asd.ArraySpec((), cast(Any, "y")),
    "a spec's raggedness": lambda: asd.ArraySpec((), None, cast(Any, "no")),
    "splits beyond the values": lambda: asd.RaggedArray(np.arange(3), np.array([0, 5])),
    "splits before the values": lambda: asd.RaggedArray(np.arange(3), np.array([-1, 2])),
    "splits that descend": lambda: asd.RaggedArray(np.arange(3), np.array([0, 2, 1, 3])),
    "splits that are no integers": lambda: asd.RaggedArray(np.arange(3), cast(Any, np.array([0.0, 3.0]))),
    "a generator's missing argument": lambda: Dataset.from_generator(lambda count: iter([count])),
    "a generator's keyword": lambda: Dataset.from_generator(needs_a_keyword),
    "a generator's other argument": lambda: Dataset.from_generator(lambda: iter([1]), args=(1,)),
    "a dump into a number": lambda: dumped_into(5),
}

OTHERS: dict[str, Callable[[Any], Any]] = {
    "executor": lambda value: ROWS.map(abs, executor=value),
    "on_error": lambda value: ROWS.map(abs, on_error=value),
    "map": ROWS.map,
    "apply": ROWS.apply,
    "compression": lambda value: DATASET.from_text("x", compression=value),
    "encoding": lambda value: DATASET.from_text("x", encoding=value),
    "stop": lambda value: DATASET.sample_from([ROWS, ROWS], stop=value),
    "too_long": lambda value: ROWS.pack(3, too_long=value),
    "on_too_large": lambda value: ROWS.batch(2, max_cost=3, cost=int, on_too_large=value),
    "bucket_boundaries": lambda value: ROWS.bucket_by_sequence_length(int, value, [1, value]),
    "features": ROWS.parse_example,
    "sequences": lambda value: ROWS.parse_sequence_example({"a": value}, value),
    "device": ROWS.batch(2).to_device,
    "handoff": lambda value: ROWS.batch(2).to_device(handoff=value),
    "policy": lambda value: ROWS.open(rank=0, world_size=1, policy=value),
    "skip": lambda value: ROWS.open(skip=[value]),
    "block": lambda value: ROWS.open(block=[value] if isinstance(value, str) is False else 5),
    "origin": ROWS.fetch,
    "spill": lambda value: ROWS.shuffle(2, spill="a\0b"),
    "dtype": lambda value: DATASET.range(3, dtype=value),
}


def refused(call: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(PlanError) as caught:
        call(value)
    assert 10 < len(str(caught.value)) < 1000


def needs_a_keyword(*, count: int) -> list[int]:
    return [count]


def dumped_into(file: Any) -> str:
    with Dataset.range(3).open() as loader:
        return loader.dump(file)


@pytest.mark.parametrize("name", REFUSED)
def test_an_argument_that_can_never_serve_is_refused_where_it_is_written(name: str) -> None:
    refused(lambda _: REFUSED[name](), None)


def test_what_can_be_allowed_is_listed_where_it_is_misspelt() -> None:
    with pytest.raises(PlanError, match=r"seed, shards\) or arguments .* of range, shuffle, got 'shufle.seed'"):
        ROWS.shuffle(2).open(allow=["shufle.seed"])
    for name in ("shards", "weights", "shuffle.buffer_size", "range.stop"):
        ROWS.shuffle(2).open(allow=[name]).close()


def test_a_generator_gets_what_its_decorator_or_its_builtin_asks_for() -> None:
    def counting(generate: Callable[[int], Any]) -> Callable[[], Any]:
        @functools.wraps(generate)
        def given_two() -> Any:
            return generate(2)

        return given_two

    assert list(Dataset.from_generator(counting(range))) == [0, 1]
    assert list(Dataset.from_generator(counting(lambda count: range(count)))) == [0, 1]
    assert list(Dataset.from_generator(range, args=(2,))) == [0, 1]


def test_a_spec_takes_whatever_stands_for_a_dtype() -> None:
    odd: Any = asd.ArraySpec
    assert odd([None, np.int64(2)], "int64") == asd.ArraySpec((None, 2), np.dtype(np.int64))


@pytest.mark.parametrize("name", COUNTS)
def test_a_number_of_another_type_or_beyond_all_counting_is_refused(name: str) -> None:
    for value in (*ODD, *TOO_MANY):
        serves = name in TAKES_NUMBERS and isinstance(value, float)
        if not serves or value is ODD[7]:
            refused(COUNTS[name], value)


@pytest.mark.parametrize("name", FLAGS)
def test_a_switch_that_is_neither_true_nor_false_is_refused(name: str) -> None:
    for value in (*ODD, None, 1):
        refused(FLAGS[name], value)


@pytest.mark.parametrize("name", OTHERS)
def test_words_functions_and_collections_of_another_kind_are_refused(name: str) -> None:
    for value in (1.5, np.array([1, 2]), object(), [[]], DIGITS):
        refused(OTHERS[name], value)


def test_numpys_numbers_and_truths_serve() -> None:
    dataset = Dataset.range(5).batch(int(np.int64(2)), drop_remainder=bool(np.True_))
    odd: Any = Dataset.range(5)
    assert [list(batch) for batch in odd.batch(np.int64(2), drop_remainder=np.True_)] == [list(b) for b in dataset]


@pytest.mark.parametrize("name", ["skip", "block"])
def test_what_is_left_out_is_given_as_a_list(name: str) -> None:
    for value in (5, "https://host/a", None):
        refused(lambda given: ROWS.open(**{name: given}), value)


def test_so_many_processes_are_a_slip_of_the_pen() -> None:
    with pytest.raises(asd.PlanError, match="workers must be at most 1024"):
        Dataset.range(3).in_subprocess(10**6)


def test_functions_and_classes_refuse_what_they_cannot_use(tmp_path: Path) -> None:
    anything: Any = asd
    features = {"a": asd.FixedLen((), "int64")}
    calls: list[Callable[[], Any]] = [
        lambda: anything.write_index(None, tmp_path / "index"),
        lambda: anything.write_index([5], tmp_path / "index"),
        lambda: anything.write_index("x", "a\0b"),
        lambda: anything.encode_example(None),
        lambda: anything.encode_example({1: 2}),
        lambda: anything.encode_sequence_example({}, 5),
        lambda: anything.parse_example(5, features),
        lambda: anything.parse_example([5], features),
        lambda: anything.combine_hashes(5),
        lambda: anything.ShardCache(5),
        lambda: anything.ShardCache("a\0b"),
        lambda: anything.TFRecordWriter(None),
        lambda: anything.TFRecordWriter("a\0b"),
        lambda: anything.Origin.from_dict(5),
        lambda: anything.Origin.from_dict({}),
    ]
    for call in calls:
        with pytest.raises(PlanError):
            call()
    with Dataset.range(3).open() as loader:
        refused(lambda value: loader.replay(value, 2), "x")


def test_a_writer_names_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(asd.WriteError, match="No such file or directory; nothing was stored"):
        asd.TFRecordWriter(tmp_path / "none" / "a.tfrecord")


@pytest.mark.parametrize("url", ["http://host/a.tfrecord", "nosuchstore://bucket/a.tfrecord"])
def test_a_writer_to_a_store_that_takes_no_files_is_refused_before_a_record_is_written(url: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(asd.WriteError, match="nothing was stored"):
        asd.TFRecordWriter(url)
