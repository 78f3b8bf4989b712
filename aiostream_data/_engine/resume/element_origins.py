"""Compute the origins (URL and index) of an element's rows, and find the node that emits the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aiostream_data._engine.resume.lineage_writer import BookWriter, Spaces
from aiostream_data._engine.resume.origins import Origins
from aiostream_data.plan.base import Node
from aiostream_data.plan.collated import CollatedBatch
from aiostream_data.plan.costs import CostBatch
from aiostream_data.plan.keyed import WINDOW
from aiostream_data.plan.operators import Batch
from aiostream_data.plan.windows import Bucket, Pack, PaddedBatch, Rebatch, Window
from aiostream_data.rows.id_arrays import SPLIT_BITS, SPLIT_MASK
from aiostream_data.rows.lineage import Beside, CutFrom, Lineage, MadeOf
from aiostream_data.rows.provenance import Origin
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.pieces import without_pieces

_PUTS_TOGETHER = (Batch, CollatedBatch, CostBatch, PaddedBatch, Rebatch, Window, Bucket, Pack)
"""Operators that combine several rows into one element."""


def rows_of(own: RowIds, made_of: MadeOf | None) -> tuple[Lineage, int]:
    """Return the rows that were batched into an element, and the nesting depth of the batches: 0 for a single row."""
    if made_of is None or isinstance(made_of, (CutFrom, Beside)):
        return Lineage(own, None if made_of is None else [made_of]), 0
    rows, _ = without_pieces(made_of if isinstance(made_of, Lineage) else Lineage(made_of))
    inner = [rows_of(rows.ids.row(row), rows.of(row)) for row in range(len(rows))]
    depth = max((level for _, level in inner), default=0)
    if depth == 0:
        return rows, 1
    parts = [part for part, _ in inner]
    ids = RowIds.concat([part.ids for part in parts])
    return Lineage(ids, [part.of(row) for part in parts for row in range(len(part))]), depth + 1


def origins_of(own: RowIds, made_of: MadeOf | None, origins: Origins, seed: int) -> list[Origin]:
    """Return the origin of each row of an element, in the order of the rows."""
    rows, depth = rows_of(own, made_of)
    return [_origin(rows.take(np.array([row])), depth, origins, seed) for row in range(len(rows))]


def element_origin(own: RowIds, made_of: MadeOf | None, origins: Origins, seed: int) -> Origin:
    """Return one origin for an element, even if the element is a batch.

    The URL and the index belong to the element's first row.
    """
    whole = Lineage(own, None if made_of is None else [made_of])
    first = rows_of(own, made_of)[0].take(np.array([0]))
    book = BookWriter(Spaces(origins))
    book.rows(whole)
    return replace(_origin(first, 0, origins, seed), row={**book.contents(), "batches": 0})


def _origin(row: Lineage, depth: int, origins: Origins, seed: int) -> Origin:
    split, index = origins.telling(_in_window(row, origins).pairs_of(0))
    space = origins.namespace(split >> SPLIT_BITS)
    hint = origins.offset_of(split, index)
    book = BookWriter(Spaces(origins))
    book.rows(row)
    return Origin(
        url=space.url_of(split & SPLIT_MASK),
        index=index,
        epoch=space.epoch_of(split & SPLIT_MASK),
        offset=None if hint is None else hint.offset,
        seed=seed,
        row={**book.contents(), "batches": depth},
    )


def _in_window(row: Lineage, origins: Origins) -> RowIds:
    """Return the ids of the row from which a row of ``group_by_window`` was made, or the ids of the row itself."""
    entry = row.of(0)
    window = entry.of(1) if isinstance(entry, Beside) else None
    if not isinstance(entry, Beside) or window is None or isinstance(entry.of(0), Beside):
        return row.ids
    split, number = row.ids.pairs_of(0)[0]
    if origins.namespace(split >> SPLIT_BITS).url_of(split & SPLIT_MASK) != WINDOW or number >= len(window):
        return row.ids
    rows = window if isinstance(window, Lineage) else Lineage(window)
    return _in_window(rows.slice(number, number + 1), origins)


def node_of_rows(plan: Node, batches: int) -> Node:
    """Return the node that emits the single rows of a plan's elements, before they are batched ``batches`` times."""
    node = plan
    while batches and len(node.inputs) == 1:
        batches -= isinstance(node, _PUTS_TOGETHER)
        node = node.inputs[0]
    return node
