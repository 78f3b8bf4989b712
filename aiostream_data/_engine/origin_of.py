"""Name the rows of an element for the user, and find a row again by its name."""

from __future__ import annotations

from typing import Any

import numpy as np

from aiostream_data._engine.origins import SPLIT_BITS, SPLIT_MASK, Origins
from aiostream_data._engine.state_writer import BookWriter, Spaces
from aiostream_data.lineage import Beside, CutFrom, Ids, Lineage, MadeOf
from aiostream_data.plan.base import Node
from aiostream_data.plan.windows import PUTS_TOGETHER
from aiostream_data.provenance import Origin
from aiostream_data.transforms.pieces import without_pieces


def rows_of(own: Ids, made_of: MadeOf | None) -> tuple[Lineage, int]:
    """Return the rows that an element was put together of, and how many times over: 0 for a row that is single."""
    if made_of is None or isinstance(made_of, (CutFrom, Beside)):
        return Lineage(own, None if made_of is None else [made_of]), 0
    rows, _ = without_pieces(made_of if isinstance(made_of, Lineage) else Lineage(made_of))
    inner = [rows_of(rows.ids[row : row + 1], rows.of(row)) for row in range(len(rows))]
    depth = max((level for _, level in inner), default=0)
    if depth == 0:
        return rows, 1
    parts = [part for part, _ in inner]
    ids = np.concatenate([part.ids for part in parts])
    return Lineage(ids, [part.of(row) for part in parts for row in range(len(part))]), depth + 1


def origins_of(own: Ids, made_of: MadeOf | None, origins: Origins, seed: int) -> list[Origin]:
    """Return where the rows of an element came from, in their order."""
    rows, depth = rows_of(own, made_of)
    return [_origin(rows.take(np.array([row])), depth, origins, seed) for row in range(len(rows))]


def _origin(row: Lineage, depth: int, origins: Origins, seed: int) -> Origin:
    split, index = _telling(row.ids, origins)
    space = origins.namespace(split >> SPLIT_BITS)
    book = BookWriter(Spaces(origins))
    book.rows(row)
    return Origin(
        url=space.url_of(split & SPLIT_MASK),
        index=index,
        epoch=space.epoch,
        offset=_offset(space.locate, split & SPLIT_MASK, index),
        seed=seed,
        row={**book.contents(), "batches": depth},
    )


def _telling(ids: Ids, origins: Origins) -> tuple[int, int]:
    """Return the pair of a row's ids that says most: of what was read from a store, or else the first."""
    pairs: list[tuple[int, int]] = [(split, index) for split, index in ids[0].reshape(-1, 2).tolist()]
    read = (pair for pair in pairs if origins.namespace(pair[0] >> SPLIT_BITS).locate is not None)
    return next(read, pairs[0])


def _offset(locate: Any, split: int, index: int) -> int | None:
    if locate is None:
        return None
    hints = locate(np.array([split]), np.array([index]))
    return int(hints[0].offset) if hints else None


def node_of_rows(plan: Node, batches: int) -> Node:
    """Return the node that gives the rows of which a plan's elements are put together, ``batches`` times over."""
    node = plan
    while batches and len(node.inputs) == 1:
        batches -= isinstance(node, PUTS_TOGETHER)
        node = node.inputs[0]
    return node
