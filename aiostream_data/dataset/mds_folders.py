"""Check the arguments of ``from_mds()``, and read the index of its folder when a dataset is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from aiostream_data.arguments import several, shown
from aiostream_data.codecs.images import decode_image
from aiostream_data.dataset.file_sources import Reading
from aiostream_data.dataset.store_questions import ask_stores
from aiostream_data.errors import ArgumentTypeError, MdsError, PlanError
from aiostream_data.formats.mds import MdsFormat
from aiostream_data.formats.mds_columns import IMAGES, MdsColumn
from aiostream_data.formats.mds_index import parse_mds_index
from aiostream_data.formats.mds_samples import MdsSamples
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Map, ParseExample
from aiostream_data.plan.rewrite import replaced
from aiostream_data.plan.sources import ReadFiles
from aiostream_data.safe_url import safe_url


def mds_source(folder: Any, reading: Reading, max_sample_nbytes: Any, storage_options: Any) -> ReadFiles:
    """Return the plan node that reads the shards of ``from_mds``.

    Raises:
        PlanError: An argument is invalid.
    """
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
        raise ArgumentTypeError(f"folder must be the URL or path of one folder with index.json, got {shown(folder)}")
    url = os.fspath(folder)
    index = url if url.partition("?")[0].endswith(".json") else url.rstrip("/") + "/index.json"
    node = reading.node(url, MdsFormat(max_sample_nbytes=max_sample_nbytes), storage_options, None)
    return replace(node, patterns=(), index_url=index)


def mds_samples(columns: Any) -> MdsSamples:
    """Return the decoder of ``from_mds``, without the columns that the index declares.

    Raises:
        PlanError: The argument is invalid.
    """
    if columns is None:
        return MdsSamples((), ())
    names = several("columns", columns, "a list of column names")
    if not names or len(set(names)) < len(names):
        raise PlanError(f"columns must be different names of columns, got {shown(list(names))}")
    return MdsSamples((), names)


@dataclass(frozen=True)
class ImagesDecoder:
    """Function that decodes the JPEG and PNG columns of a sample. Picklable.

    Attributes:
        names: Names of these columns; None until ``open()`` has read the index.
    """

    names: tuple[str, ...] | None = None

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, **{name: decode_image(sample[name]) for name in self.names or ()}}


def with_columns(plan: Node) -> Node:
    """Return the plan with the columns and the compression of each ``from_mds()``, as its index declares. Blocks.

    Raises:
        MdsError: The index is damaged, or a column cannot be read.
        PlanError: A selected column does not exist.
        StorageError: The index cannot be read.
    """
    known = replaced(plan, lambda node: _known(cast(ParseExample, node)) if _is_open(node) else None)
    return replaced(known, _with_images)


def _is_open(node: Node) -> bool:
    return isinstance(node, ParseExample) and isinstance(node.decoder, MdsSamples) and not node.decoder.columns


def _known(node: ParseExample) -> ParseExample:
    from aiostream_data.storage.index_reading import read_index_bytes  # needed for MDS folders only

    source, url = cast(ReadFiles, node.input), cast(ReadFiles, node.input).index_url
    assert url is not None
    content = ask_stores(source.storage_options, lambda stores: read_index_bytes(stores, url))
    index = parse_mds_index(url, bytes(content))
    names = cast(MdsSamples, node.decoder).select or tuple(column.name for column in index.columns)
    _check_columns(url, index.columns, names)
    format = replace(cast(MdsFormat, source.format), columns=index.columns, samples=index.samples)
    return replace(
        node,
        input=replace(source, format=format, compression=index.compression),
        decoder=MdsSamples(index.columns, names),
        features=names,
    )


def _check_columns(url: str, columns: Sequence[MdsColumn], names: Sequence[str]) -> None:
    """Raise an error if a selected column does not exist or cannot be read."""
    problems = {column.name: column.problem for column in columns}
    for name in names:
        if name not in problems:
            raise PlanError(f"{safe_url(url)} has no column {name!r}. Its columns are {list(problems)}.")
        if problems[name] is not None:
            reason = f"the column {problems[name]}. Select other columns with columns=[...]"
            raise MdsError(url, None, name, reason)


def _with_images(node: Node) -> Node | None:
    """Return a ``map`` of :class:`ImagesDecoder` directly behind ``from_mds()`` with the names of its columns.

    Return None for all other nodes.
    """
    if not isinstance(node, Map) or not isinstance(node.function, ImagesDecoder):
        return None
    samples = cast(MdsSamples, cast(ParseExample, node.input).decoder)
    images = [column.name for column in samples.columns if column.encoding in IMAGES]
    return replace(node, function=ImagesDecoder(tuple(name for name in images if name in samples.select)))


def images_decoder(decode: Any) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Return the function for a ``decode`` argument: True, False or None.

    Raises:
        PlanError: The argument is invalid.
    """
    if decode is None or decode is False:
        return None
    if decode is not True:
        raise ArgumentTypeError(f"decode must be True or None, got {type(decode).__name__}")
    return ImagesDecoder()
