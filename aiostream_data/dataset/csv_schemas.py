"""Infer the schemas of CSV and JSON lines sources when a dataset is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from aiostream_data.dataset.store_questions import ask_stores
from aiostream_data.errors import NoMatchError, ObjectNotFoundError, PlanError
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import ParseExample
from aiostream_data.plan.rewrite import replaced
from aiostream_data.plan.sources import ListFiles, ReadFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiostream_data.formats.csv import CsvFormat
    from aiostream_data.formats.first_records import FirstRecords
    from aiostream_data.rows.records import ShardRef
    from aiostream_data.storage.stores import StoreSet

_HEAD_NBYTES: Final = 1 << 20
"""Maximum number of bytes of a file that determine its schema."""

_MOST_FILES: Final = 16
"""Maximum number of files to read until one has records. Files of zero bytes do not count."""

First = TypeVar("First", bound="FirstRecords")


def with_schemas(plan: Node) -> Node:
    """Return the plan with the schema of each ``from_csv()`` and ``from_jsonl()`` whose schema is inferred. Blocks.

    Each schema is inferred from the first file with records, in the order of the listing. All ranks and resumed runs
    therefore infer the same schema, and a saved state refuses another one. Damaged records are left to the reader,
    which raises or skips them.

    Raises:
        PlanError: The files are not known before reading, or a selected column does not exist.
        CsvSchemaError: No file has a row, or a header is not usable.
        JsonParseError: The first records have no common schema.
        CorruptRecordError: The records that determine the schema are all damaged.
        NoMatchError, StorageError: No file can be found or read.
    """
    return replaced(plan, lambda node: _inferred(cast(ParseExample, node)) if _is_open(node) else None)


def _is_open(node: Node) -> bool:
    return isinstance(node, ParseExample) and (
        hasattr(node.decoder, "with_types") or hasattr(node.decoder, "with_records")
    )


def _inferred(node: ParseExample) -> Node:
    source = node.input
    assert isinstance(source, ReadFiles)
    if hasattr(node.decoder, "with_records"):
        return _with_keys(node, source)
    return _with_columns(node, source)


def _with_keys(node: ParseExample, source: ReadFiles) -> Node:
    from aiostream_data.formats.first_records import FirstRecords  # needed for inferred schemas only
    from aiostream_data.formats.json_inference import has_keys

    first = ask_stores(source.storage_options, partial(_first_of, source, FirstRecords, has_keys))
    parser = cast(Any, node.decoder).with_records(first)
    return replace(node, decoder=parser, features=parser.structure.names)


def _with_columns(node: ParseExample, source: ReadFiles) -> Node:
    from aiostream_data.formats.csv_schema import FirstRows, Inference  # needed for inferred schemas only

    format, decoder = cast("CsvFormat", source.format), cast(Any, node.decoder)
    first = ask_stores(source.storage_options, partial(_first_of, source, FirstRows, lambda rows: bool(rows.records)))
    found = Inference(first.url, format.syntax, format.encoding, decoder.na_values)
    names = found.names(first)
    known = replace(format, names=names if format.header else (), named_in=first.url)
    parser = decoder.with_types(names, found.types(names, first.records), first.url)
    return replace(node, input=replace(source, format=known), decoder=parser, features=parser.select)


async def _first_of(
    source: ReadFiles, kind: Callable[..., First], is_usable: Callable[[First], bool], stores: StoreSet
) -> First:
    """Return the start of the first file that determines a schema; otherwise of a file that explains the failure."""
    read, fallback = 0, None
    async for shard in _shards(source, stores):
        content = bytearray(min(shard.nbytes or 0, _HEAD_NBYTES))
        if content:
            await stores.read_into(shard, 0, memoryview(content))
        found = kind(source.format, shard.url, source.compression, bytes(content), shard.nbytes or 0)
        if is_usable(found):
            return found
        if fallback is None or (fallback.is_blank and not found.is_blank):
            fallback = found
        read += bool(content)
        if read == _MOST_FILES:
            break
    assert fallback is not None  # a listing is never empty
    return fallback


async def _shards(source: ReadFiles, stores: StoreSet) -> AsyncIterator[ShardRef]:
    """Yield the files of a source in the order of the listing, without missing ones.

    Raises:
        NoMatchError, ObjectNotFoundError: All files are missing.
    """
    missing: Exception | None = None
    is_empty = True
    for listing in await _listings(source, stores):
        try:
            shards = await stores.glob(listing) if isinstance(listing, str) else [listing]
            for shard in shards:
                yield shard if shard.nbytes is not None else await stores.info(shard.url)
                is_empty = False
        except (NoMatchError, ObjectNotFoundError) as error:
            missing = missing or error  # the reader raises or skips it
    if is_empty and missing is not None:
        raise missing


async def _listings(source: ReadFiles, stores: StoreSet) -> Sequence[str | ShardRef]:
    """Return the patterns of a source, or the files that its index lists."""
    files = source if source.files is None else source.files
    if not isinstance(files, (ReadFiles, ListFiles)):
        raise PlanError("cannot infer a schema, because the files are elements of a dataset. Pass schema=.")
    if files.index_url is None:
        return files.patterns
    from aiostream_data.storage.index_file import choose_shards, parse_index
    from aiostream_data.storage.index_reading import read_index_bytes

    content = await read_index_bytes(stores, files.index_url)
    return choose_shards(files.index_url, parse_index(files.index_url, bytes(content)), files.patterns)
