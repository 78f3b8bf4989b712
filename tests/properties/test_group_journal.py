"""A journal finds the place of an order after any group again, also when what came long before was forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiostream_data._engine.resume import group_history as group_journal
from aiostream_data._engine.resume.group_history import GroupJournal
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.bucketing import BucketOrder
from aiostream_data.transforms.packing import PackOrder

ORDERS: list[Callable[[], Any]] = [
    lambda: BucketOrder([3, 6], [2, 4, 3]),
    lambda: BucketOrder([4], [9, 2], drop_remainder=True),
    lambda: PackOrder(7, 2, "split"),
    lambda: PackOrder(9, 3, "truncate"),
]


@pytest.fixture(autouse=True)
def few_rows_between_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_journal, "MARK_ROWS", 3)


def lineage(first: int, count: int) -> Lineage:
    ids = RowIds.run(5, first, count)
    return Lineage(ids, [ids.row(row) for row in range(count)])


def named(group: Any, names: list[int]) -> list[tuple[int, ...]]:
    if hasattr(group, "pieces"):
        return [(names[piece.row], piece.start, piece.stop) for piece in group.pieces]
    return [(names[row],) for row in group.rows.tolist()]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(ORDERS),
    st.lists(st.integers(0, 14), max_size=60),
    st.lists(st.integers(0, 9), max_size=12),
    st.lists(st.booleans(), min_size=70, max_size=70),
    st.booleans(),
)
def test_what_follows_a_place_is_what_followed_it_then(
    make: Callable[[], Any], lengths: list[int], cuts: list[int], forgets: list[bool], asked_late: bool
) -> None:
    array = np.array(lengths, np.int64)
    unbroken = make()
    rows = list(range(len(lengths)))
    whole = [named(group, rows) for group in [*unbroken.push(array), *unbroken.finish()]]
    order = make()
    journal = GroupJournal(order)
    given_groups = asked = first = 0
    for stop in [*np.cumsum(cuts).tolist(), len(lengths)]:
        part = array[first : min(stop, len(array))]
        given_groups += len(journal.push(order, part, lineage(first, len(part))))
        first += len(part)
        while asked <= given_groups and not asked_late:
            check_place(journal, make, array, asked, whole)
            if forgets[asked]:
                journal.forget(asked)
            asked += 1
    given_groups += len(order.finish())
    for group in range(asked, given_groups + 1):
        check_place(journal, make, array, group, whole)
        if forgets[group]:
            journal.forget(group)


def check_place(journal: Any, make: Callable[[], Any], array: Any, place: int, whole: list[Any]) -> None:
    """Go on from a place with a fresh order and the rows that were held."""
    then, held = journal.at(place)
    ordinals = held.ids.ordinals
    assert [entry.ordinals[0] for entry in held.made_of or []] == ordinals.tolist()
    fresh = make()
    fresh.restore(then.state(), array[ordinals])
    names = [*ordinals.tolist(), *range(then.pushed, len(array))]
    left = [*fresh.push(array[then.pushed :]), *fresh.finish()]
    assert [named(group, names) for group in left] == whole[place:]


def test_a_journal_that_began_with_held_rows_goes_on_numbering_them() -> None:
    lengths = np.array([1, 1, 5, 2, 9, 9, 9], np.int64)
    order = BucketOrder([3, 6], [2, 4, 3])
    order.restore({"held": 1}, lengths[:1])
    journal = GroupJournal(order)
    journal.begin(order, lengths[:1], lineage(0, 1))
    assert len(journal.push(order, lengths[1:], lineage(1, 6))) == 2
    then, held = journal.at(0)
    assert (then.pushed, held.ids.ordinals.tolist()) == (1, [0])
    then, held = journal.at(1)
    assert held.ids.ordinals.tolist() == list(range(2, then.pushed))


def test_what_was_forgotten_is_dropped() -> None:
    order = BucketOrder([], [10])
    journal = GroupJournal(order)
    for first in range(0, 10_000, 100):
        journal.push(order, np.ones(100, np.int64), lineage(first, 100))
        assert journal.forget((first + 100) // 10) >= first
    assert len(journal._came) <= 2
    with pytest.raises(ValueError, match="discarded"):
        journal.at(3)
