"""What a data set knows before it is read: cardinality, element_spec, explain; and that it pickles."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data import INFINITE, UNKNOWN, ArraySpec

TEN = asd.Dataset.range(10)
INT = ArraySpec((), np.dtype(np.int64))
TEXT = ArraySpec((), np.dtype(object))


def identity(number: Any) -> Any:
    return number


CARDINALITIES: dict[str, tuple[asd.Dataset[Any], int]] = {
    "range": (asd.Dataset.range(0, 10, 3), 4),
    "tensors": (asd.Dataset.from_tensors((1, 2)), 1),
    "slices": (asd.Dataset.from_tensor_slices({"a": [1, 2, 3]}), 3),
    "list": (asd.Dataset.from_iterable([1, 2]), 2),
    "generator": (asd.Dataset.from_generator(lambda: [1]), UNKNOWN),
    "one shot": (asd.Dataset.from_iterable(iter([1])), UNKNOWN),
    "files": (asd.Dataset.from_tfrecord("x"), UNKNOWN),
    "map": (TEN.map(identity), 10),
    "filter": (TEN.filter(bool), UNKNOWN),
    "flat_map": (TEN.flat_map(lambda x: [x]), UNKNOWN),
    "batch": (TEN.batch(4), 3),
    "batch drop": (TEN.batch(4, drop_remainder=True), 2),
    "unbatch": (TEN.batch(4).unbatch(), UNKNOWN),
    "repeat": (TEN.repeat(3), 30),
    "repeat 0": (TEN.filter(bool).repeat(0), 0),
    "endless": (TEN.repeat(), INFINITE),
    "endless -1": (TEN.repeat(-1).batch(3), INFINITE),
    "endless nothing": (asd.Dataset.range(0).repeat(), 0),
    "take": (TEN.take(3), 3),
    "take more": (TEN.take(30), 10),
    "take all": (TEN.take(-1), 10),
    "take of endless": (TEN.repeat().take(7), 7),
    "take of unknown": (TEN.filter(bool).take(7), UNKNOWN),
    "skip": (TEN.skip(3), 7),
    "skip more": (TEN.skip(30), 0),
    "skip all": (TEN.skip(-1), 0),
    "skip of endless": (TEN.repeat().skip(3), INFINITE),
    "shard": (TEN.shard(3, 0), 4),
    "last shard": (TEN.shard(3, 2), 3),
    "zip": (TEN.zip(TEN.repeat(), TEN.take(4)), 4),
    "zip endless": (TEN.repeat().zip(TEN.repeat()), INFINITE),
    "zip unknown": (TEN.zip(TEN.filter(bool)), UNKNOWN),
    "concatenate": (TEN.concatenate(TEN.take(3)), 13),
    "concatenate endless": (TEN.filter(bool).concatenate(TEN.repeat()), INFINITE),
    "others": (TEN.enumerate().cache().shuffle(3).prefetch(2).to_device("cpu"), 10),
}


@pytest.mark.parametrize("name", CARDINALITIES)
def test_cardinality_is_what_the_plan_tells(name: str) -> None:
    dataset, count = CARDINALITIES[name]
    assert dataset.cardinality() == count


@pytest.mark.parametrize(
    "name", [name for name, (dataset, count) in CARDINALITIES.items() if count >= 0 and name != "others"]
)
def test_a_known_cardinality_is_the_number_of_elements(name: str) -> None:
    dataset, count = CARDINALITIES[name]
    assert len(list(dataset)) == count == len(dataset)


def test_len_of_an_unknown_or_endless_data_set_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="unknown length"):
        len(TEN.filter(bool))
    with pytest.raises(TypeError, match="infinite"):
        len(TEN.repeat())


def test_a_data_set_is_true_even_when_empty() -> None:
    assert asd.Dataset.range(0)
    assert TEN.repeat()


def test_element_spec_of_sources() -> None:
    assert TEN.element_spec == INT
    assert asd.Dataset.from_tensors({"a": 1, "b": np.zeros((2, 3), np.float32)}).element_spec == {
        "a": INT,
        "b": ArraySpec((2, 3), np.dtype(np.float32)),
    }
    assert asd.Dataset.from_tensor_slices((["x"], np.zeros((1, 4)))).element_spec == (
        TEXT,
        ArraySpec((4,), np.dtype(np.float64)),
    )
    assert asd.Dataset.from_tfrecord("x").element_spec == TEXT
    signature = {"a": INT, "b": (TEXT,)}
    assert asd.Dataset.from_generator(list, signature=signature).element_spec == signature


def test_element_spec_of_whole_files_names_url_and_data() -> None:
    assert asd.Dataset.from_files("x").element_spec == {"url": TEXT, "data": TEXT}


def test_element_spec_follows_the_operators() -> None:
    assert TEN.batch(4).element_spec == ArraySpec((None,), np.dtype(np.int64))
    assert TEN.batch(4, drop_remainder=True).element_spec == ArraySpec((4,), np.dtype(np.int64))
    assert TEN.batch(4).unbatch().element_spec == INT
    assert TEN.enumerate().element_spec == (INT, INT)
    assert asd.Dataset.zip({"a": TEN, "b": TEN.batch(2)}).element_spec == {
        "a": INT,
        "b": ArraySpec((None,), np.dtype(np.int64)),
    }
    assert TEN.map(identity).element_spec == ArraySpec(None, None)
    kept = TEN.shuffle(3).repeat().take(3).skip(1).shard(2, 0).cache().prefetch(2).filter(bool)
    assert kept.element_spec == INT


def test_element_spec_of_examples_tells_shapes_dtypes_and_ragged_rows() -> None:
    dataset = asd.Dataset.from_tfrecord("x").parse_example(
        {"image": asd.FixedLen((2, 2), np.float32), "ids": asd.VarLen(np.int64), "name": asd.FixedLen((), bytes)}
    )
    assert dataset.element_spec["image"] == ArraySpec((2, 2), np.dtype(np.float32))
    assert dataset.element_spec["ids"].ragged
    assert dataset.element_spec["name"] == TEXT


def test_explain_shows_stages_reads_and_memory_without_reading() -> None:
    dataset = (
        asd.Dataset.from_tfrecord("s3://no-such-bucket/train-*.tfrecord", cycle_length=4)
        .parse_example({"x": asd.FixedLen((4,), np.float32)})
        .shuffle(1000)
        .batch(8, drop_remainder=True)
        .to_device("cpu")
    )
    text = dataset.explain(memory_limit="64MB")
    for part in ("s3://no-such-bucket/train-*.tfrecord", "shuffle(1000", "batch(8", "to_device", "cycle_length=4"):
        assert part in text
    assert "16 bytes" in text
    assert text.index("from_tfrecord") < text.index("shuffle") < text.index("batch")


def test_a_data_set_pickles_and_gives_the_same_elements() -> None:
    dataset = asd.Dataset.from_tensor_slices({"x": [3, 1, 2]}).shuffle(3, seed=1).map(identity).repeat(2).batch(2)
    again = pickle.loads(pickle.dumps(dataset))
    assert [batch["x"].tolist() for batch in again] == [batch["x"].tolist() for batch in dataset]


def test_a_pickled_cache_is_a_cache_of_its_own() -> None:
    cached = TEN.cache()
    assert list(cached) == list(pickle.loads(pickle.dumps(cached)))


def test_repr_names_the_last_operator() -> None:
    assert "batch" in repr(TEN.batch(2))
