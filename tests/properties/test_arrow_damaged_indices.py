"""Random offsets, views and indices: either all are inside and the rows are those, or the array is refused."""

from __future__ import annotations

import gc
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
from arrow_producers import Made, numbers
from arrow_reading import only_chunk, rows_of
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data import ArrowDataError

ITEMS = numbers(*range(10, 17))
TEXT = b"0123456789abcdefghijklmnopqrstuvwxyz"
NEAR = st.integers(-2, 9)
FAR = st.sampled_from([-(2**31), 2**31 - 1, -(2**31) + 5])
ANY = st.one_of(NEAR, NEAR, NEAR, FAR)
MASKS = st.lists(st.booleans(), min_size=6, max_size=6)


def rows_or_refusal(made: Made) -> list[Any] | None:
    """The rows, or None where the array is refused. It is released once in both cases."""
    found = None
    with suppress(ArrowDataError):
        found = rows_of(only_chunk(made).leaves[0])
    gc.collect(0)
    assert (made.schema_releases, made.array_releases) == (1, 1)
    return found


def bitmap(mask: list[bool]) -> Any:
    return np.packbits(mask, bitorder="little")


def items() -> Made:
    return Made("i", len(ITEMS), [None, ITEMS])


@given(st.lists(ANY, min_size=2, max_size=7), st.booleans())
def test_lists_are_read_exactly_if_their_offsets_ascend_inside(offsets: list[int], is_long: bool) -> None:
    given_offsets = np.array(offsets, np.int64 if is_long else np.int32)
    made = Made("+L" if is_long else "+l", len(offsets) - 1, [None, given_offsets], [items()])
    inside = offsets[0] >= 0 and offsets[-1] <= len(ITEMS) and sorted(offsets) == offsets
    expected = [ITEMS[a:b].tolist() for a, b in pairwise(offsets)]
    assert rows_or_refusal(made) == (expected if inside else None)


@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=6), MASKS)
def test_list_views_are_read_exactly_if_all_are_inside(views: list[tuple[int, int]], mask: list[bool]) -> None:
    starts, lengths = (np.array(column, np.int32) for column in zip(*views, strict=True))
    made = Made("+vl", len(views), [bitmap(mask), starts, lengths], [items()], null_count=-1)
    rows = [view if valid else None for view, valid in zip(views, mask, strict=False)]
    inside = all(row is None or (min(row) >= 0 and sum(row) <= len(ITEMS)) for row in rows)
    expected = [None if row is None else ITEMS[row[0] :][: row[1]].tolist() for row in rows]
    assert rows_or_refusal(made) == (expected if inside else None)


LENGTHS = st.one_of(st.integers(-1, 20), st.just(13), FAR)


@given(st.lists(st.tuples(LENGTHS, st.integers(-1, 2), st.one_of(st.integers(-1, 25), FAR)), max_size=6), MASKS)
def test_text_views_are_read_exactly_if_all_are_inside(views: list[tuple[int, int, int]], mask: list[bool]) -> None:
    buffers = [np.frombuffer(TEXT, np.uint8), np.frombuffer(TEXT[::-1], np.uint8)]
    table = np.array([(length, 0x61616161, index, offset) for length, index, offset in views], np.int32).reshape(-1, 4)
    sizes = np.array([len(TEXT)] * 2, np.int64)
    made = Made("vz", len(views), [bitmap(mask), table, *buffers, sizes], null_count=-1)
    expected: list[Any] | None = []
    for i, (length, index, offset) in enumerate(views):
        if not mask[i]:
            row: bytes | None = None
        elif 0 <= length <= 12:
            row = table[i].tobytes()[4 : 4 + length]
        elif length > 0 and 0 <= index < 2 and 0 <= offset <= len(TEXT) - length:
            row = buffers[index].tobytes()[offset : offset + length]
        else:
            expected = None
            break
        assert expected is not None
        expected.append(row)
    assert rows_or_refusal(made) == expected


@given(st.lists(ANY, max_size=6), MASKS, st.integers(0, 7))
def test_dictionaries_are_read_exactly_if_all_indices_are_inside(
    indices: list[int], mask: list[bool], size: int
) -> None:
    words = Made("i", size, [None, ITEMS])
    made = Made("i", len(indices), [bitmap(mask), numbers(*indices)], (), words, null_count=-1)
    rows = [index if valid else None for index, valid in zip(indices, mask, strict=False)]
    inside = all(row is None or 0 <= row < size for row in rows)
    expected = [None if row is None else int(ITEMS[row % 7]) for row in rows]
    assert rows_or_refusal(made) == (expected if inside else None)
