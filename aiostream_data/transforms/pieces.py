"""Say in the ids of rows which piece of a row they stand for, where pack() split it into several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aiostream_data.lineage import NO_PAIR, PIECE, Ids, Lineage, last_pairs, of_one_width, with_pair, without_last_pair
from aiostream_data.transforms.packing import Piece


def with_pieces(rows: Lineage, pieces: Sequence[Piece], max_length: int) -> Lineage:
    """Return the rows of pieces, those that are but a part of their row with its number in their ids."""
    is_cut = np.array([piece.start > 0 or not piece.is_last for piece in pieces])
    if not is_cut.any():
        return rows
    numbers = np.array([piece.start // max_length for piece in pieces], np.int64)
    whole, cut = of_one_width([rows.ids, with_pair(rows.ids, PIECE, numbers)])
    return Lineage(np.where(is_cut[:, None], cut, whole), rows.made_of)


def without_pieces(pieces: Lineage) -> tuple[Lineage, list[int]]:
    """Return the rows themselves, and for each the number of its piece, or -1 where it stands for the whole row."""
    last = 2 * last_pairs(pieces.ids)
    rows = np.arange(len(pieces))
    is_cut = (pieces.ids[rows, last] == PIECE) & (last > 0)
    numbers = np.where(is_cut, pieces.ids[rows, last + 1], NO_PAIR).tolist()
    if not is_cut.any():
        return pieces, numbers
    without, whole = of_one_width([without_last_pair(pieces.ids), pieces.ids])
    ids: Ids = np.where(is_cut[:, None], without, whole)
    return Lineage(ids, pieces.made_of), numbers
