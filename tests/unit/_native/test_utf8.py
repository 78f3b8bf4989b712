"""Both kernels find the first row that is not UTF-8, as Python's strict decoder does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._native import row_bytes_py

row_bytes = pytest.importorskip("aiostream_data._native.row_bytes", exc_type=ImportError)
both = pytest.mark.parametrize("kernels", [row_bytes, row_bytes_py], ids=["native", "python"])

BORDERS = b"\x00\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"
"""Bytes on both sides of every border in the definition of UTF-8."""

CONTINUATIONS = b"\x7f\x80\xbf\xc0"


def spans(rows: list[bytes]) -> tuple[Any, Any, Any]:
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.frombuffer(b"".join(rows), np.uint8), np.cumsum(lengths) - lengths, lengths


def is_text(row: bytes) -> bool:
    try:
        row.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_the_native_kernel_agrees_with_python_on_every_sequence_at_a_border() -> None:
    pairs = [bytes([a, b]) for a in range(256) for b in BORDERS]
    longer = [bytes([a, b, c]) for a in range(0xC0, 256) for b in BORDERS for c in CONTINUATIONS]
    longest = [bytes([a, b, c, d]) for a in BORDERS for b in BORDERS for c in CONTINUATIONS for d in CONTINUATIONS]
    for row in (*pairs, *longer, *longest):
        assert (row_bytes.first_invalid_utf8(*spans([row])) == -1) == is_text(row), row


@given(st.lists(st.one_of(st.text(max_size=80).map(str.encode), st.binary(max_size=6)), max_size=8))
def test_both_find_the_first_invalid_row(rows: list[bytes]) -> None:
    expected = next((i for i, row in enumerate(rows) if not is_text(row)), -1)
    assert row_bytes.first_invalid_utf8(*spans(rows)) == expected
    assert row_bytes_py.first_invalid_utf8(*spans(rows)) == expected


@both
@pytest.mark.parametrize("position", [0, 7, 31, 32, 33, 63, 95])
def test_one_odd_byte_in_a_long_text_is_found(kernels: Any, position: int) -> None:
    text = bytearray(b"x" * 96)
    text[position] = 0xFF
    assert kernels.first_invalid_utf8(*spans([b"x" * 96, bytes(text)])) == 1


@both
def test_a_character_that_continues_in_the_next_row_is_invalid(kernels: Any) -> None:
    whole = "ü".encode()
    assert kernels.first_invalid_utf8(*spans([b"a", whole[:1], whole[1:]])) == 1


@both
def test_rows_can_overlap_and_be_strided(kernels: Any) -> None:
    values = np.frombuffer(b"ab\xc3\xbc\xff", np.uint8)
    table = np.array([[0, 4], [2, 2], [4, 0]], np.int64)
    assert kernels.first_invalid_utf8(values, table[:, 0], table[:, 1]) == -1


@both
@pytest.mark.parametrize(
    ("starts", "lengths", "error"),
    [([0], [4], IndexError), ([2**62], [2**62], IndexError), ([-1], [1], IndexError), ([0], [1, 1], ValueError)],
)
def test_rows_outside_the_values_are_refused(kernels: Any, starts: Any, lengths: Any, error: type[Exception]) -> None:
    values = np.zeros(3, np.uint8)
    with pytest.raises(error):
        kernels.first_invalid_utf8(values, np.array(starts, np.int64), np.array(lengths, np.int64))
