"""The running hash of delivered rows: in order, over ranks, and through a state."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data._native import hashing_py
from aiostream_data.metrics.stream_hash import FLUSH_ROWS, Delivered, StreamHash, combine_hashes
from aiostream_data.rows.row_ids import RowIds

Ids = NDArray[np.int64]

SALTS = [0xA5A5_0001, 0xF00D_0002, 2**64 - 3]
OF_SPLIT = 0x1234_5678_9ABC_DEF1


def salts_of(ids: Ids) -> NDArray[np.uint64]:
    sources = np.array(SALTS, np.uint64)[(ids[:, 0] >> 40) % 3]
    salts: NDArray[np.uint64] = sources + (ids[:, 0] & (2**40 - 1)).astype(np.uint64) * np.uint64(OF_SPLIT)
    return salts


class Names:
    """Names of rows of sources 0, 1, 2, ...; counts how often it is asked for many at once."""

    of_split = OF_SPLIT

    def __init__(self) -> None:
        self.calls = 0

    def salt_of(self, source: int) -> int:
        return SALTS[source % 3]

    def salts_of(self, ids: RowIds) -> NDArray[np.uint64]:
        self.calls += 1
        return salts_of(ids.padded())


def some_ids(rows: int, columns: int = 2) -> Ids:
    return np.random.default_rng(rows).integers(0, 1000, (rows, columns))


def of_two_sources(rows: int) -> Ids:
    ids = some_ids(rows)
    ids[:, 0] |= (np.arange(rows) % 2) << 40
    return ids


def hash_of(ids: Ids, first_index: int = 0, step: int = 1) -> StreamHash:
    found = StreamHash()
    found.add(salts_of(ids), ids[:, 1], first_index, step)
    return found


def delivered(*parts: Ids, next_index: int = 0, step: int = 1) -> Delivered:
    counted = Delivered(Names(), next_index=next_index, step=step)
    for part in parts:
        counted.add(RowIds.from_padded(part))
    return counted


def test_a_hash_over_no_rows_is_zero() -> None:
    assert (StreamHash().hex, StreamHash().value, StreamHash().rows) == ("0" * 32, 0, 0)
    assert combine_hashes([]) == StreamHash().hex
    assert Delivered(Names()).value().hex == "0" * 32


def test_the_digits_are_those_of_the_number() -> None:
    found = hash_of(some_ids(9))
    assert len(found.hex) == 32
    assert int(found.hex, 16) == found.value
    assert found.rows == 9


def test_rows_in_another_order_have_another_hash() -> None:
    ids = some_ids(50)
    swapped = ids[[1, 0, *range(2, 50)]]
    assert hash_of(ids).hex != hash_of(swapped).hex


def test_a_row_that_is_lost_repeated_or_of_another_epoch_changes_the_hash() -> None:
    ids = some_ids(50)
    hashes = {hash_of(rows).hex for rows in (ids, ids[1:], ids[:-1], ids[[0, *range(50)]], np.add(ids, (1, 0)))}
    assert len(hashes) == 5


@given(st.integers(1, 7), st.integers(0, 60))
def test_hashes_of_ranks_combine_to_that_of_one_process_in_any_order(ranks: int, rows: int) -> None:
    ids = some_ids(rows)
    parts: list[str | StreamHash] = [
        delivered(ids[rank::ranks], next_index=rank, step=ranks).value() for rank in range(ranks)
    ]
    parts[0] = parts[0].hex if isinstance(parts[0], StreamHash) else parts[0]
    assert combine_hashes(parts) == combine_hashes(reversed(parts)) == hash_of(ids).hex


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(0, 99), st.integers(1, 9), st.randoms())
def test_it_does_not_matter_how_rows_are_cut_or_when_they_are_hashed(
    sizes: list[int], next_index: int, step: int, random: Any
) -> None:
    ids = some_ids(sum(sizes))
    counted = Delivered(Names(), next_index=next_index, step=step)
    for part in np.split(ids, np.cumsum(sizes)[:-1]):
        counted.add(RowIds.from_padded(part))
        if random.random() < 0.2:
            counted.flush()
    assert counted.rows == len(ids)
    assert counted.value().state() == hash_of(ids, next_index, step).state()


def test_rows_of_several_sources_are_hashed_in_bulk() -> None:
    names = Names()
    counted = Delivered(names)
    ids = of_two_sources(2 * FLUSH_ROWS + 100)
    for first in range(0, len(ids), 256):
        counted.add(RowIds.from_padded(ids[first : first + 256]))
    assert names.calls == 2
    assert counted.rows == len(ids)
    assert counted.value().hex == hash_of(ids).hex
    assert names.calls == 3


def test_rows_of_one_source_need_no_names_of_their_own() -> None:
    names = Names()
    counted = Delivered(names, next_index=3, step=2)
    ids = some_ids(1000)
    for first in range(0, len(ids), 100):
        counted.add(RowIds.from_padded(ids[first : first + 100]))
    assert counted.value().hex == hash_of(ids, 3, 2).hex
    assert counted.next_index == 3 + 2 * len(ids)
    assert names.calls == 0


def test_the_kernel_for_rows_of_one_source_agrees_with_its_twin() -> None:
    ids = some_ids(333) | np.array([5 << 40, 0])
    given = (ids, 5, SALTS[2], OF_SPLIT, 2**63, 7)
    assert _native.hash_ids(*given) == hashing_py.hash_ids(*given)
    assert _native.hash_ids(ids, 4, *given[2:]) is hashing_py.hash_ids(ids, 4, *given[2:]) is None


def test_ids_may_have_more_columns_which_only_salts_look_at() -> None:
    ids = some_ids(20, columns=4)
    assert delivered(ids[:5], ids[5:]).value().hex == hash_of(ids[:, :2]).hex


def test_the_hash_with_rows_that_are_not_delivered_yet_changes_nothing() -> None:
    ids = some_ids(40)
    counted = delivered(ids[:30], next_index=1, step=3)
    assert counted.value_with(RowIds.from_padded(ids[30:])).state() == hash_of(ids, 1, 3).state()
    assert counted.value_with(RowIds.none()).state() == counted.value().state() == hash_of(ids[:30], 1, 3).state()
    counted.add(RowIds.from_padded(ids[30:]))
    assert counted.value().state() == hash_of(ids, 1, 3).state()


def test_a_value_is_the_callers_own() -> None:
    counted = delivered(some_ids(5))
    before = counted.value().hex
    counted.value().add(np.ones(1, np.uint64), np.ones(1, np.int64), 0)
    assert counted.value().hex == before


@given(st.integers(0, 30), st.integers(0, 5), st.integers(1, 5))
def test_a_run_resumed_at_any_row_ends_with_the_same_hash(cut: int, next_index: int, step: int) -> None:
    ids = some_ids(30)
    state = json.loads(json.dumps(delivered(ids[:cut], next_index=next_index, step=step).state()))
    resumed = delivered(ids[:7], next_index=99, step=step)
    resumed.restore(state)
    resumed.add(RowIds.from_padded(ids[cut:]))
    assert resumed.value().state() == hash_of(ids, next_index, step).state()
    assert resumed.rows == 30


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 6))
def test_a_stream_continues_on_another_number_of_ranks(before: int, after: int, steps: int) -> None:
    ids = some_ids(60)
    done = steps * before
    parts = [delivered(ids[rank:done:before], next_index=rank, step=before).value() for rank in range(before)]
    resumed = []
    for rank in range(after):
        counted = Delivered(Names(), step=after)
        shared = combine_hashes(parts) if rank == 0 else "0" * 32
        counted.restore({"hash": shared, "rows": done if rank == 0 else 0, "next_index": done + rank})
        counted.add(RowIds.from_padded(ids[done + rank :: after]))
        resumed.append(counted.value())
    assert combine_hashes(resumed) == hash_of(ids).hex
    assert sum(part.rows for part in resumed) == 60


def test_the_state_of_a_hash_is_small_and_json() -> None:
    state = delivered(some_ids(300)).state()
    assert len(json.dumps(state)) < 120
    restored = StreamHash()
    restored.restore({"hash": state["hash"], "rows": state["rows"]})
    assert (restored.hex, restored.rows) == (state["hash"], 300)


GOOD = {"hash": "0" * 32, "rows": 0, "next_index": 0}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "dict of hash, next_index, rows"),
        ({}, "dict of"),
        ({**GOOD, "more": 1}, "dict of"),
        ({**GOOD, "hash": "0" * 31}, "32 hexadecimal digits"),
        ({**GOOD, "hash": "0" * 31 + "\n"}, "32 hexadecimal digits"),
        ({**GOOD, "hash": "+" + "0" * 31}, "32 hexadecimal digits"),
        ({**GOOD, "hash": "F" * 32}, "lower case"),
        ({**GOOD, "hash": 12}, "got int"),
        ({**GOOD, "rows": -1}, "rows"),
        ({**GOOD, "rows": True}, "rows"),
        ({**GOOD, "rows": 1.0}, "rows"),
        ({**GOOD, "next_index": 2**64}, "next_index"),
    ],
)
def test_an_edited_state_is_refused_and_changes_nothing(state: Any, message: str) -> None:
    counted = delivered(some_ids(5))
    before = counted.state()
    with pytest.raises(ValueError, match=message):
        counted.restore(state)
    assert counted.state() == before


def test_rows_whose_salts_cannot_be_told_are_kept_for_another_try() -> None:
    known = False

    class Failing(Names):
        def salts_of(self, ids: RowIds) -> NDArray[np.uint64]:
            if not known:
                raise LookupError("no name for split 7")
            return salts_of(ids.padded())

    ids = of_two_sources(5)
    counted = Delivered(Failing())
    counted.add(RowIds.from_padded(ids))
    with pytest.raises(LookupError):
        counted.value()
    known = True
    assert counted.value().hex == hash_of(ids).hex


def test_positions_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="next_index"):
        Delivered(Names(), next_index=-1)
    with pytest.raises(ValueError, match="step"):
        Delivered(Names(), step=0)
