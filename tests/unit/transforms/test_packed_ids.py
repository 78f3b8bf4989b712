"""Packed ids: what they hold, how short they are, and what is refused of a file that somebody edited."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data.transforms.packed_ids import MAX_VALUES, Packed, pack, unpack

Ids = NDArray[np.int64]

LOWEST, HIGHEST = -(2**63), 2**63 - 1
EDGES = st.sampled_from([LOWEST, LOWEST + 1, -1, 0, 1, 255, 256, 2**24, 2**40, 2**56, HIGHEST - 1, HIGHEST])
NUMBERS = st.one_of(st.integers(LOWEST, HIGHEST), st.integers(-3, 300), EDGES)


@st.composite
def ids_of_splits(draw: st.DrawFn) -> Ids:
    """Return two columns whose second is close within a value of the first and may be far between them."""
    splits = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2**62)), min_size=1, max_size=6))
    width = draw(st.sampled_from([1, 200, 70_000, 2**33]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    which = rng.integers(0, len(splits), draw(st.integers(0, 300)))
    starts = np.array(splits, np.int64)
    found: Ids = np.stack([starts[which, 0], starts[which, 1] + rng.integers(0, width, len(which))], axis=1)
    return found


def round_trip(ids: Ids) -> Ids:
    return unpack(json.loads(json.dumps(pack(ids))), columns=ids.shape[1], max_values=ids.size)


def nchars(ids: Ids) -> float:
    return len(json.dumps(pack(ids), separators=(",", ":"))) / len(ids)


def assert_same(ids: Ids, found: Ids) -> None:
    assert found.dtype == np.int64
    assert found.shape == ids.shape
    assert found.tolist() == ids.tolist()
    assert found.flags.c_contiguous
    assert found.flags.writeable


@given(st.integers(1, 4), st.data())
def test_any_numbers_come_back(columns: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*[NUMBERS] * columns), max_size=30))
    ids = np.array(rows, np.int64).reshape(len(rows), columns)
    assert_same(ids, round_trip(ids))


@given(ids_of_splits())
def test_ids_of_splits_come_back(ids: Ids) -> None:
    assert_same(ids, round_trip(ids))


@given(ids_of_splits())
def test_strided_ids_come_back(ids: Ids) -> None:
    assert_same(ids[::-2], round_trip(ids[::-2]))
    assert_same(ids[:, ::-1], round_trip(ids[:, ::-1]))


@given(ids_of_splits(), st.lists(NUMBERS, min_size=1, max_size=3))
def test_ids_of_several_sources_come_back(ids: Ids, sources: list[int]) -> None:
    source = np.resize(np.array(sources, np.int64), len(ids))
    with_source = np.column_stack([source, ids])
    assert_same(with_source, round_trip(with_source))


@pytest.mark.parametrize("nbytes", range(9))
def test_a_column_takes_the_bytes_that_its_range_needs(nbytes: int) -> None:
    low = 2**63 - 256**nbytes if nbytes < 8 else LOWEST
    ids = np.array([[low], [low + 256**nbytes - 1]], np.int64)
    assert pack(ids)["widths"] == [nbytes]
    assert_same(ids, round_trip(ids))


def test_rows_of_a_buffer_take_at_most_eight_characters() -> None:
    rng = np.random.default_rng(1)
    split = rng.integers(0, 256, 10_000)
    assert nchars(np.stack([split + 10**6, rng.integers(0, 2**32, 10_000)], axis=1)) < 6.8
    apart = rng.integers(0, 2**62, 256)[split] + rng.integers(0, 2**32, 10_000)
    assert nchars(np.stack([split, apart], axis=1)) < 7.1
    assert nchars(np.stack([split * 0 + 5, split, apart], axis=1)) < 7.1


def test_lowest_values_of_splits_are_kept_only_where_that_is_shorter() -> None:
    split = np.repeat([3, 9], 500)
    near = np.stack([split, np.tile(np.arange(500), 2)], axis=1)
    assert pack(near)["lows"] == [3, 0]
    far = near + np.outer(split == 9, [0, 2**50])
    assert isinstance(pack(far)["lows"][1], dict)
    assert len(pack(far)["data"]) == len(pack(near)["data"])


def test_ids_of_another_shape_or_dtype_are_not_packed() -> None:
    for wrong in (np.zeros(3, np.int64), np.zeros((3, 0), np.int64), np.zeros((3, 2), np.int32)):
        with pytest.raises(ValueError, match="ids must be int64"):
            pack(wrong)  # type: ignore[arg-type]


def test_more_than_can_be_unpacked_is_not_packed() -> None:
    with pytest.raises(ValueError, match="at most"):
        pack(np.broadcast_to(np.zeros((1, 1), np.int64), (MAX_VALUES + 1, 1)))


def a_grouped_one() -> Packed:
    split = np.repeat([0, 1], 50)
    packed = pack(np.stack([split, split * 2**50 + np.tile(np.arange(50), 2)], axis=1))
    assert isinstance(packed["lows"][1], dict)
    return packed


def changed(**entries: Any) -> Packed:
    return {**pack(np.array([[1, 2], [3, 400]], np.int64)), **entries}


def without_a_low(packed: Packed) -> Packed:
    return {**packed, "lows": [0, pack(np.zeros((1, 1), np.int64))]}


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (None, "must be a dict"),
        ([], "got list of 0"),
        ({"rows": 1}, "must be a dict of rows, lows, widths and data"),
        (changed(more=1), "must be a dict"),
        (changed(rows=-1), "rows"),
        (changed(rows=2.0), "rows"),
        (changed(rows=True), "rows"),
        (changed(rows=10**30), "an integer of 100 bits"),
        (changed(rows=3), "data"),
        (changed(rows=101, widths=[0, 0], data=""), "from 0 to 100"),
        (changed(lows=[1]), "list of 2"),
        (changed(lows="12"), "list of 2"),
        (changed(lows=[1, 2**63]), "lowest value"),
        (changed(lows=[1, "2"]), "lowest value"),
        (changed(lows=[{}, 2]), "lowest value"),
        (changed(lows=[1, {}]), "must be a dict"),
        (changed(lows=[2**63 - 2, 2]), "beyond 64 bits"),
        (changed(lows=[1, 2**63 - 2]), "beyond 64 bits"),
        (changed(widths=[1, 9]), "width"),
        (changed(widths=[1, -1]), "width"),
        (changed(widths=[1, 2, 3]), "list of 2"),
        (changed(widths=[8, 8]), "32 bytes"),
        (changed(data=b"AAAAAAAA"), "got bytes"),
        (changed(data="AAAA"), "got str of 4"),
        (changed(data="AAAAAA=="), "need 6 bytes of data, got 4"),
        (changed(data="AAA!AAAA"), "not valid base64"),
        (changed(data="AAA\u00e9AAAA"), "not valid base64"),
        (without_a_low(a_grouped_one()), "1 lowest values, but a row refers to number 1"),
    ],
)
def test_an_edited_file_is_refused(packed: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        unpack(packed, columns=2, max_values=200)
    assert len(str(caught.value)) < 200


def test_lowest_values_inside_lowest_values_are_refused() -> None:
    packed = a_grouped_one()
    nested = {**packed["lows"][1], "lows": [packed["lows"][1]]}
    with pytest.raises(ValueError, match="lowest value"):
        unpack({**packed, "lows": [0, nested]}, columns=2, max_values=200)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


@given(st.sampled_from(["rows", "lows", "widths", "data"]), st.one_of(JSON, st.lists(st.integers(0, 9), max_size=2)))
def test_whatever_a_file_holds_gives_ids_within_bounds_or_a_value_error(name: str, value: Any) -> None:
    for packed in (a_grouped_one(), changed()):
        try:
            found = unpack({**packed, name: value}, columns=2, max_values=200)
        except ValueError:
            continue
        assert found.shape[1] == 2
        assert len(found) <= 100


def test_rows_that_are_all_alike_are_bounded_by_the_caller() -> None:
    alike = pack(np.full((500, 2), 7, np.int64))
    assert alike["data"] == ""
    assert unpack(alike, columns=2, max_values=1000).tolist() == [[7, 7]] * 500
    with pytest.raises(ValueError, match="from 0 to 499"):
        unpack(alike, columns=2, max_values=999)


def test_many_columns_from_little_text_are_bounded_too() -> None:
    wide = {"rows": 1000, "lows": [0] * 500, "widths": [0] * 500, "data": ""}
    assert unpack(wide, max_values=500_000).shape == (1000, 500)
    with pytest.raises(ValueError, match="from 0 to 999"):
        unpack(wide, max_values=499_999)


def test_any_number_of_columns_is_taken_when_none_is_told() -> None:
    for columns in (1, 2, 5):
        ids = np.arange(3 * columns, dtype=np.int64).reshape(3, columns)
        assert_same(ids, unpack(pack(ids)))
    with pytest.raises(ValueError, match="list of numbers, got list of 0"):
        unpack({"rows": 0, "lows": [], "widths": [], "data": ""})


@pytest.mark.parametrize("columns", [1, 3])
def test_another_number_of_columns_than_expected_is_refused(columns: int) -> None:
    with pytest.raises(ValueError, match=f"list of {columns}"):
        unpack(changed(), columns=columns)
