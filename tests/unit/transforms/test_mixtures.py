"""Mixtures are checked where they are written, and know their elements and their length as far as plans tell."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiostream_data as asd
from aiostream_data.errors import PlanError, StageBuildError
from aiostream_data.plan.mixing import Mix
from aiostream_data.transforms.interleave import Need
from aiostream_data.transforms.mixing import MixOrder

TEN, TWENTY = asd.Dataset.range(10), asd.Dataset.range(20)
WORDS = asd.Dataset.from_tensor_slices(["a", "b"])
BOTH = {"ten": TEN, "twenty": TWENTY}
Build = Callable[[], Any]

REFUSED: list[tuple[Build, str]] = [
    (lambda: asd.Dataset.sample_from([]), r"sample_from\(\) needs at least one dataset"),
    (lambda: asd.Dataset.sample_from(TEN), r"needs a list or a dict of datasets, got Dataset"),  # type: ignore[arg-type]
    (lambda: asd.Dataset.sample_from([TEN, [1]]), r"sample_from\(\) needs datasets, got list"),  # type: ignore[list-item]
    (lambda: asd.Dataset.sample_from([TEN, TEN], [1]), r"weights must have one number per dataset \(2\), got 1"),
    (lambda: asd.Dataset.sample_from(BOTH, {"ten": 1, "x": 1}), r"must have the names ten, twenty, got ten, x"),
    (lambda: asd.Dataset.sample_from(BOTH, stop="never"), r"stop must be one of first, all, got 'never'"),  # type: ignore[arg-type]
    (lambda: asd.Dataset.sample_from([TEN], seed="x"), r"seed must be an integer or None, got 'x'"),  # type: ignore[arg-type]
    (lambda: asd.Dataset.sample_from([TEN], schedule_every=0), r"schedule_every must be at least 1, got 0"),
    (lambda: asd.Dataset.sample_from([TEN.batch(2).to_device("cpu")]), r"sample_from\(\) cannot follow to_device"),
    (lambda: asd.Dataset.sample_from([TEN, WORDS]), r"is int64 in '0' and object in '1'"),
    (
        lambda: asd.Dataset.sample_from({"a": TEN, "b": TEN.enumerate()}),
        r"'a' has int64 and 'b' has \(int64, int64\)",
    ),
    (lambda: asd.Dataset.choose_from([TEN], WORDS), r"the choices of choose_from\(\) must be integers, got"),
    (lambda: asd.Dataset.choose_from([TEN], TEN.enumerate()), r"must be integers, got"),
    (lambda: asd.Dataset.choose_from([TEN], [0, 0]), r"choose_from\(\) needs datasets, got list"),  # type: ignore[arg-type]
    (lambda: asd.Dataset.choose_from([], TEN), r"choose_from\(\) needs at least one dataset"),
    (lambda: asd.Dataset.choose_from([TEN], TEN, stop="x"), r"stop must be one of first, all, got 'x'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_what_makes_no_sense_is_refused_with_rule_and_value(build: Build, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        build()


def test_a_source_that_can_be_read_once_cannot_be_read_by_two_inputs() -> None:
    once = asd.Dataset.from_iterable(iter([1, 2]))
    with pytest.raises(StageBuildError, match=r"sample_from\(\) of datasets that share a source"):
        asd.Dataset.sample_from([once, TEN, once.map(int)])
    with pytest.raises(StageBuildError, match=r"choose_from\(\) of datasets that share a source"):
        asd.Dataset.choose_from([once], once)


def test_elements_are_known_as_far_as_the_inputs_agree() -> None:
    images = [asd.Dataset.from_tensor_slices({"x": np.zeros((2, 8, side), np.uint8)}) for side in (3, 4)]
    assert asd.Dataset.sample_from(images).element_spec == {"x": asd.ArraySpec((8, None), np.dtype(np.uint8))}
    assert asd.Dataset.choose_from(images, TEN).element_spec == {"x": asd.ArraySpec((8, None), np.dtype(np.uint8))}
    numbers: asd.Dataset[int] = TEN.map(lambda number: number)
    mapped = asd.Dataset.sample_from([TEN, numbers])
    assert mapped.element_spec == asd.ArraySpec(None, None)


@pytest.mark.parametrize(
    ("dataset", "count"),
    [
        (asd.Dataset.sample_from(BOTH, stop="all"), 30),
        (asd.Dataset.sample_from(BOTH, [1, 0], stop="all"), 10),
        (asd.Dataset.sample_from(BOTH, [(0, [1, 2]), (5, [2, 1])], stop="all"), 30),
        (asd.Dataset.sample_from(BOTH, [(0, [1, 2]), (5, [2, 0])], stop="all"), asd.UNKNOWN),
        (asd.Dataset.sample_from(BOTH, lambda row: [1, 1], stop="all"), asd.UNKNOWN),
        (asd.Dataset.sample_from([TEN, TWENTY.repeat()], stop="all"), asd.INFINITE),
        (asd.Dataset.sample_from(BOTH), 20),
        (asd.Dataset.sample_from(BOTH, [0.8, 0.2]), 13),
        (asd.Dataset.sample_from(BOTH, [0.7, 0.3], random=True), asd.UNKNOWN),
        (asd.Dataset.sample_from([TEN.repeat(), TWENTY.repeat()], lambda row: [1, 1]), asd.INFINITE),
        (asd.Dataset.sample_from([TEN, TWENTY.repeat()]), 20),
        (asd.Dataset.sample_from([TEN, TWENTY.filter(bool)]), asd.UNKNOWN),
        (asd.Dataset.sample_from([TEN, TWENTY.filter(bool)], [1, 0]), 10),
        (asd.Dataset.sample_from(BOTH, [1, 0.123456789]), asd.UNKNOWN),
        (asd.Dataset.choose_from([TEN, TWENTY], TEN), asd.UNKNOWN),
        (asd.Dataset.choose_from([TEN, TWENTY], asd.Dataset.range(0)), 0),
        (asd.Dataset.choose_from([TEN.repeat(), TWENTY.repeat()], TEN), 10),
        (asd.Dataset.choose_from([TEN.repeat()], TEN.repeat()), asd.INFINITE),
    ],
)
def test_the_length_is_known_where_the_plan_tells_it(dataset: asd.Dataset[int], count: int) -> None:
    assert dataset.cardinality() == count


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), min_size=1, max_size=4))
def test_the_length_up_to_the_first_exhausted_input_is_that_of_the_order(inputs: list[tuple[int, int]]) -> None:
    if not any(weight for _, weight in inputs):
        return
    mixed = asd.Dataset.sample_from([asd.Dataset.range(rows) for rows, _ in inputs], [weight for _, weight in inputs])
    assert isinstance(mixed.plan, Mix)
    order = MixOrder(mixed.plan.schedule)
    for slot, (rows, _) in enumerate(inputs):
        order.load(slot, rows)
        order.ended(slot)
    step = order.advance(1000)
    assert step.waiting.need is Need.FINISHED
    assert mixed.cardinality() == len(step)


def test_explain_shows_names_weights_and_how_the_mixture_ends() -> None:
    shown = asd.Dataset.sample_from(BOTH, [(0, [3, 1]), (500, [1, 1])], stop="all").explain(memory_limit="1MB")
    assert "sample_from(weights=[(0, {'ten': 3, 'twenty': 1}), (500, {'ten': 1, 'twenty': 1})], stop='all')" in shown
    by_function = asd.Dataset.sample_from(BOTH, lambda row: [1, 1], random=True, seed=3, schedule_every=10)
    assert "sample_from(weights=lambda, seed=3, random=True, schedule_every=10)" in by_function.explain(
        memory_limit="1MB"
    )
    assert "choose_from()" in asd.Dataset.choose_from([TEN, TEN], TEN).explain(memory_limit="1MB")


def test_mixtures_are_picklable_plans() -> None:
    plan = asd.Dataset.sample_from(BOTH, [(0, [1, 2]), (5, [2, 1])], stop="all").plan
    copy = pickle.loads(pickle.dumps(plan))
    assert isinstance(plan, Mix)
    assert isinstance(copy, Mix)
    assert (copy.schedule, copy.stop) == (plan.schedule, plan.stop)
