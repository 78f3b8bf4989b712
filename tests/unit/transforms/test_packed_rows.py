"""Pieces of rows lie one after another in a packed row, with marks that tell them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aiostream_data.errors import BatchShapeError, PlanError
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Columns, Items
from aiostream_data.rows.row_ids import CUT, NUMBERED, RowIds
from aiostream_data.rows.structure import structure_of
from aiostream_data.transforms.filling import fill_rows
from aiostream_data.transforms.lengths import leaves_of, row_lengths
from aiostream_data.transforms.packed_rows import pack_rows
from aiostream_data.transforms.packing import Bin, PackedPiece
from aiostream_data.transforms.pieces import with_pieces, without_pieces


def where(row: int) -> str:
    return f"row {row}"


def items(*elements: Any) -> Items:
    return Items(list(elements), RowIds.run(0, 0, len(elements)))


def packed(rows: Any, bins: list[Bin], width: int, fields: Any = None, padding: Any = None) -> list[Any]:
    return [array.tolist() for array in pack_rows(rows, bins, width, fields, padding, where)]


BINS = [Bin(5, [PackedPiece(0, 0, 2), PackedPiece(1, 0, 1)]), Bin(5, [PackedPiece(2, 1, 3)])]
SEGMENTS = [[1, 1, 2, 0, 0], [1, 1, 0, 0, 0]]
POSITIONS = [[0, 1, 0, 0, 0], [0, 1, 0, 0, 0]]


def test_pieces_are_laid_one_after_another_and_marked() -> None:
    rows = [np.array([1, 2]), np.array([3]), np.array([4, 5, 6])]
    assert packed(items(*rows), BINS, 5) == [[[1, 2, 3, 0, 0], [5, 6, 0, 0, 0]], SEGMENTS, POSITIONS]
    assert packed(items(*map(list, rows)), BINS, 5, padding=-1)[0] == [[1, 2, 3, -1, -1], [5, 6, -1, -1, -1]]


def test_columns_are_packed_without_looking_at_rows() -> None:
    ragged = VarColumn(np.arange(10, 16), np.array([0, 2, 3]), np.array([2, 1, 3]), "array")
    dense = np.arange(9.0).reshape(3, 3)
    chunk = Columns(structure_of({"a": 0, "b": 0}), (ragged, dense), RowIds.run(0, 0, 3))
    leaves = packed(chunk, BINS, 5, padding={"b": 0.5})
    assert leaves[0] == [[10, 11, 12, 0, 0], [14, 15, 0, 0, 0]]
    assert leaves[1] == [[0, 1, 3, 0.5, 0.5], [7, 8, 0.5, 0.5, 0.5]]
    assert packed(chunk, BINS, 5, ("b",))[1:] == [SEGMENTS, POSITIONS]


def test_further_axes_are_kept() -> None:
    rows = items(*(np.full((length, 2), length) for length in (2, 1, 3)))
    arrays = pack_rows(rows, BINS, 5, None, None, where)
    assert arrays[0].shape == (2, 5, 2)
    assert arrays[0][0, :, 1].tolist() == [2, 2, 1, 0, 0]
    assert [array.dtype for array in arrays[1:]] == [np.int32, np.int32]


def test_rows_that_cannot_be_packed_are_named() -> None:
    with pytest.raises(BatchShapeError, match=r"array of int64 in row 0 but an array of float64 in row 1"):
        packed(items(np.ones(2, int), np.ones(1), np.ones(3, int)), BINS, 5)
    with pytest.raises(BatchShapeError, match=r"leaf 'x': it is not an array in row 0"):
        packed(items({"x": "ab"}, {"x": "c"}, {"x": "def"}), BINS, 5)
    with pytest.raises(PlanError, match=r"cannot pad leaf 'element' with -1: the leaf is uint8"):
        packed(items(*(np.ones(3, np.uint8) for _ in range(3))), BINS, 5, padding=-1)


def test_a_row_without_pieces_is_all_filling() -> None:
    nothing = VarColumn(np.arange(3), np.array([0]), np.array([3]), "array")
    assert fill_rows(nothing, np.array([0, 1, 0]), 4, 9).tolist() == [[9] * 4, [0, 1, 2, 9], [9] * 4]


def test_ids_name_the_piece_of_a_row_that_was_split_and_no_other() -> None:
    plain, cut = RowIds.run(7, 0, 3), RowIds.run(7, 0, 3).with_pair(CUT, np.arange(3))
    numbered = RowIds.run(7, 0, 3).with_pair(NUMBERED, 9).with_pair(CUT, 4)
    pieces = [PackedPiece(0, 0, 5, False), PackedPiece(1, 0, 3), PackedPiece(2, 5, 7)]
    for ids in (plain, cut, numbered):
        named = with_pieces(Lineage(ids), pieces, 5)
        rows, numbers = without_pieces(named)
        assert numbers == [0, -1, 1]
        assert rows.ids == ids
        whole = [PackedPiece(row, 0, 5) for row in range(3)]
        assert with_pieces(Lineage(ids), whole, 5).ids is ids
        assert without_pieces(Lineage(ids))[1] == [-1, -1, -1]


# -- lengths


def test_lengths_come_from_columns_and_values_alike() -> None:
    ragged = VarColumn(np.arange(6), np.array([0, 2]), np.array([2, 4]), "array")
    text = VarColumn(np.frombuffer("äbc".encode(), np.uint8), np.array([0, 2]), np.array([2, 2]), "str")
    chunk = Columns(structure_of({"r": 0, "t": 0, "d": 0}), (ragged, text, np.zeros((2, 3))), RowIds.run(0, 0, 2))
    rows = Items(chunk.elements(), chunk.ids)
    for name, expected in {"r": [2, 4], "t": [1, 2], "d": [3, 3]}.items():
        for source in (chunk, rows):
            assert row_lengths(leaves_of(source, (name,)), where).tolist() == expected


def test_leaves_that_go_together_have_one_length() -> None:
    rows = items({"a": [1, 2], "b": [1, 2]}, {"a": [1], "b": [1, 2]})
    with pytest.raises(BatchShapeError, match=r"row 1: leaf 'a' has 1 values, but leaf 'b' has 2"):
        row_lengths(leaves_of(rows, None), where)


def test_what_has_no_length_is_named() -> None:
    with pytest.raises(BatchShapeError, match=r"leaf 'a' in row 1: the value is of type int"):
        row_lengths(leaves_of(items({"a": [1]}, {"a": 2}), ("a",)), where)
    with pytest.raises(BatchShapeError, match=r"cannot determine the length of leaf .* in row 0"):
        row_lengths(leaves_of(Columns(structure_of(0), (np.arange(2),), RowIds.run(0, 0, 2)), None), where)
    with pytest.raises(PlanError, match=r"unknown leaf 'c'\. Use one of the leaves 'a'"):
        leaves_of(items({"a": [1]}), ("c",))
    with pytest.raises(BatchShapeError, match="cannot combine the rows"):
        leaves_of(items({"a": [1]}, {"b": [1]}), ("a",))
