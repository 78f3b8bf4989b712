"""Unbatching undoes batching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.errors import BatchShapeError
from aiostream_data.rows.columns import VarColumn, object_array
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF
from aiostream_data.testing.comparing import same
from aiostream_data.transforms.collate import collate
from aiostream_data.transforms.unbatch import unbatch


def describe(ids: RowIds, row: int) -> str:
    return f"record {ids.ordinals[row]}"


def items(*elements: Any) -> Items:
    return Items(list(elements), RowIds.run(0, 0, len(elements)))


def plain(chunk: Chunk) -> list[Any]:
    return [element.tolist() if isinstance(element, np.ndarray) else element for element in chunk.elements()]


def test_batches_of_several_sizes_become_columns() -> None:
    rows = unbatch(items({"a": np.arange(3)}, {"a": np.arange(3, 5)}), describe)
    assert isinstance(rows, Columns)
    assert rows.elements() == [{"a": i} for i in range(5)]
    assert rows.ids.ordinals.tolist() == [0, 0, 0, 1, 1]


def test_stacked_batches_are_split_by_reshaping() -> None:
    batches = collate([(np.zeros((2, 3)), np.array([i, i + 1])) for i in range(4)], RowIds.run(0, 0, 4))
    rows = unbatch(batches, describe)
    assert isinstance(rows, Columns)
    assert [int(y) for _, y in rows.elements()] == [0, 1, 1, 2, 2, 3, 3, 4]
    assert rows.element(0)[0].shape == (3,)
    assert rows.ids.ordinals.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("values", [[b"a", b"bc"], ["a", "bc"], [None, 1]])
def test_object_arrays_give_their_objects_back(values: list[Any]) -> None:
    assert unbatch(items(object_array(values)), describe).elements() == values


def test_ragged_arrays_split_into_rows_of_differing_length() -> None:
    ragged = RaggedArray(np.arange(5), np.array([1, 2, 2, 5]))
    rows = unbatch(items(ragged, ragged), describe)
    assert isinstance(rows, Columns)
    assert isinstance(rows.leaves[0], VarColumn)
    assert plain(rows) == [[1], [], [2, 3, 4]] * 2


@pytest.mark.parametrize(
    "values", [[1, 2], ["a", "b"], [[1, 2], [3, 4]], [[1], [2, 3]], [None, "x"], [np.zeros(2), np.ones(3)]], ids=repr
)
def test_a_list_counts_as_an_array(values: list[Any]) -> None:
    expected = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    assert plain(unbatch(items(values), describe)) == expected


def test_batches_of_different_layouts_become_items() -> None:
    rows = unbatch(items(np.zeros((1, 2)), np.zeros((2, 3))), describe)
    assert isinstance(rows, Items)
    assert plain(rows) == [[0, 0], [0, 0, 0], [0, 0, 0]]


def test_an_empty_batch_gives_no_rows() -> None:
    assert len(unbatch(items(np.zeros((0, 2))), describe)) == 0
    assert len(unbatch(items([]), describe)) == 0
    assert len(unbatch(items(), describe)) == 0


def test_sizes_that_disagree_are_named() -> None:
    chunk = items({"a": np.zeros(2), "b": np.zeros(2)}, {"a": np.zeros(2), "b": np.zeros((3, 1))})
    with pytest.raises(BatchShapeError, match=r"record 1 .*'a' has 2 rows, 'b' has 3 rows"):
        unbatch(chunk, describe)


@pytest.mark.parametrize("scalar", [1, np.float32(1), np.array(1), b"ab", "ab", None])
def test_a_leaf_without_a_first_axis_is_named(scalar: Any) -> None:
    with pytest.raises(BatchShapeError, match="'b' has no first axis"):
        unbatch(items({"a": np.zeros(2), "b": scalar}), describe)


def test_columns_of_scalars_cannot_be_split() -> None:
    with pytest.raises(BatchShapeError, match=r"record 0 .*no first axis"):
        unbatch(Columns(LEAF, (np.arange(3),), RowIds.run(0, 0, 3)), describe)


def test_an_element_without_leaves_cannot_be_split() -> None:
    with pytest.raises(BatchShapeError, match="no leaves"):
        unbatch(items({}), describe)


LEAVES: list[Callable[[int], Any]] = [
    lambda rows: np.arange(rows),
    lambda rows: np.arange(rows, dtype=np.float32),
    lambda rows: np.zeros((rows, 2)),
    lambda rows: np.arange(rows, dtype=">i2"),
    lambda rows: object_array([str(row) for row in range(rows)]),
]


@given(st.lists(st.tuples(st.sampled_from(LEAVES), st.sampled_from(LEAVES[:2]), st.integers(1, 3)), min_size=1))
def test_elements_split_together_as_they_split_alone(drawn: list[tuple[Any, Any, int]]) -> None:
    elements = [{"a": first(rows), "b": second(rows)} for first, second, rows in drawn]
    alone = [row for element in elements for row in unbatch(items(element), describe).elements()]
    together = unbatch(items(*elements), describe)
    assert same(together.elements(), alone)
    assert together.ids.last_ordinals().tolist() == [row for *_, rows in drawn for row in range(rows)]
