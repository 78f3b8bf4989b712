"""A shuffle buffer of Python objects measures each object once, however often it moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aiostream_data.rows import records
from aiostream_data.rows.object_nbytes import object_nbytes
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.list_slots import ListSlots


def chunk(values: list[Any]) -> Items:
    return Items(values, RowIds.run(0, 0, len(values)))


def sizes_of(rows: Chunk) -> list[int]:
    assert isinstance(rows, Items)
    return list(map(int, rows.known_sizes))


def measured(rows: Chunk) -> list[int]:
    return list(map(object_nbytes, rows.elements()))


def test_replaced_elements_have_the_sizes_of_their_own_values() -> None:
    slots = ListSlots(8)
    slots.fill(0, chunk([b"a", b"bb", b"ccc"]))
    slots.fill(3, chunk([b"dddd"]))
    given = slots.exchange(np.array([1, 1, 3]), chunk([b"x" * 10, b"y" * 20, b"z" * 30]))  # the first leaves again
    assert list(given.elements()) == [b"bb", b"x" * 10, b"dddd"]
    assert sizes_of(given) == measured(given) == [2, 10, 4]
    held = slots.take(np.arange(4))
    assert sizes_of(held) == measured(held) == [1, 20, 3, 30]


def test_the_size_of_the_store_follows_its_elements() -> None:
    slots = ListSlots(8)
    slots.fill(0, chunk([b"a" * 100, b"b" * 100]))
    before = slots.nbytes
    slots.exchange(np.array([0]), chunk([b"c" * 1000]))
    assert slots.nbytes == before + 900


def test_each_element_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def counted(value: Any) -> int:
        asked.append(value)
        return object_nbytes(value)

    monkeypatch.setattr(records, "object_nbytes", counted)
    slots = ListSlots(4)
    slots.fill(0, chunk([{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}]))
    for n in range(4, 104, 2):
        rows = chunk([{"n": n}, {"n": n + 1}])
        assert rows.nbytes > 0
        given = slots.exchange(np.array([n % 3, 3]), rows)
        assert given.nbytes > 0
        assert given.slice(1, 2).nbytes > 0
    assert sorted(value["n"] for value in asked) == list(range(104))
