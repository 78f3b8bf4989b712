"""Pack rows of different lengths into rows of a fixed length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.stages.grouping.group_step import SortingStep, rows_of_element
from aiostream_data.errors import BatchShapeError
from aiostream_data.plan.windows import Pack, packed_structure
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, Columns, concat, lineage_of
from aiostream_data.state_fields import Part
from aiostream_data.transforms.held_rows import HeldRows
from aiostream_data.transforms.lengths import leaves_of, row_lengths, structure_of_rows
from aiostream_data.transforms.packed_rows import pack_rows
from aiostream_data.transforms.packing import Bin, PackedPiece, PackOrder
from aiostream_data.transforms.padded_room import OF_PACKED, PaddedRoom
from aiostream_data.transforms.pieces import with_pieces, without_pieces

Numbers = NDArray[np.int64]


@dataclass
class PackStep(SortingStep[PackOrder]):
    """Step of a ``Pack`` plan node: packs rows into longer rows.

    The lineage of a packed row lists the input rows in the packed row. If an input row was split, its id has an
    additional pair with the piece number.
    """

    kind: ClassVar[str] = "pack"

    def order(self) -> PackOrder:
        node: Pack = self.node
        return PackOrder(node.max_length, node.open_bins, node.too_long)

    @classmethod
    def order_schema(cls, place: Place, part: Part) -> int:
        fields = part.fields("bins", "closed", "cuts")
        bins = fields["bins"].items()
        held = sum(pieces.integer(1) for pieces in bins)
        fields["closed"].integer(0, len(bins))
        last = -1
        for cut in fields["cuts"].items(most=held):
            number, start, stop, is_last = cut.items(4, 4)
            last = number.integer(last + 1, held - 1)
            first = start.integer()
            stop.integer(first + 1)
            if not isinstance(is_last.value, bool):
                raise is_last.refused("must be true or false")
        return held

    def lengths(self, chunk: Chunk) -> Numbers:
        node: Pack = self.node
        describe = self.context.services.origins.describe
        lengths = row_lengths(leaves_of(chunk, node.fields), lambda row: describe(chunk.ids, row))
        row = int(np.argmax(lengths > node.max_length)) if len(lengths) else 0
        if node.too_long == "error" and len(lengths) and lengths[row] > node.max_length:
            raise BatchShapeError(
                f"cannot pack {describe(chunk.ids, row)}: its length {lengths[row]} exceeds max_length="
                f"{node.max_length}. Shorten the element in map(), or set too_long= to 'split', 'truncate' or 'drop'."
            )
        return lengths

    def elements(self, rows: HeldRows, groups: Sequence[Bin]) -> Chunk:
        pieces = [piece for packed in groups for piece in packed.pieces]
        return self._packed(rows.take(np.array([piece.row for piece in pieces], np.int64)), groups)

    def rows_done(self, group: Bin) -> int:
        return sum(piece.is_last for piece in group.pieces)

    async def recall(self, lineage: Lineage) -> Chunk:
        packed = []
        for element in range(len(lineage)):
            pieces = rows_of_element(lineage.of(element))
            whole, numbers = without_pieces(pieces)
            rows = await self.recall_rows(whole)
            lengths = self.lengths(rows).tolist()
            cut = [self._piece(*place) for place in zip(range(len(rows)), lengths, numbers, strict=True)]
            packed.append(self._packed(rows, [Bin(self.node.max_length, cut)]))
        return concat(packed)

    def _piece(self, row: int, length: int, number: int) -> PackedPiece:
        width: int = self.node.max_length
        start = max(0, number) * width
        return PackedPiece(
            row, start, min(start + width, length), is_last=number != 0
        )  # number 0 is the first of several pieces

    def _packed(self, rows: Chunk, bins: Sequence[Bin]) -> Chunk:
        """Build one packed row per bin. ``rows`` contains one row for each piece of an input row."""
        node: Pack = self.node
        describe = self.context.services.origins.describe
        room = PaddedRoom(self.context.services.budget.limit, OF_PACKED)
        arrays = pack_rows(
            rows, bins, node.max_length, node.fields, node.padding_values, lambda row: describe(rows.ids, row), room
        )
        structure = packed_structure(structure_of_rows(rows), node.fields)
        pieces = with_pieces(lineage_of(rows), [piece for packed in bins for piece in packed.pieces], node.max_length)
        stops = np.cumsum([len(packed.pieces) for packed in bins]).tolist()
        starts = [0, *stops[:-1]]
        made_of = [pieces.take(np.arange(*span)).as_made_of() for span in zip(starts, stops, strict=True)]
        return Columns(structure, tuple(arrays), rows.ids.take(starts), None, list(made_of))
