"""Decode serialized records into columns. Name the record in the error if an element is not serialized bytes."""

from __future__ import annotations

from collections.abc import Callable

from aiostream_data._engine.failures.element_summary import summary
from aiostream_data._engine.resume.origins import Origins
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import Decoder
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Columns, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.rows.structure import LEAF
from aiostream_data.transforms.collate import collate


def parse_rows(decoder: Decoder, chunk: Chunk, origins: Origins) -> Chunk:
    """Parse a chunk of serialized records into one array per field.

    Raises:
        PlanError: An element is not bytes. A note on the error names the record of that element.
        DataError: A record cannot be parsed.
    """
    given = chunk
    if isinstance(chunk, Items):
        chunk = collate(chunk.values, chunk.ids)
    if not isinstance(chunk, Columns) or not _is_bytes(chunk):
        raise _not_bytes(given, origins.describe)

    def describe(row: int) -> tuple[str, int]:
        return origins.url_and_index(*chunk.ids.pairs_of(row)[0])

    parsed = decoder.parse(chunk, describe)
    return parsed if given.made_of is None else parsed.with_made_of(given.made_of)


def _is_bytes(chunk: Columns) -> bool:
    leaf = chunk.leaves[0]
    return chunk.structure == LEAF and isinstance(leaf, VarColumn) and leaf.kind == "bytes"


def _cure(element: object) -> str:
    is_batch = getattr(element, "shape", ()) != ()
    return ". Put parse_example() before batch()." if is_batch else ". Read TFRecord files with from_tfrecord()."


def _not_bytes(chunk: Chunk, describe: Callable[[RowIds, int], str]) -> PlanError:
    elements = chunk.elements()
    row = next((row for row, element in enumerate(elements) if not isinstance(element, bytes)), 0)
    found = f"{summary(elements[row])}{_cure(elements[row])}"
    error = PlanError(f"parse_example() needs elements that are serialized bytes, got {found}")
    error.add_note(f"record: {describe(chunk.ids, row)}")
    return error
