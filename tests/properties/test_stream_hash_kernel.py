"""The hash of a run of rows: native as its twin, a sum however it is cut, and as good as random numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native import hashing_py as twin

Salts = NDArray[np.uint64]
Ordinals = NDArray[np.int64]
HashRows = Callable[[Salts, Ordinals, int, int], tuple[int, int]]

WORDS = st.integers(0, 2**64 - 1)
ORDINALS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.tuples(WORDS, ORDINALS), max_size=40)
POSITIONS = st.integers(0, 2**70)
STEPS = st.integers(1, 2**66)
KNOWN = (0x3CEC465BDBBA53C6, 0x077678FBBF2E2CC5)
KERNELS = [_native.hash_rows, twin.hash_rows]


def arrays_of(rows: list[tuple[int, int]]) -> tuple[Salts, Ordinals]:
    """Return the salts, and the ordinals as a column of a larger array."""
    ids = np.array([(7, ordinal) for _, ordinal in rows], np.int64).reshape(len(rows), 2)
    return np.array([salt for salt, _ in rows], np.uint64), ids[:, 1]


def of_one_row(salt: int, ordinal: int, position: int) -> tuple[int, int]:
    """Hash a row as the twin's docstring says it, in Python's integers."""

    def finish(word: int, shifts: tuple[int, int, int], factors: tuple[int, int]) -> int:
        word = (word ^ word >> shifts[0]) * factors[0] % 2**64
        word = (word ^ word >> shifts[1]) * factors[1] % 2**64
        return word ^ word >> shifts[2]

    def number(constants: tuple[int, int, int]) -> int:
        return (salt + ordinal * constants[0] + position * constants[1] + constants[2]) % 2**64

    return (
        finish(number(twin.LOW_CONSTANTS), (30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)),
        finish(number(twin.HIGH_CONSTANTS), (33, 33, 33), (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)),
    )


def total(hashes: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(low for low, _ in hashes) % 2**64, sum(high for _, high in hashes) % 2**64


@pytest.mark.parametrize("hash_rows", KERNELS)
@given(rows=ROWS, first=POSITIONS, step=STEPS)
def test_the_hash_is_the_sum_over_rows_that_is_written_down(
    hash_rows: HashRows, rows: list[tuple[int, int]], first: int, step: int
) -> None:
    expected = [of_one_row(salt, ordinal, first + step * at) for at, (salt, ordinal) in enumerate(rows)]
    assert hash_rows(*arrays_of(rows), first, step) == total(expected)


@given(ROWS, POSITIONS, st.integers(1, 5))
def test_hashes_of_ranks_add_up_to_the_hash_of_one_process(rows: list[tuple[int, int]], first: int, ranks: int) -> None:
    salts, ordinals = arrays_of(rows)
    parts = [_native.hash_rows(salts[i::ranks], ordinals[i::ranks], first + i, ranks) for i in range(ranks)]
    assert total(parts) == _native.hash_rows(salts, ordinals, first, 1)


@given(ROWS, POSITIONS, st.integers(1, 9), st.integers(0, 40))
def test_the_hash_does_not_depend_on_where_a_run_is_cut(
    rows: list[tuple[int, int]], first: int, step: int, cut: int
) -> None:
    salts, ordinals = arrays_of(rows)
    cut = min(cut, len(rows))
    head = _native.hash_rows(salts[:cut], ordinals[:cut], first, step)
    tail = _native.hash_rows(salts[cut:], ordinals[cut:], first + cut * step, step)
    assert total([head, tail]) == _native.hash_rows(salts, ordinals, first, step)


def test_a_run_that_is_hashed_without_the_gil_has_the_same_hash() -> None:
    ids = np.arange(200_000, dtype=np.int64).reshape(-1, 2)
    salts = ids[:, 0].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert _native.hash_rows(salts, ids[:, 1], 3, 2) == twin.hash_rows(salts, ids[:, 1], 3, 2)


@pytest.mark.parametrize("hash_rows", KERNELS)
def test_a_known_run_keeps_its_hash_in_every_release(hash_rows: HashRows) -> None:
    salts = np.array([1, 2**64 - 1, 0x0123456789ABCDEF], np.uint64)
    assert hash_rows(salts, np.array([0, 5, 2**40], np.int64), 10, 4) == KNOWN


@pytest.mark.parametrize("hash_rows", KERNELS)
@pytest.mark.parametrize(
    ("salts", "ordinals", "first", "step", "message"),
    [
        (np.zeros(2, np.uint64), np.zeros(3, np.int64), 0, 1, "one length"),
        (np.zeros(2, np.int64), np.zeros(2, np.int64), 0, 1, "uint64 and int64"),
        (np.zeros(2, np.uint64), np.zeros(2, np.int32), 0, 1, "int32"),
        (np.zeros((2, 1), np.uint64), np.zeros((2, 1), np.int64), 0, 1, "vectors"),
        (np.zeros(2, np.uint64), np.zeros(2, np.int64), -1, 1, "first_index"),
        (np.zeros(2, np.uint64), np.zeros(2, np.int64), 0, 0, "step"),
    ],
)
def test_what_is_no_run_of_rows_is_refused(
    hash_rows: HashRows, salts: Salts, ordinals: Ordinals, first: int, step: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        hash_rows(salts, ordinals, first, step)


def test_the_constants_keep_rows_of_a_salt_apart_in_one_lane_at_least() -> None:
    (a_low, c_low, _), (a_high, c_high, _) = twin.LOW_CONSTANTS, twin.HIGH_CONSTANTS
    assert a_low % 2 == c_low % 2 == a_high % 2 == c_high % 2 == 1
    assert (a_low * c_high - a_high * c_low) % 4 == 2


Edit = Callable[[Salts, Ordinals, int], tuple[Salts, Ordinals]]


def swap_neighbours(salts: Salts, ordinals: Ordinals, at: int) -> tuple[Salts, Ordinals]:
    order = np.arange(len(salts))
    order[[at, at + 1]] = at + 1, at
    return salts[order], ordinals[order]


def leave_out(salts: Salts, ordinals: Ordinals, at: int) -> tuple[Salts, Ordinals]:
    return np.delete(salts, at), np.delete(ordinals, at)


def repeat_previous(salts: Salts, ordinals: Ordinals, at: int) -> tuple[Salts, Ordinals]:
    order = np.arange(len(salts))
    order[at + 1] = at
    return salts[order], ordinals[order]


@pytest.mark.parametrize("edit", [swap_neighbours, leave_out, repeat_previous])
@pytest.mark.parametrize("splits", [1, 8])
def test_an_edited_stream_shares_bits_of_its_hash_by_chance_only(edit: Edit, splits: int) -> None:
    rows, tries = 64, 4096
    agreements = np.zeros(16)
    for attempt in range(tries):
        ids = np.arange(attempt * rows, attempt * rows + rows)
        salts = (ids // 3 % splits).astype(np.uint64)  # poor salts on purpose
        before = _native.hash_rows(salts, ids, attempt, 1)
        after = _native.hash_rows(*edit(salts, ids, attempt % (rows - 1)), attempt, 1)
        changed = sum((a ^ b) << 64 * lane for lane, (a, b) in enumerate(zip(before, after, strict=True)))
        agreements += [(changed >> 8 * byte & 0xFF) == 0 for byte in range(16)]
    expected = tries / 256
    assert np.abs(agreements - expected).max() < 6 * np.sqrt(expected)


@pytest.mark.parametrize("hash_run", [_native.hash_run, twin.hash_run])
@given(salt=WORDS, ordinal=st.integers(0, 2**62), rows=st.integers(0, 40), first=POSITIONS, step=STEPS)
def test_consecutive_rows_are_hashed_as_their_salts_and_ordinals(
    hash_run: Callable[..., tuple[int, int]], salt: int, ordinal: int, rows: int, first: int, step: int
) -> None:
    expected = twin.hash_rows(np.full(rows, salt, np.uint64), np.arange(ordinal, ordinal + rows), first, step)
    assert hash_run(salt, ordinal, rows, first, step) == expected


@pytest.mark.parametrize("hash_run", [_native.hash_run, twin.hash_run])
@pytest.mark.parametrize("numbers", [(-1, 1, 0, 1), (0, -1, 0, 1), (2**63 - 1, 1, 0, 1), (0, 1, -1, 1), (0, 1, 0, 0)])
def test_numbers_that_no_run_has_are_refused(hash_run: Callable[..., object], numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cannot be hashed"):
        hash_run(1, *numbers)
