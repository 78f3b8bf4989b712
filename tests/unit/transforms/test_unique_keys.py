"""Keys of ``unique`` in a small form, equal exactly if their values are."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import PlanError
from aiostream_data.transforms.unique_keys import MAX_TEXT, UniqueKeys, as_plain, from_plain, key_nbytes, small_key

NAN = float("nan")


class Color(IntEnum):
    RED = 1


ALIKE: list[list[Any]] = [
    [1, 1.0, True, np.int64(1), np.float32(1), np.array(1), Color.RED],
    [NAN, float("nan"), np.float32("nan"), complex("nan")],
    ["x", np.str_("x"), np.array("x")],
    [b"x", np.bytes_(b"x")],
    ["y" * 100, np.str_("y" * 100)],
    [b"y" * 100],
    [(1, ("x", NAN)), (1.0, (np.str_("x"), NAN))],
    [None],
    [()],
    [np.datetime64("2026-01-01"), np.datetime64("2026-01-01")],
    [np.timedelta64(1, "D")],
    ["nan"],
]


def test_keys_are_equal_exactly_if_their_values_are() -> None:
    groups = [{small_key(value) for value in values} for values in ALIKE]
    assert all(len(group) == 1 for group in groups)
    assert len(set().union(*groups)) == len(ALIKE)


@pytest.mark.parametrize("value", [value for values in ALIKE for value in values], ids=repr)
def test_a_key_comes_back_from_its_plain_form(value: Any) -> None:
    key = small_key(value)
    assert from_plain(as_plain(key)) == key


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, np.arange(3), object, (1, [2])], ids=repr)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(PlanError, match="Pass key="):
        small_key(value)


def test_long_text_takes_little_memory() -> None:
    assert key_nbytes(small_key("x" * 10**6)) < 200
    assert small_key("x" * MAX_TEXT) == "x" * MAX_TEXT


def test_rows_before_an_error_are_processed() -> None:
    seen = UniqueKeys(2)
    new, rows, error = seen.push([1, 1, 2, 3, [4], 5])
    assert (new, rows, len(seen), seen.first) == ([0, 2, 3], 4, 3, [1, 2])
    assert isinstance(error, PlanError)
    assert seen.push([5]) == ([0], 1, None)
