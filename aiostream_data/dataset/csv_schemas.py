"""Infer the schemas of CSV and JSON lines sources when a dataset is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from aiostream_data.dataset.store_questions import ask_stores
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import ParseExample
from aiostream_data.plan.rewrite import replaced
from aiostream_data.plan.sources import ListFiles, ReadFiles

if TYPE_CHECKING:
    from aiostream_data.formats.csv import CsvFormat
    from aiostream_data.plan.sources import FormatLike
    from aiostream_data.rows.records import ShardRef
    from aiostream_data.storage.stores import StoreSet

_HEAD_NBYTES: Final = 1 << 20
"""Maximum number of bytes of a file that determine its schema."""


def with_schemas(plan: Node) -> Node:
    """Return the plan with the schema of each ``from_csv()`` and ``from_jsonl()`` whose schema is inferred. Blocks.

    Each schema is inferred from the first file in the order of the listing. All ranks and resumed runs therefore infer
    the same schema, and a saved state refuses another one.

    Raises:
        PlanError: The files are not known before reading, or a selected column does not exist.
        CsvSchemaError: The first file has no usable header.
        JsonParseError: The first records have no common schema.
        NoMatchError, StorageError: The first file cannot be found or read.
    """
    return replaced(plan, lambda node: _inferred(cast(ParseExample, node)) if _is_open(node) else None)


def _is_open(node: Node) -> bool:
    return isinstance(node, ParseExample) and (
        hasattr(node.decoder, "with_types") or hasattr(node.decoder, "with_records")
    )


def _inferred(node: ParseExample) -> Node:
    from aiostream_data.formats.csv_schema import Inference  # needed for inferred schemas only

    source, decoder = node.input, cast(Any, node.decoder)
    assert isinstance(source, ReadFiles)
    url, records = ask_stores(source.storage_options, partial(_head, source))
    if hasattr(decoder, "with_records"):
        json_parser = decoder.with_records(url, records)
        return replace(node, decoder=json_parser, features=json_parser.structure.names)
    format = cast("CsvFormat", source.format)
    found = Inference(url, format.syntax, format.encoding, decoder.na_values)
    names = found.names(records, format.header)
    types = found.types(names, records[format.header :])
    known = replace(format, names=names if format.header else (), named_in=url)
    parser = decoder.with_types(names, types)
    return replace(node, input=replace(source, format=known), decoder=parser, features=parser.select)


async def _head(source: ReadFiles, stores: StoreSet) -> tuple[str, list[bytes]]:
    """Return the URL of the first file, and its first records with the header."""
    shard = await _first_shard(source, stores)
    content = bytearray(min(shard.nbytes or 0, _HEAD_NBYTES))
    await stores.read_into(shard, 0, memoryview(content))
    return shard.url, _records(source, shard, bytes(content))


async def _first_shard(source: ReadFiles, stores: StoreSet) -> ShardRef:
    patterns: Sequence[str] = source.patterns
    if isinstance(source.files, ListFiles):
        patterns = source.files.patterns
    elif source.files is not None:
        raise PlanError("cannot infer a schema, because the files are elements of a dataset. Pass schema=.")
    if source.index_url is not None:
        from aiostream_data.storage.index_file import choose_shards, parse_index
        from aiostream_data.storage.index_reading import read_index_bytes

        content = await read_index_bytes(stores, source.index_url)
        return choose_shards(source.index_url, parse_index(source.index_url, bytes(content)), patterns)[0]
    found = (await stores.glob(patterns[0]))[0]
    return found if found.nbytes is not None else await stores.info(found.url)


def _without_header(format: FormatLike) -> FormatLike:
    """Return the format of a file whose first record is a record as any other."""
    from aiostream_data.formats.csv import CsvFormat

    return replace(format, header=False, names=()) if isinstance(format, CsvFormat) else format


def _records(source: ReadFiles, shard: ShardRef, content: bytes) -> list[bytes]:
    """Return the records at the start of a file. Damage behind the first record is left to the reader of the file."""
    import numpy as np

    from aiostream_data.errors import CorruptRecordError
    from aiostream_data.formats.csv_schema import INFERRED_ROWS  # as many as for JSON
    from aiostream_data.formats.stream import RecordStream

    stream = RecordStream(_without_header(source.format), shard.url, source.compression)
    records: list[bytes] = []
    try:
        for column in stream.feed(np.frombuffer(content, np.uint8), 0):
            records += column.slice(0, INFERRED_ROWS + 1).elements()
            if len(records) > INFERRED_ROWS:
                return records
        if len(content) == (shard.nbytes or 0):
            for column in stream.finish():
                records += column.elements()
    except CorruptRecordError:
        if not records:
            raise
    return records
