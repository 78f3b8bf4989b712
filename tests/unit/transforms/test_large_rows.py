"""Long rows in slots of their own: what comes out went in, and no more is held than that."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from aiostream_data.rows.columns import LONG_ROW_NBYTES, VarColumn, VarKind
from aiostream_data.transforms.large_rows import LargeRowSlots, are_large


def column(rows: list[bytes], kind: VarKind = "bytes") -> VarColumn:
    lengths = np.array([len(row) for row in rows], np.int64)
    return VarColumn(np.frombuffer(b"".join(rows), np.uint8), np.cumsum(lengths) - lengths, lengths, kind)


def contents(found: VarColumn) -> list[bytes]:
    """Return the bytes of the rows of a column of any kind."""
    return [bytes(row, "utf-8") if isinstance(row, str) else bytes(row) for row in found.elements()]


KINDS = pytest.mark.parametrize("kind", get_args(VarKind))


def numbers(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def test_only_long_rows_are_large() -> None:
    assert are_large(column([bytes(LONG_ROW_NBYTES)] * 3))
    assert not are_large(column([bytes(LONG_ROW_NBYTES // 2)] * 3))
    assert not are_large(column([]))


@KINDS
def test_an_exchange_gives_what_the_slot_held_at_that_moment(kind: VarKind) -> None:
    slots = LargeRowSlots(column([b""], kind))
    slots.fill(0, column([b"a", b"bb"], kind))
    slots.fill(2, column([b"ccc"], kind))
    given = slots.exchange(numbers(1, 1, 0), column([b"x", b"yy", b"zzz"], kind))
    assert contents(given) == [b"bb", b"x", b"a"]
    assert contents(slots.take(numbers(0, 1, 2))) == [b"zzz", b"yy", b"ccc"]
    assert contents(slots.take(numbers())) == []


@KINDS
def test_what_is_held_is_what_the_rows_need_and_shares_nothing(kind: VarKind) -> None:
    rng = np.random.default_rng(1)
    slots = LargeRowSlots(column([b""], kind))
    source = column([bytes([value]) * 1_000 for value in range(50)], kind)
    slots.fill(0, source)
    assert slots.nbytes == 50_000
    for _ in range(20):
        row = column([bytes(int(rng.integers(1, 3_000)))], kind)
        given = slots.exchange(numbers(int(rng.integers(50))), row)
        assert not np.may_share_memory(given.values, row.values)
    held = slots.take(np.arange(50))
    assert slots.nbytes == int(held.lengths.sum())
