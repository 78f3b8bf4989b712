"""Chains that make no sense are refused where they are written, with rule and value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import AiostreamError, PlanError

TEN = asd.Dataset.range(10)
Build = Callable[[], Any]

REFUSED: list[tuple[Build, str]] = [
    (lambda: TEN.batch(0), r"batch_size must be at least 1, got 0"),
    (lambda: TEN.batch(-1), r"batch_size must be at least 1, got -1"),
    (lambda: TEN.batch(2.5), r"batch_size must be an integer, got 2\.5"),  # type: ignore[call-overload]
    (lambda: TEN.batch(True), r"batch_size must be an integer, got True"),
    (lambda: TEN.shuffle(0), r"buffer_size must be at least 1, got 0"),
    (lambda: TEN.prefetch(0), r"buffer_size must be at least 1, got 0"),
    (lambda: TEN.repeat(-2), r"count must be at least 0, got -2"),
    (lambda: TEN.take(-2), r"count must be at least -1, got -2"),
    (lambda: TEN.skip(-2), r"count must be at least -1, got -2"),
    (lambda: TEN.shard(0, 0), r"num_shards must be at least 1, got 0"),
    (lambda: TEN.shard(2, 2), r"index must be below num_shards \(2\), got 2"),
    (lambda: TEN.shard(2, -1), r"index must be at least 0, got -1"),
    (lambda: TEN.interleave(lambda x: [x], cycle_length=0), r"cycle_length must be at least 1, got 0"),
    (lambda: TEN.interleave(lambda x: [x], block_length=0), r"block_length must be at least 1, got 0"),
    (lambda: TEN.map(abs, executor="gpu"), r"executor must be one of .*, got 'gpu'"),  # type: ignore[call-overload]
    (lambda: TEN.map(abs, concurrency=0), r"concurrency must be at least 1, got 0"),
    (lambda: TEN.map(3), r"map\(\) needs a function, got int"),  # type: ignore[call-overload]
    (lambda: TEN.filter(None), r"filter\(\) needs a function, got NoneType"),  # type: ignore[arg-type]
    (lambda: TEN.flat_map([1]), r"flat_map\(\) needs a function, got list"),  # type: ignore[arg-type]
    (lambda: TEN.concatenate([TEN]), r"concatenate\(\) needs datasets"),  # type: ignore[call-overload]
    (lambda: asd.Dataset.range(0, 5, 0), r"step must not be 0"),
    (lambda: asd.Dataset.from_tfrecord("x", compression="lzma"), r"compression must be one of .*, got 'lzma'"),
    (lambda: asd.Dataset.from_text("x", cycle_length=0), r"cycle_length must be at least 1, got 0"),
    (lambda: asd.Dataset.from_fixed_length("x", 0), r"at least 1, got 0"),
    (lambda: TEN.to_device("tpu:0"), r"'tpu:0'"),
    (lambda: TEN.to_device("cpu", depth=0), r"depth must be at least 1, got 0"),
    (lambda: TEN.batch(2).to_device("cpu").map(abs), r"map\(\) cannot follow to_device\(\)"),
    (lambda: TEN.batch(2).to_device("cpu").prefetch(2), r"prefetch\(\) cannot follow to_device\(\)"),
    (lambda: asd.Dataset.zip(TEN, TEN.to_device("cpu")), r"zip\(\) cannot follow to_device\(\)"),
    (lambda: TEN.concatenate(TEN.to_device("cpu")), r"concatenate\(\) cannot follow to_device\(\)"),
    (lambda: asd.Dataset.from_tensor_slices({}), r"needs at least one array"),
    (lambda: asd.Dataset.from_tensor_slices({"a": [[1], [2, 3]]}), r"cannot convert a, a list, to an array"),
    (lambda: asd.Dataset.from_generator(list, signature=int), r"structure of ArraySpec, got <class 'int'>"),
    (lambda: asd.Dataset.range(2.5), r"start must be an integer, got 2\.5"),  # type: ignore[arg-type]
    (lambda: asd.Dataset.from_tfrecord(None), r"no files are given"),
    (lambda: asd.Dataset.zip(), r"at least one dataset"),
    (lambda: TEN.map(lambda x, rng: x, batched=True), r"rng.*batched"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_makes_no_sense_is_refused_where_it_is_written(build: Build, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        build()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AiostreamError)


async def coroutine(number: int) -> int:
    return number


def test_a_coroutine_function_is_refused_for_a_process() -> None:
    with pytest.raises(PlanError, match="coroutine function cannot have executor='process'"):
        TEN.map(coroutine, executor="process")


def test_a_coroutine_function_is_refused_where_it_is_called_for_other_elements() -> None:
    with pytest.raises(PlanError, match=r"flat_map\(\).*coroutine"):
        TEN.flat_map(coroutine)  # type: ignore[arg-type]


def test_sizes_may_be_numpy_integers() -> None:
    assert len(TEN.batch(np.int64(3)).take(np.int32(2))) == 2  # type: ignore[call-overload]


def test_building_leaves_the_data_set_it_began_with_unchanged() -> None:
    TEN.map(lambda x: -x).batch(3)
    assert list(TEN.take(3)) == [0, 1, 2]
    assert len(TEN) == 10


def test_a_wrong_memory_limit_is_refused_at_open() -> None:
    for wrong in ("many", -1, 0):
        with pytest.raises(ValueError, match=r"(?i)memory"):
            TEN.open(memory_limit=wrong)


def test_a_negative_epoch_is_refused_at_open() -> None:
    with pytest.raises(PlanError, match="epoch must be at least 0"):
        TEN.open(epoch=-1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("hush", "a dict of options by name, got str"),
        ([("key", "hush")], "got list"),
        ({5: "hush"}, "must be str, got 5"),
        ({"s3://": "hush"}, r"storage_options\['s3://'\] must be a dict of options for that store, got str"),
    ],
)
def test_storage_options_that_are_none_are_refused_where_they_are_written(options: Any, words: str) -> None:
    for make in (asd.Dataset.from_text, asd.Dataset.from_tfrecord, asd.Dataset.list_files):
        with pytest.raises(PlanError, match=words) as caught:
            make("s3://bucket/key", storage_options=options)
        assert "hush" not in str(caught.value)
