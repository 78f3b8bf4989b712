"""Append the piece number to the ids of rows that ``pack()`` split, and remove piece numbers from ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.row_ids import PIECE
from aiostream_data.transforms.packing import PackedPiece


def with_pieces(rows: Lineage, pieces: Sequence[PackedPiece], max_length: int) -> Lineage:
    """Append the piece number to the id of each row whose piece is only a part of the original row."""
    is_cut = np.array([piece.start > 0 or not piece.is_last for piece in pieces])
    if not is_cut.any():
        return rows
    numbers = np.array([piece.start // max_length for piece in pieces], np.int64)
    return Lineage(rows.ids.with_pair(PIECE, numbers, where=is_cut), rows.made_of)


def without_pieces(pieces: Lineage) -> tuple[Lineage, list[int]]:
    """Remove the piece numbers of split rows from row ids.

    Return the row ids without piece numbers, and the piece number of each row (-1 for an unsplit row).
    """
    is_cut = pieces.ids.ends_with(PIECE)
    numbers = np.where(is_cut, pieces.ids.last_ordinals(), -1).tolist()
    if not is_cut.any():
        return pieces, numbers
    return Lineage(pieces.ids.without_pair(where=is_cut), pieces.made_of), numbers
