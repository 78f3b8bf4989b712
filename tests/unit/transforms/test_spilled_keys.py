"""Keys of ``unique`` on disk are equal exactly if the keys in memory are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.errors import SpillError
from aiostream_data.transforms.spilled_keys import LEAST_CACHE_NBYTES, SpilledKeys, digest_of
from aiostream_data.transforms.unique_keys import UniqueKeys, small_key

ALIKE = st.sampled_from([0.0, -0.0, 1 + 0j, "1", b"1", "nan"])
NUMBERS = st.one_of(st.booleans(), st.integers(), st.floats(), st.complex_numbers())
PLAIN = st.one_of(NUMBERS, ALIKE, st.text(max_size=70), st.binary(max_size=70), st.none())
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[SpilledKeys]:
    with closing(SpilledKeys(str(tmp_path), LEAST_CACHE_NBYTES)) as found:
        yield found


@given(VALUES, VALUES)
def test_hashes_are_equal_exactly_if_keys_are(one: Any, other: Any) -> None:
    first, second = small_key(one), small_key(other)
    assert (digest_of(first) == digest_of(second)) == (first == second)


@given(st.lists(VALUES), st.integers(0, 5))
def test_the_same_keys_are_new_on_disk_and_in_memory(values: list[Any], most_ordered: int) -> None:
    in_memory, on_disk = UniqueKeys(most_ordered), UniqueKeys(most_ordered, ".", 200)
    assert on_disk.push(values) == in_memory.push(values)
    assert on_disk.first == in_memory.first
    assert len(on_disk) == len(in_memory)
    on_disk.close()


def test_the_file_has_no_name_and_memory_stays_bounded(keys: SpilledKeys, tmp_path: Path) -> None:
    keys.add_all(range(50_000))
    assert not any(keys.add(number) for number in range(0, 50_000, 7))
    assert keys.add("50_000")
    assert len(keys) == 50_001
    assert keys.nbytes == LEAST_CACHE_NBYTES
    assert os.listdir(tmp_path) == []


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpillError, match=r"missing.*pass another folder as spill="):
        SpilledKeys(str(tmp_path / "missing"), LEAST_CACHE_NBYTES)


def test_a_full_disk_is_an_error_that_says_what_to_do(keys: SpilledKeys) -> None:
    keys._table.execute("PRAGMA max_page_count=16")
    with pytest.raises(SpillError, match="cannot write keys: database or disk is full; free space"):
        keys.add_all(range(10_000))
    with pytest.raises(SpillError):
        list(map(keys.add, range(10_000, 20_000)))
