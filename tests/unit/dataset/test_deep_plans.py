"""Plans with very many operators: loops over concatenate, and a limit that is named before Python's own."""

from __future__ import annotations

from functools import reduce

import pytest

from aiostream_data import Dataset
from aiostream_data.errors import PlanError


def test_datasets_can_be_concatenated_in_a_loop() -> None:
    parts = [Dataset.range(number, number + 2) for number in range(600)]
    joined = reduce(lambda joined, part: joined.concatenate(part), parts)
    assert list(joined) == [row for number in range(600) for row in (number, number + 1)]


def test_a_loop_and_one_call_make_the_same_plan() -> None:
    first, second, third = (Dataset.range(number).shuffle(5) for number in (3, 4, 5))
    loop, call = first.concatenate(second).concatenate(third), Dataset.concatenate(first, second, third)
    with loop.open(seed=1) as one, call.open(seed=1) as other:
        assert list(one) == list(other)
    assert loop.explain() == call.explain()


def test_too_many_operators_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.getrecursionlimit", lambda: 1000)  # other tests may have raised it
    with pytest.raises(PlanError, match=r"more than \d+ operators one after another"):
        reduce(lambda dataset, _: dataset.map(abs), range(2000), Dataset.range(3))
