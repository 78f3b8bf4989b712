"""Batch and unbatch: sizes, structures, dtypes, ragged rows, and rows that do not stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import BatchShapeError

EIGHT = asd.Dataset.range(8)


def lists(dataset: asd.Dataset[Any]) -> list[list[Any]]:
    return [batch.tolist() for batch in dataset]


def test_the_last_batch_is_smaller_unless_the_remainder_is_dropped() -> None:
    assert lists(EIGHT.batch(3)) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert lists(EIGHT.batch(3, drop_remainder=True)) == [[0, 1, 2], [3, 4, 5]]
    assert lists(EIGHT.batch(9, drop_remainder=True)) == []
    assert lists(asd.Dataset.range(0).batch(3)) == []


@pytest.mark.parametrize("size", [1, 7, 256, 8192, 10_000, 30_000])
def test_batches_of_any_size_cut_across_chunks(size: int) -> None:
    numbers = list(range(25_000))
    expected = [numbers[start : start + size] for start in range(0, 25_000, size)]
    assert lists(asd.Dataset.range(25_000).batch(size)) == expected


def test_numbers_become_arrays_of_their_dtype() -> None:
    cases: list[tuple[list[Any], Any]] = [
        ([1, 2], np.int64),
        ([1.5, 2], np.float64),
        ([True, False], np.bool_),
        ([1j, 2j], np.complex128),
    ]
    for values, dtype in cases:
        (batch,) = asd.Dataset.from_iterable(values).batch(2)
        assert batch.dtype == dtype
    (batch,) = asd.Dataset.from_tensor_slices(np.zeros((2, 3), np.float16)).batch(2)
    assert (batch.dtype, batch.shape) == (np.float16, (2, 3))


def test_bytes_and_strings_become_object_arrays_of_themselves() -> None:
    (batch,) = asd.Dataset.from_tensor_slices([b"a\x00", b""]).batch(2)
    assert (batch.dtype, batch.tolist()) == (np.dtype(object), [b"a\x00", b""])
    (batch,) = asd.Dataset.from_tensor_slices(["a", "\u00e9"]).batch(2)
    assert (batch.dtype, batch.tolist()) == (np.dtype(object), ["a", "\u00e9"])


class Named(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Pair:
    x: Any
    y: Any


def test_batches_keep_dict_tuple_namedtuple_and_dataclass() -> None:
    a, b = [1, 2], [[1, 2], [3, 4]]
    (batch,) = asd.Dataset.from_tensor_slices({"a": a, "n": {"b": b}}).batch(2)
    assert batch["n"]["b"].tolist() == b
    (batch,) = asd.Dataset.from_tensor_slices((a, b)).batch(2)
    assert type(batch) is tuple
    assert batch[0].tolist() == a
    (named,) = asd.Dataset.from_tensor_slices(Named(a, b)).batch(2)
    assert named.y.tolist() == b
    (pair,) = asd.Dataset.from_tensor_slices(Pair(a, b)).batch(2)
    assert pair.x.tolist() == a


def test_batches_of_batches_gain_an_axis() -> None:
    assert lists(EIGHT.batch(2).batch(2)) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_batches_belong_to_the_consumer() -> None:
    array = np.arange(8)
    dataset = asd.Dataset.from_tensor_slices(array)
    for batch in dataset.batch(8):
        batch[:] = 0
    assert array.tolist() == list(range(8))
    for batch in dataset.batch(4).cache():
        batch[:] = 0  # of the pass that fills the cache: must not reach a later one
    assert array.tolist() == list(range(8))


def test_changing_a_batch_does_not_change_the_cache_below_it() -> None:
    dataset = EIGHT.cache().batch(4)
    for batch in dataset:
        batch[:] = -1
    assert lists(dataset) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_changing_a_batch_does_not_change_the_cache_above_it() -> None:
    dataset = EIGHT.batch(4).cache()
    for batch in dataset:
        batch[:] = -1
    assert lists(dataset) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_unequal_shapes_name_both_shapes_and_both_records() -> None:
    dataset = EIGHT.map(lambda x: np.zeros(3 if x == 5 else 2)).batch(4)
    with pytest.raises(BatchShapeError) as caught:
        list(dataset)
    message = str(caught.value)
    assert "(2,)" in message
    assert "(3,)" in message
    assert "range record 4" in message
    assert "range record 5" in message


def test_unequal_structures_name_both_and_both_records() -> None:
    with pytest.raises(BatchShapeError, match=r"\{a: \*\}.*from_iterable\(\) record 0.*\{b: \*\}.*record 1"):
        list(asd.Dataset.from_iterable([{"a": 1}, {"b": 1}]).batch(2))


def test_unbatch_gives_the_rows_back() -> None:
    assert list(EIGHT.batch(3).unbatch()) == list(range(8))
    rows = [{"a": 1, "b": b"x"}, {"a": 2, "b": b"y"}]
    assert list(asd.Dataset.from_iterable(rows).batch(2).unbatch()) == rows
    assert list(asd.Dataset.from_iterable([[1, 2], [3]]).unbatch()) == [1, 2, 3]


def test_unbatch_then_batch_cuts_anew() -> None:
    assert lists(EIGHT.batch(4).unbatch().batch(3)) == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_unbatch_refuses_components_of_different_size_and_scalars() -> None:
    with pytest.raises(BatchShapeError, match=r"from_tensors record 0.*'a' has 2 rows, 'b' has 3 rows"):
        list(asd.Dataset.from_tensors({"a": np.zeros(2), "b": np.zeros(3)}).unbatch())
    with pytest.raises(BatchShapeError, match="no first axis"):
        list(EIGHT.unbatch())


FEATURES: dict[str, asd.FixedLen | asd.VarLen] = {"length": asd.VarLen(np.int64), "name": asd.FixedLen((), bytes)}


def test_rows_of_differing_length_become_a_ragged_array_and_come_apart_again() -> None:
    records = [asd.encode_example({"length": list(range(n)), "name": b"n%d" % n}) for n in (2, 0, 3)]
    dataset = asd.Dataset.from_iterable(records).parse_example(FEATURES)
    (batch,) = dataset.batch(3)
    assert isinstance(batch["length"], asd.RaggedArray)
    assert [row.tolist() for row in batch["length"]] == [[0, 1], [], [0, 1, 2]]
    assert batch["name"].tolist() == [b"n2", b"n0", b"n3"]
    rows = list(dataset.batch(3).unbatch())
    assert [row["length"].tolist() for row in rows] == [[0, 1], [], [0, 1, 2]]


def test_a_batch_of_one_length_is_ragged_all_the_same() -> None:
    records = [asd.encode_example({"length": [n], "name": b""}) for n in range(4)]
    batches = list(asd.Dataset.from_iterable(records).parse_example(FEATURES).batch(2))
    assert all(isinstance(batch["length"], asd.RaggedArray) for batch in batches)
