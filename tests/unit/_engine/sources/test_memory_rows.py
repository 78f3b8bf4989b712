"""Repetitions of in-memory sources: short ones share chunks, and ids name the repetition."""

from __future__ import annotations

from itertools import islice, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._engine.resume.origins import Namespace
from aiostream_data._engine.sources.memory_rows import SHORT_ROWS, chunks_of, rows_of
from aiostream_data.plan.sources import Range, TensorSlices
from aiostream_data.rows.structure import LEAF

NAMESPACE = Namespace(1, 0, 0, str, 1 << 40)


def numbers(rows: int, times: int | None) -> Range:
    return Range(start=5, stop=5 + 3 * rows, step=3, times=times)


def slices(rows: int, times: int | None) -> TensorSlices:
    return TensorSlices(structure=LEAF, leaves=(5 + 3 * np.arange(rows),), rows=rows, times=times)


@given(st.sampled_from([numbers, slices]), st.integers(0, 40), st.integers(0, 60), st.integers(0, 900))
def test_every_repetition_has_all_rows_in_order(source: Any, rows: int, times: int, skip: int) -> None:
    chunks = list(chunks_of(source(rows, times), NAMESPACE, skip))
    expected = list(product(range(times), range(rows)))[skip:]
    assert [int(value) for chunk in chunks for value in chunk.elements()] == [5 + 3 * row for _, row in expected]
    assert [pair for chunk in chunks for pair in chunk.ids.tolist()] == [
        [(1 << 40) + time, row] for time, row in expected
    ]
    assert all(len(chunk) for chunk in chunks)


@pytest.mark.parametrize("source", [numbers, slices])
@pytest.mark.parametrize("rows", [1, 7, SHORT_ROWS - 1, SHORT_ROWS, SHORT_ROWS + 1])
def test_endless_repetitions_continue(source: Any, rows: int) -> None:
    chunks = list(islice(chunks_of(source(rows, None), NAMESPACE, rows - 1), 20))
    values = np.concatenate([np.asarray(chunk.elements()) for chunk in chunks])
    assert (values == 5 + 3 * ((rows - 1 + np.arange(len(values))) % rows)).all()


@pytest.mark.parametrize("source", [numbers, slices])
def test_no_rows_end_endless_repetitions(source: Any) -> None:
    assert list(chunks_of(source(0, None), NAMESPACE)) == []


@pytest.mark.parametrize("source", [numbers, slices])
def test_rows_are_found_again_by_their_ids(source: Any) -> None:
    node = source(7, 30)
    for chunk in chunks_of(node, NAMESPACE, 3):
        again = rows_of(node, NAMESPACE, chunk.ids.splits & 0xFF, chunk.ids.ordinals)
        assert again.elements() == chunk.elements()
        assert again.ids == chunk.ids


def test_many_short_repetitions_need_few_chunks() -> None:
    assert sum(1 for _ in chunks_of(numbers(10, 20_000), NAMESPACE)) < 10
