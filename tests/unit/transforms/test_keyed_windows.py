"""The order of windows by key, and the numbers of keys, as plain objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from aiostream_data.errors import PlanError
from aiostream_data.transforms.key_table import KeyTable
from aiostream_data.transforms.keyed_windows import KeyedOrder, KeyedWindow


def order(size: int = 2) -> KeyedOrder:
    return KeyedOrder(lambda key: size, sorted)


def told(windows: Sequence[KeyedWindow]) -> list[tuple[int, list[int]]]:
    return [(window.key, window.rows.tolist()) for window in windows]


KEYS = np.array([1, 0, 1, 1, 2, 0, 1, 0])


@pytest.mark.parametrize("cut", range(len(KEYS) + 1))
def test_windows_come_in_the_order_in_which_they_fill_whatever_the_chunks(cut: int) -> None:
    one = order()
    windows = [*one.push(KEYS[:cut]), *one.push(KEYS[cut:])]
    assert told(windows) == [(1, [0, 2]), (0, [1, 5]), (1, [3, 6])]
    assert told(one.finish()) == [(0, [7]), (2, [4])]
    assert one.rows_held() == one.groups_held() == 0


def test_a_limit_ends_the_push_behind_the_last_window() -> None:
    one = order()
    assert told(one.push(KEYS, 1)) == [(1, [0, 2])]
    assert one.pushed == 3
    assert told(one.push(KEYS[3:], 1)) == [(0, [1, 5])]
    assert one.push(KEYS[6:], 0) == []


def test_a_limit_looks_at_few_of_many_rows() -> None:
    asked: list[int] = []

    def size_of(key: int) -> int:
        asked.append(key)
        return 1

    one = KeyedOrder(size_of, sorted)
    assert told(one.push(np.arange(10_000), 2)) == [(0, [0]), (1, [1])]
    assert one.pushed == 2
    assert len(asked) < 200


def test_the_rest_comes_in_parts() -> None:
    one = order(5)
    one.push(KEYS)
    assert told(one.finish(1)) == [(0, [1, 5, 7])]
    copy = one.copy()
    assert told(one.finish()) == told(copy.finish()) == [(1, [0, 2, 3, 6]), (2, [4])]


def test_a_restored_order_goes_on() -> None:
    one = order(5)
    one.push(KEYS)
    held = KEYS[one.held()]
    again = order(5)
    again.restore(one.state(), held)
    assert told(again.push(np.array([0, 0]))) == [(0, [1, 5, 7, 8, 9])]
    with pytest.raises(ValueError, match="recomputed rows differ"):
        order(2).restore(one.state(), held)


def test_keys_have_numbers_and_an_ascending_order() -> None:
    table = KeyTable("group")
    assert table.numbers(["b", "a", "b", "c"]).tolist() == [0, 1, 0, 2]
    assert table.ascending([0, 1, 2]) == [1, 0, 2]
    assert [table.key(number) for number in range(len(table))] == ["b", "a", "c"]
    assert table.nbytes > 3 * 200


def test_scalars_of_numpy_are_keys() -> None:
    table = KeyTable("group")
    assert table.numbers([np.int64(3), 3, np.array(3), np.float32(3)]).tolist() == [0] * 4
    assert type(table.key(0)) is int


def test_keys_without_hash_or_order_are_refused() -> None:
    table = KeyTable("group")
    table.number(1)
    with pytest.raises(PlanError, match="key of type list, which is not hashable"):
        table.number([1])
    with pytest.raises(PlanError, match="type int and a key of type str, which have no order"):
        table.number("a")
    with pytest.raises(PlanError, match="NaN"):
        table.number(float("nan"))
    pairs = KeyTable("group")
    with pytest.raises(PlanError, match="without an order"):
        pairs.ascending(pairs.numbers([(0, 1), (1, None), (1, 2)]).tolist())
