"""A description says what decides rows and their order, the same in every process, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.plan.base import Operator
from aiostream_data.plan.fingerprint import Description, describe_plan, digest

PIPELINE = """
import functools, json
import numpy as np
import aiostream_data as asd
from aiostream_data.plan.fingerprint import describe_plan, digest

LETTERS = {"a", "b", "c"}

def decode(row, letters=frozenset("abcdefgh")):
    return row if row in {"x", "y", "z"} else letters

def given(*args):
    return args

class Scale:
    def __init__(self): self.factor, self.options = 3, LETTERS
    def __call__(self, row): return row * self.factor

unseen = eval("lambda row: row in {'x', 'y', 'z'}")
dataset = (
    asd.Dataset.from_tensor_slices({"a": np.arange(10), "b": [str(number) for number in range(10)]})
    .map(decode).map(functools.partial(decode, letters=frozenset("xyz"))).filter(unseen).map(Scale()).map(np.sin)
    .interleave(lambda row: [row, LETTERS], cycle_length=3).shuffle(100, seed=4).batch(3)
)
both = asd.Dataset.zip(dataset, asd.Dataset.from_generator(given, args=({"k", "l", "m"}, object(), print)))
description = describe_plan(both.plan)
print(json.dumps([description, digest(description)]))
"""


def describe(dataset: asd.Dataset[Any]) -> Description:
    return describe_plan(dataset.plan)


def identity(row: Any) -> Any:
    return row


NUMBERS = asd.Dataset.range(100)
FEATURES: dict[str, Any] = {"label": asd.FixedLen((), np.int64), "name": asd.VarLen(str)}
RECORDS = asd.Dataset.from_tfrecord("s3://b/x-*", cycle_length=2)

UNIMPORTANT: dict[str, tuple[asd.Dataset[Any], asd.Dataset[Any]]] = {
    "prefetch": (NUMBERS.prefetch(3).batch(2), NUMBERS.batch(2).prefetch(7)),
    "to_device": (NUMBERS.batch(2), NUMBERS.batch(2).to_device("cpu")),
    "concurrency": (NUMBERS.map(identity, concurrency=1), NUMBERS.map(identity, concurrency=8)),
    "executor": (NUMBERS.map(identity, executor="inline"), NUMBERS.map(identity, executor="process")),
    "ordered": (NUMBERS.map(identity, ordered=False), NUMBERS.map(identity)),
    "storage": (
        asd.Dataset.from_text("x", storage_options={"key": "secret"}, read_ahead=3),
        asd.Dataset.from_text("x", ordered=False),
    ),
    "cache": (NUMBERS.cache(), NUMBERS.cache()),
    "weights": (
        asd.Dataset.sample_from([NUMBERS, NUMBERS.skip(3)], [0.5, 0.5]),
        asd.Dataset.sample_from([NUMBERS, NUMBERS.skip(3)], [0.9, 0.1]),
    ),
}

DIFFERENT: list[asd.Dataset[Any]] = [
    NUMBERS, asd.Dataset.range(99), asd.Dataset.range(1, 100), asd.Dataset.range(100, dtype=np.int32),
    asd.Dataset.from_tensors(3), asd.Dataset.from_tensors((3,)), asd.Dataset.from_tensors({"a": 3}),
    asd.Dataset.from_tensors(np.arange(3)), asd.Dataset.from_tensors(np.sin),
    asd.Dataset.from_tensor_slices(np.arange(9)), asd.Dataset.from_tensor_slices(np.ones(9)),
    asd.Dataset.from_tensor_slices({"a": np.arange(9)}), asd.Dataset.from_tensor_slices(["a", "b"]),
    asd.Dataset.from_iterable([1, 2]), asd.Dataset.from_iterable((1, 2)), asd.Dataset.from_iterable([1, 3]),
    asd.Dataset.from_generator(range, args=(2,)), asd.Dataset.from_generator(range, args=(1,)),
    asd.Dataset.from_generator(range, args=(2,), signature=asd.ArraySpec((), np.dtype(int))),
    asd.Dataset.list_files("x"), asd.Dataset.list_files("x", seed=3), asd.Dataset.list_files(["x", "y"]),
    RECORDS, asd.Dataset.from_tfrecord("s3://b/y-*"), asd.Dataset.from_tfrecord("s3://b/x-*"),
    asd.Dataset.from_tfrecord("s3://b/x-*", cycle_length=2, block_length=2),
    asd.Dataset.from_tfrecord("s3://b/x-*", cycle_length=2, compression="gzip"),
    asd.Dataset.from_tfrecord("s3://b/x-*", cycle_length=2, shuffle_shards=True),
    asd.Dataset.from_tfrecord("s3://b/x-*", cycle_length=2, verify=False),
    asd.Dataset.from_tfrecord(asd.Dataset.list_files("x")), asd.Dataset.from_text("x"), asd.Dataset.from_files("x"),
    asd.Dataset.from_text("x", encoding="latin-1"), asd.Dataset.from_fixed_length("x", 3),
    asd.Dataset.from_fixed_length("x", 4), asd.Dataset.from_fixed_length("x", 4, header_nbytes=4),
    RECORDS.parse_example(FEATURES), RECORDS.parse_example({"label": FEATURES["label"]}),
    RECORDS.parse_example(FEATURES | {"label": asd.FixedLen((), np.int32)}),
    RECORDS.parse_example(FEATURES | {"label": asd.FixedLen((), np.int64, default=4)}),
    RECORDS.parse_sequence_example(FEATURES, {}), RECORDS.parse_sequence_example({}, {"label": FEATURES["label"]}),
    RECORDS.parse_sequence_example({}, {"label": asd.VarLen(np.int64)}),
    NUMBERS.map(identity), NUMBERS.map(identity, batched=True), NUMBERS.map(identity, seed=3), NUMBERS.map(str),
    NUMBERS.filter(identity), NUMBERS.flat_map(identity), NUMBERS.interleave(identity),
    NUMBERS.interleave(identity, cycle_length=3), NUMBERS.interleave(identity, block_length=3),
    NUMBERS.shuffle(3), NUMBERS.shuffle(4), NUMBERS.shuffle(3, seed=3),
    NUMBERS.shuffle(3, reshuffle_each_iteration=False), NUMBERS.repeat(), NUMBERS.repeat(3), NUMBERS.take(3),
    NUMBERS.skip(3), NUMBERS.shard(3, 0), NUMBERS.shard(3, 1), NUMBERS.shard(4, 1), NUMBERS.enumerate(),
    NUMBERS.enumerate(3), NUMBERS.batch(3), NUMBERS.batch(3, drop_remainder=True), NUMBERS.batch(3).unbatch(),
    NUMBERS.cache(), NUMBERS.zip(NUMBERS), asd.Dataset.zip({"a": NUMBERS, "b": NUMBERS}), NUMBERS.zip(RECORDS),
    RECORDS.zip(NUMBERS), NUMBERS.concatenate(NUMBERS), NUMBERS.concatenate(NUMBERS, NUMBERS),
    asd.Dataset.sample_from([NUMBERS, NUMBERS.skip(3)]),
    asd.Dataset.sample_from([NUMBERS, NUMBERS.skip(3)], stop="all"),
    asd.Dataset.sample_from([NUMBERS, NUMBERS.skip(3)], seed=3),
]  # fmt: skip


def test_whatever_decides_rows_or_order_is_in_the_description() -> None:
    descriptions = [json.dumps(describe(dataset)) for dataset in DIFFERENT]
    repeated = [text for text in descriptions if descriptions.count(text) > 1]
    assert repeated == []
    assert len({digest(describe(dataset)) for dataset in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize(("first", "second"), UNIMPORTANT.values(), ids=UNIMPORTANT)
def test_what_decides_neither_is_not(first: asd.Dataset[Any], second: asd.Dataset[Any]) -> None:
    assert digest(describe(first)) == digest(describe(second))


def test_arguments_at_their_default_are_left_out() -> None:
    assert describe(asd.Dataset.from_tfrecord("x").shuffle(3).batch(4)) == {
        "op": "batch",
        "args": {"batch_size": "4"},
        "inputs": [
            {
                "op": "shuffle",
                "args": {"buffer_size": "3"},
                "inputs": [
                    {"op": "read_tfrecord", "args": {"patterns": "'x'", "format": "TFRecordFormat()"}, "inputs": []}
                ],
            }
        ],
    }


def test_an_order_that_is_left_free_is_a_note() -> None:
    found = describe(NUMBERS.map(identity, ordered=False))
    assert found["notes"] == {"ordered": "False"}


def test_secrets_stay_out() -> None:
    urls = ["https://me:word@host/a?X-Amz-Signature=sign", "s3://b/c"]
    found = describe(asd.Dataset.from_text(urls, storage_options={"secret": "hush"}))
    assert found["args"]["patterns"] == "('https://host/a', 's3://b/c')"
    assert not any(word in json.dumps(found) for word in ("word", "sign", "hush"))


@dataclass(frozen=True, eq=False, kw_only=True)
class Thin(Operator):
    """A node that nobody registered."""

    every: int
    concurrency: int = 1
    offset: int = 0
    choose: Any = None


def test_a_node_that_nobody_registered_is_described_by_its_fields() -> None:
    assert describe_plan(Thin(input=NUMBERS.plan, every=3, concurrency=7, choose=len)) == {
        "op": "thin",
        "args": {"every": "3"},
        "functions": {"choose": "len - - -"},
        "inputs": [describe(NUMBERS)],
    }


def test_another_process_describes_a_plan_alike(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    found = {in_process(tmp_path, hash_seed) for hash_seed in ("0", "1", "77")}
    assert len(found) == 1
    description, _ = json.loads(found.pop())
    assert " src " in json.dumps(description)


def in_process(folder: Path, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([*sys.path, str(folder)])}
    run = subprocess.run(
        [sys.executable, "-c", "import pipeline"], env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout
