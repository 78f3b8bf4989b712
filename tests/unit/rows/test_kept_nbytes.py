"""The size of an object that a user function keeps includes its attributes and its items."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from aiostream_data.rows.kept_nbytes import kept_nbytes

LARGE = 1_000_000


class Keeper:
    """Keeps something in an attribute."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept


class Slotted:
    """Keeps something in a slot."""

    __slots__ = ("kept", "missing")

    def __init__(self, kept: Any) -> None:
        self.kept = kept


class Unreadable:
    """Raises an error when anything is read."""

    @property
    def nbytes(self) -> int:
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    "value",
    [
        bytes(LARGE),
        np.zeros(LARGE, np.uint8),
        [bytes(LARGE)],
        {"key": bytes(LARGE)},
        {bytes(LARGE): "value"},
        {bytes(LARGE)},
        deque([bytes(LARGE)]),
        Keeper(bytes(LARGE)),
        Slotted([np.zeros(LARGE, np.uint8)]),
        Keeper({"a": [Keeper((bytes(LARGE),))]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_all_that_an_object_refers_to_counts(value: Any) -> None:
    assert LARGE <= kept_nbytes(value) < LARGE + 1_000


def test_an_object_that_several_parts_refer_to_counts_once() -> None:
    shared = np.zeros(LARGE, np.uint8)
    assert LARGE <= kept_nbytes([Keeper(shared), {"again": shared}]) < LARGE + 1_000


def test_objects_that_contain_themselves_have_a_size() -> None:
    keeper = Keeper([])
    keeper.kept += [keeper, keeper.kept, bytes(LARGE)]
    assert LARGE <= kept_nbytes(keeper) < LARGE + 1_000


def test_deep_containers_have_a_size() -> None:
    deep: list[Any] = [bytes(LARGE)]
    for _ in range(10_000):
        deep = [deep]
    assert kept_nbytes(deep) >= LARGE


@pytest.mark.parametrize("part", [Keeper, pytest, kept_nbytes, "text".upper], ids=lambda part: type(part).__name__)
def test_parts_of_the_program_do_not_count(part: Any) -> None:
    assert kept_nbytes([part]) < 1_000


def test_objects_that_cannot_be_read_have_some_size() -> None:
    assert 0 < kept_nbytes([Unreadable()]) < 1_000


def test_more_items_take_more_bytes() -> None:
    sizes = [kept_nbytes({number: str(number) for number in range(count)}) for count in (0, 10, 1_000)]
    assert sizes == sorted(set(sizes))
