"""Windows, padded batches, buckets and packed rows: worked examples, arguments, what is known beforehand."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import BatchShapeError, MemoryBudgetError, PlanError

SEVEN = asd.Dataset.range(7)
EIGHT = asd.Dataset.range(8)


def lists(dataset: Iterable[Any]) -> list[Any]:
    return [element.tolist() for element in dataset]


def of_lengths(lengths: Iterable[int]) -> asd.Dataset[Any]:
    """Rows that consist of their own length, again and again."""
    return asd.Dataset.from_iterable([np.full(length, length) for length in lengths])


# -- window


def test_windows_are_those_of_the_documentation() -> None:
    assert lists(SEVEN.window(3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert lists(SEVEN.window(3, shift=1, drop_remainder=True)) == [
        [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6],
    ]  # fmt: skip
    assert lists(SEVEN.window(3, shift=1, stride=2, drop_remainder=True)) == [[0, 2, 4], [1, 3, 5], [2, 4, 6]]


def test_windows_keep_the_structure_and_ragged_leaves() -> None:
    records = [asd.encode_example({"v": list(range(n)), "n": n}) for n in range(4)]
    features: dict[str, Any] = {"v": asd.VarLen(np.int64), "n": asd.FixedLen((), np.int64)}
    windows = list(asd.Dataset.from_iterable(records).parse_example(features).window(2, 1, drop_remainder=True))
    assert [window["n"].tolist() for window in windows] == [[0, 1], [1, 2], [2, 3]]
    assert [window["v"].to_list() for window in windows] == [[[], [0]], [[0], [0, 1]], [[0, 1], [0, 1, 2]]]


def test_windows_belong_to_the_consumer() -> None:
    array = np.arange(8)
    for window in asd.Dataset.from_tensor_slices(array).window(4, 2):
        window[:] = -1
    assert array.tolist() == list(range(8))
    first, second = list(EIGHT.window(4, 2, drop_remainder=True))[:2]
    first[:] = -1
    assert second.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(("size", "shift", "stride"), [(3, 1, 1), (100, 100, 1), (5, 5000, 2), (9000, 3000, 1)])
def test_windows_of_many_chunks_are_slices_of_the_whole(size: int, shift: int, stride: int) -> None:
    rows = 20_000
    windows = asd.Dataset.range(rows).window(size, shift, stride, drop_remainder=True)
    span = (size - 1) * stride + 1
    expected = [range(start, start + span, stride) for start in range(0, rows - span + 1, shift)]
    found = list(windows)
    assert len(found) == len(windows) == len(expected)
    assert all(np.array_equal(window, run) for window, run in zip(found, expected, strict=True))


def test_a_window_of_rows_that_do_not_stack_names_both() -> None:
    with pytest.raises(BatchShapeError, match=r"record 0.*record 1"):
        list(of_lengths([1, 2]).window(2))


# -- rebatch


def test_rebatch_cuts_batches_anew() -> None:
    assert lists(EIGHT.batch(4).rebatch([2, 1, 1])) == [[0, 1], [2], [3], [4, 5], [6], [7]]
    assert lists(EIGHT.batch(3).rebatch(5)) == [[0, 1, 2, 3, 4], [5, 6, 7]]
    assert lists(EIGHT.batch(3).rebatch(5, drop_remainder=True)) == [[0, 1, 2, 3, 4]]
    assert lists(EIGHT.batch(3).rebatch([5, 2], drop_remainder=True)) == [[0, 1, 2, 3, 4], [5, 6]]


# -- padded_batch


def test_rows_are_padded_to_the_longest_of_their_batch() -> None:
    assert lists(of_lengths([1, 3, 2]).padded_batch(2)) == [[[1, 0, 0], [3, 3, 3]], [[2, 2]]]
    assert lists(of_lengths([1, 3, 2]).padded_batch(2, drop_remainder=True)) == [[[1, 0, 0], [3, 3, 3]]]
    assert lists(of_lengths([1, 3]).padded_batch(2, (4,), -1)) == [[[1, -1, -1, -1], [3, 3, 3, -1]]]


def test_parsed_rows_are_padded_leaf_by_leaf() -> None:
    records = [asd.encode_example({"v": list(range(n)), "w": [b"x"] * n, "n": n}) for n in (1, 2)]
    features: dict[str, Any] = {"v": asd.VarLen(np.int64), "w": asd.VarLen(bytes), "n": asd.FixedLen((), np.int64)}
    parsed = asd.Dataset.from_iterable(records).parse_example(features)
    (batch,) = parsed.padded_batch(2)
    assert batch["v"].tolist() == [[0, 0], [0, 1]]
    assert batch["w"].tolist() == [[b"x", b""], [b"x", b"x"]]
    assert batch["n"].tolist() == [1, 2]
    (batch,) = parsed.padded_batch(2, {"v": [3], "w": None, "n": ()}, {"v": 9, "w": b"-", "n": 0})
    assert batch["v"].tolist() == [[0, 9, 9], [0, 1, 9]]
    assert batch["w"].tolist() == [[b"x", b"-"], [b"x", b"x"]]


def test_a_row_longer_than_its_padded_shape_is_named() -> None:
    with pytest.raises(BatchShapeError, match=r"to \(2,\): its shape is \(3,\) in from_iterable\(\) record 1"):
        list(of_lengths([1, 3]).padded_batch(2, (2,)))


def test_padding_that_cannot_fit_is_refused_where_it_is_written() -> None:
    rows = asd.Dataset.from_tensor_slices({"a": np.zeros((4, 3), np.uint8), "b": np.zeros(4)})
    with pytest.raises(PlanError, match="padded_shapes must have the structure"):
        rows.padded_batch(2, (None,))
    with pytest.raises(PlanError, match=r"leaf 'a' to \(2,\): its shape is \(3,\)"):
        rows.padded_batch(2, {"a": (2,), "b": ()})
    with pytest.raises(PlanError, match=r"leaf 'a' to \(None, None\): its shape is \(3,\)"):
        rows.padded_batch(2, {"a": (None, None), "b": ()})
    with pytest.raises(PlanError, match="cannot pad leaf 'a' with -1: the leaf is uint8"):
        rows.padded_batch(2, None, -1)
    with pytest.raises(PlanError, match="batch_size must be at least 1"):
        rows.padded_batch(0)


# -- bucket_by_sequence_length


def test_buckets_come_out_in_the_order_they_fill() -> None:
    rows = of_lengths([1, 4, 3, 5, 6, 2])
    batches = list(rows.bucket_by_sequence_length(len, [3, 5], [2, 2, 2]))
    assert [[int((row != 0).sum()) for row in batch] for batch in batches] == [[4, 3], [5, 6], [1, 2]]
    assert [batch.shape for batch in batches] == [(2, 4), (2, 6), (2, 2)]
    assert lists(rows.bucket_by_sequence_length(len, [3, 5], [3, 2, 3], drop_remainder=True)) == [
        [[4, 4, 4, 4], [3, 3, 3, 0]]
    ]


def test_what_is_left_in_buckets_comes_in_their_order() -> None:
    batches = of_lengths([6, 1, 4, 2]).bucket_by_sequence_length(len, [3, 5], [5, 5, 5])
    assert [batch[:, 0].tolist() for batch in batches] == [[1, 2], [4], [6]]


def test_the_name_of_a_leaf_is_as_good_as_a_function() -> None:
    rows = of_lengths([1, 4, 3, 5, 6, 2]).map(lambda row: {"row": row, "n": len(row)})
    by_name = list(rows.bucket_by_sequence_length("row", [3, 5], [2, 2, 2]))
    by_function = list(rows.bucket_by_sequence_length(lambda element: element["n"], [3, 5], [2, 2, 2]))
    assert [batch["row"].tolist() for batch in by_name] == [batch["row"].tolist() for batch in by_function]
    pairs = of_lengths([1, 2]).map(lambda row: (row, row)).bucket_by_sequence_length(lambda a, b: len(b), [2], [1, 1])
    assert [batch[0].tolist() for batch in pairs] == [[[1]], [[2, 2]]]


def test_padding_to_the_boundary_stops_one_before_it() -> None:
    rows = of_lengths([1, 4, 3, 2])
    batches = list(rows.bucket_by_sequence_length(len, [3, 6], [2, 2, 2], (None,), pad_to_bucket_boundary=True))
    assert [batch.shape for batch in batches] == [(2, 5), (2, 2)]
    with pytest.raises(BatchShapeError, match=r"record 1 into a bucket: its length is 6, .*below the last boundary, 6"):
        list(of_lengths([1, 6]).bucket_by_sequence_length(len, [6], [1, 1], (None,), pad_to_bucket_boundary=True))
    with pytest.raises(PlanError, match="needs padded_shapes"):
        rows.bucket_by_sequence_length(len, [3], [1, 1], pad_to_bucket_boundary=True)


def test_without_padding_rows_are_stacked_as_batch_does() -> None:
    records = [asd.encode_example({"v": list(range(n))}) for n in (1, 2, 5)]
    parsed = asd.Dataset.from_iterable(records).parse_example({"v": asd.VarLen(np.int64)})
    batches = list(parsed.bucket_by_sequence_length("v", [4], [2, 1], no_padding=True))
    assert [batch["v"].to_list() for batch in batches] == [[[0], [0, 1]], [[0, 1, 2, 3, 4]]]
    with pytest.raises(BatchShapeError, match="cannot batch"):
        list(of_lengths([1, 2]).bucket_by_sequence_length(len, [4], [2, 1], no_padding=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((len, [3, 5], [2, 2]), "2 bucket boundaries need 3 batch sizes, got 2"),
        ((len, [5, 3], [2, 2, 2]), "must ascend"),
        ((len, [3], [2, 0]), "bucket_batch_sizes must be at least 1"),
        ((3, [3], [2, 2]), "element_length must be a function or the name of a leaf"),
    ],
)
def test_buckets_that_make_no_sense_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        of_lengths([1]).bucket_by_sequence_length(*arguments)


def test_a_length_function_that_fails_or_gives_no_integer_names_the_record() -> None:
    def fails(row: Any) -> int:
        if len(row) == 3:
            raise KeyError("x")
        return len(row)

    half: Any = lambda row: 0.5  # noqa: E731
    with pytest.raises(KeyError) as caught:
        list(of_lengths([1, 3]).bucket_by_sequence_length(fails, [2], [1, 1]))
    assert "record: from_iterable() record 1" in caught.value.__notes__
    assert any(note.startswith("stage: bucket_by_sequence_length") for note in caught.value.__notes__)
    with pytest.raises(PlanError, match=r"element_length must return an integer.*returned 0\.5"):
        list(of_lengths([1]).bucket_by_sequence_length(half, [2], [1, 1]))


def test_buckets_larger_than_the_memory_limit_are_an_error() -> None:
    rows = asd.Dataset.range(400).map(lambda n: np.zeros(10_000 + int(n)))
    with pytest.raises(MemoryBudgetError, match="cannot hold more rows in bucket_by_sequence_length"):
        list(rows.bucket_by_sequence_length(len, [2], [1000, 1000]).open(memory_limit="4MB"))


# -- pack


def unpacked(rows: Iterable[dict[str, Any]], leaf: str = "values") -> list[list[int]]:
    """Take packed rows apart by their marks."""
    found = []
    for row in rows:
        for segment in range(1, int(row["segment_ids"].max()) + 1):
            inside = row["segment_ids"] == segment
            assert row["positions"][inside].tolist() == list(range(int(inside.sum())))
            found.append(row[leaf][inside].tolist())
        assert not row["positions"][row["segment_ids"] == 0].any()
    return found


def test_packed_rows_hold_every_element_once_and_whole() -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 500).tolist()
    dataset = asd.Dataset.from_iterable([np.arange(n) + 1000 * row for row, n in enumerate(lengths)])
    rows = list(dataset.pack(64))
    assert all(row["values"].shape == (64,) and row["segment_ids"].dtype == np.int32 for row in rows)
    expected = [(np.arange(n) + 1000 * row).tolist() for row, n in enumerate(lengths)]
    assert sorted(unpacked(rows)) == sorted(expected)


def test_one_open_bin_keeps_the_order() -> None:
    rows = of_lengths([3, 2, 4, 1, 1, 5]).pack(5, open_bins=1)
    assert unpacked(rows) == [[3] * 3, [2] * 2, [4] * 4, [1], [1], [5] * 5]


def test_dicts_keep_their_leaves_beside_the_marks() -> None:
    rows = of_lengths([3, 2]).map(lambda row: {"tokens": row, "labels": -row, "n": len(row)})
    (packed,) = rows.pack(6, fields=["tokens", "labels"], padding_values={"labels": -100})
    assert list(packed) == ["tokens", "labels", "segment_ids", "positions"]
    assert packed["tokens"].tolist() == [3, 3, 3, 2, 2, 0]
    assert packed["labels"].tolist() == [-3, -3, -3, -2, -2, -100]
    (batch,) = rows.pack(6, fields="tokens").batch(4)
    assert batch["segment_ids"].tolist() == [[1, 1, 1, 2, 2, 0]]


def test_elements_that_are_too_long_are_an_error_unless_told_otherwise() -> None:
    rows = of_lengths([2, 7])
    with pytest.raises(BatchShapeError, match=r"record 1: its length 7 exceeds max_length=3"):
        list(rows.pack(3))
    assert unpacked(rows.pack(3, too_long="split")) == [[7] * 3, [7] * 3, [2] * 2, [7]]
    assert unpacked(rows.pack(3, too_long="truncate")) == [[7] * 3, [2] * 2]
    assert unpacked(rows.pack(3, too_long="drop")) == [[2] * 2]


def test_elements_without_values_are_left_out_and_accounted_for() -> None:
    with of_lengths([0, 2, 0]).pack(3).open() as loader:
        assert unpacked(loader) == [[2, 2]]
        dropped = {stage.name: stage.dropped for stage in loader.stats().stages}
    assert dropped["pack"] == 2


@pytest.mark.parametrize(
    ("pack", "message"),
    [
        (lambda rows: rows.pack(0), "max_length must be at least 1"),
        (lambda rows: rows.pack(4, open_bins=0), "open_bins must be at least 1"),
        (lambda rows: rows.pack(4, too_long="cut"), "too_long must be one of error, split, truncate, drop"),
        (lambda rows: rows.pack(4, fields=["x"]), "unknown leaf 'x'"),
        (lambda rows: rows.pack(4, fields=[]), "at least one leaf"),
        (lambda rows: rows.pack(4), "leaf 'n': it is a single value"),
        (lambda rows: rows.pack(4, fields="a", padding_values={"n": 1}), r"packed leaves only, got \['n'\]"),
        (lambda rows: rows.pack(4, fields="a", padding_values="x"), "cannot pad leaf 'a' with 'x'"),
    ],
)
def test_packing_that_makes_no_sense_is_refused(pack: Callable[[Any], Any], message: str) -> None:
    rows = asd.Dataset.from_tensor_slices({"a": np.zeros((4, 3)), "n": np.zeros(4)})
    with pytest.raises(PlanError, match=message):
        pack(rows)
    with pytest.raises(PlanError, match="adds 'segment_ids' and 'positions', but the elements have 'positions'"):
        asd.Dataset.from_tensor_slices({"positions": np.zeros((4, 3))}).pack(4)


# -- what is known before reading


def test_numbers_of_elements_are_known_where_they_can_be() -> None:
    for rows in range(12):
        source = asd.Dataset.range(rows)
        for dataset in (
            source.padded_batch(3),
            source.padded_batch(3, drop_remainder=True),
            source.window(3, 2),
            source.window(3, 2, 2, drop_remainder=True),
            source.window(2, 5, drop_remainder=True),
        ):
            assert len(dataset) == len(list(dataset))
    assert of_lengths([1]).pack(4).cardinality() == asd.UNKNOWN
    assert asd.Dataset.range(3).repeat().map(lambda n: [n]).pack(4).cardinality() == asd.INFINITE


def test_element_specs_say_what_is_known() -> None:
    rows = asd.Dataset.from_tensor_slices({"a": np.zeros((4, 3)), "n": np.zeros(4, np.int32)})
    assert rows.padded_batch(2, {"a": (5,), "n": ()}, drop_remainder=True).element_spec == {
        "a": asd.ArraySpec((2, 5), np.dtype(float)),
        "n": asd.ArraySpec((2,), np.dtype(np.int32)),
    }
    assert rows.window(3, 1).element_spec["a"] == asd.ArraySpec((None, 3), np.dtype(float))
    buckets = rows.bucket_by_sequence_length("a", [9], [2, 2], pad_to_bucket_boundary=True)
    assert buckets.element_spec["a"] == asd.ArraySpec((None, 3), np.dtype(float))
    packed = rows.pack(8, fields="a").element_spec
    assert packed["a"] == asd.ArraySpec((8,), np.dtype(float))
    assert packed["segment_ids"] == packed["positions"] == asd.ArraySpec((8,), np.dtype(np.int32))


def test_parsed_rows_that_vary_are_no_longer_ragged_once_padded() -> None:
    parsed = asd.Dataset.from_iterable([b""]).parse_example({"v": asd.VarLen(np.int64)})
    assert parsed.padded_batch(2).element_spec["v"] == asd.ArraySpec((None, None), np.dtype(np.int64))
    assert parsed.window(2).element_spec["v"].ragged


def test_plans_say_what_they_hold_and_can_be_pickled() -> None:
    dataset = asd.Dataset.range(9).map(_as_array).bucket_by_sequence_length(len, [3], [4, 2]).rebatch([2, 1]).window(2)
    text = dataset.explain()
    assert "bucket_by_sequence_length(len, [3], [4, 2])" in text
    assert "bucket_by_sequence_length holds up to 4 rows of unknown size" in text
    assert "rebatch([2, 1])" in text
    assert "window(2)" in text
    rows = asd.Dataset.from_tensor_slices(np.zeros((4, 128)))
    text = rows.bucket_by_sequence_length(len, [200], [5, 1]).pack(256).explain()
    assert "bucket_by_sequence_length holds up to 4 rows of 1024 bytes = 4 KiB" in text
    assert "pack fills up to 16 rows of 256 values" in text
    again = pickle.loads(pickle.dumps(asd.Dataset.range(9).map(_as_array).pack(8)))
    assert unpacked(again) == unpacked(asd.Dataset.range(9).map(_as_array).pack(8))


def _as_array(number: int) -> Any:
    return np.full(int(number) % 5, number)
