"""Filter: order, structure, and what a predicate may return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiostream_data as asd
from aiostream_data.errors import PlanError

TEN = asd.Dataset.range(10)


def test_filter_keeps_order_across_chunks() -> None:
    assert list(asd.Dataset.range(20_000).filter(lambda x: x % 3 == 1)) == list(range(1, 20_000, 3))


def test_filter_may_keep_all_or_nothing() -> None:
    assert list(TEN.filter(lambda x: True)) == list(range(10))
    assert list(TEN.filter(lambda x: False)) == []


@pytest.mark.parametrize("convert", [bool, np.bool_, lambda x: np.array(bool(x))])
def test_a_predicate_may_return_any_scalar_bool(convert: Any) -> None:
    assert list(TEN.filter(lambda x: convert(x > 7))) == [8, 9]


@pytest.mark.parametrize("wrong", [None, 1, 0, "yes", np.array([True]), 1.0])
def test_a_predicate_that_returns_something_else_is_refused(wrong: Any) -> None:
    with pytest.raises(PlanError, match="scalar bool"):
        list(TEN.filter(lambda x: wrong))


@pytest.mark.parametrize("row", [0, 5, 9])
def test_a_predicate_that_returns_none_is_refused_whichever_element_it_is(row: int) -> None:
    with pytest.raises(PlanError, match=r"scalar bool.*returned None"):
        list(TEN.filter(lambda x: None if x == row else True))  # type: ignore[arg-type, return-value]


def test_a_wrong_result_of_a_predicate_names_the_record() -> None:
    with pytest.raises(PlanError) as caught:
        list(TEN.filter(lambda x: True if x < 4 else "no"))  # type: ignore[arg-type, return-value]
    assert "record: range record 4" in caught.value.__notes__


def test_filter_sees_batches_as_arrays() -> None:
    batches = TEN.batch(4).filter(lambda batch: batch.sum() > 10)
    assert [batch.tolist() for batch in batches] == [[4, 5, 6, 7], [8, 9]]


def test_filter_keeps_elements_that_are_none() -> None:
    assert list(asd.Dataset.from_iterable([None, 1, None]).filter(lambda x: x is None)) == [None, None]
