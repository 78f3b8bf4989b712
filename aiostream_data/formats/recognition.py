"""Recognize the formats of files by their names and first bytes, and the layouts of folders."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from aiostream_data.codecs import file_kinds
from aiostream_data.codecs.compression import decompressor, detect
from aiostream_data.codecs.compression_by_suffix import named_compressed
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats import image_folder
from aiostream_data.formats.hdf5_user_block import has_user_block
from aiostream_data.formats.plugins import FormatPlugin, FoundPlugin, marked, named

START_NBYTES: Final = 1 << 16
"""Number of bytes at the start of a file to inspect."""

_PLUGIN: Final = "from_format"
_TEXT_NBYTES: Final = 4096
"""Maximum number of decompressed bytes that must be text."""

_DELIMITERS: Final = ("\t", ";", "|")
"""Delimiters of CSV files whose header contains no comma."""

_QUOTED: Final = re.compile(rb'"[^"]*"')
_SPLITS: Final = frozenset(("train", "training", "val", "valid", "validation", "dev", "test", "testing"))


class FileFormat(NamedTuple):
    """A format that a constructor of :class:`Dataset` reads.

    Attributes:
        name: Name of the format, for messages.
        constructor: Name of the constructor.
        arguments: Arguments of the constructor besides the files: pairs of name and value.
    """

    name: str
    constructor: str
    arguments: tuple[tuple[str, Any], ...] = ()

    @property
    def is_plugin(self) -> bool:
        """True for a format of another distribution."""
        return self.constructor == _PLUGIN


TFRECORD: Final = FileFormat("TFRecord", "from_tfrecord")
CSV: Final = FileFormat("CSV", "from_csv")
TSV: Final = FileFormat("TSV", "from_csv", (("delimiter", "\t"),))
JSON_LINES: Final = FileFormat("JSON lines", "from_jsonl")
TEXT: Final = FileFormat("text lines", "from_text")
TAR: Final = FileFormat("WebDataset", "from_webdataset")
PARQUET: Final = FileFormat("Parquet", "from_parquet")
PARTITIONED_PARQUET: Final = FileFormat("Parquet", "from_parquet", (("partitions", True),))
ARROW: Final = FileFormat("Arrow IPC", "from_arrow")
NUMPY: Final = FileFormat("NumPy", "from_npy")
HDF5: Final = FileFormat("HDF5", "from_hdf5")
ARRAY_RECORD: Final = FileFormat("ArrayRecord", "from_array_record")
IMAGES: Final = FileFormat("images", "from_files")
IMAGE_FOLDER: Final = FileFormat("folder of images", "from_image_folder")
MDS: Final = FileFormat("MosaicML MDS", "from_mds")
TFDS: Final = FileFormat("TensorFlow Datasets", "from_tfds")
DELTA: Final = FileFormat("Delta table", "from_delta")

_BY_SUFFIX: Final = MappingProxyType(
    {
        "csv": CSV,
        **dict.fromkeys(("tsv", "tab"), TSV),
        **dict.fromkeys(("jsonl", "ndjson", "jsonlines"), JSON_LINES),
        **dict.fromkeys(("txt", "text"), TEXT),
        **dict.fromkeys(("tar", "tgz", "tzst"), TAR),
        **dict.fromkeys(("parquet", "pq"), PARQUET),
        **dict.fromkeys(("arrow", "arrows", "feather", "ipc"), ARROW),
        **dict.fromkeys(("npy", "npz"), NUMPY),
        **dict.fromkeys(("h5", "hdf5", "hdf", "he5"), HDF5),
        **dict.fromkeys((suffix[1:] for suffix in image_folder.SUFFIXES), IMAGES),
    }
)
_BY_KIND: Final = MappingProxyType(
    {
        file_kinds.TFRECORD: TFRECORD,
        file_kinds.TAR: TAR,
        file_kinds.PARQUET: PARQUET,
        file_kinds.ARROW: ARROW,
        file_kinds.ARROW_STREAM: ARROW,
        file_kinds.NPY: NUMPY,
        file_kinds.HDF5: HDF5,
        file_kinds.ARRAY_RECORD: ARRAY_RECORD,
        **dict.fromkeys(file_kinds.IMAGES, IMAGES),
    }
)
_ARRAY_RECORD_NAME: Final = re.compile(r"(^|[._-])array_?records?([._-]|$)")
_TFRECORD_NAME: Final = re.compile(r"(^|[._-])tfrecords?([._-]|$)")
_IGNORED: Final = re.compile(r"[._].*|(readme|license|checksums?|manifest)\b.*|.*\.(md|crc|idx|index|sha256|md5|lock)")
"""Names of files beside the data: hidden files, descriptions and checksums. In lower case."""


def by_name(url: str) -> FileFormat | None:
    """Return the format that the name of a file suggests, or None. The suffix of a compression is ignored."""
    name = _uncompressed_name(url)
    if _TFRECORD_NAME.search(name):
        return TFRECORD
    if _ARRAY_RECORD_NAME.search(name):
        return ARRAY_RECORD
    return _BY_SUFFIX.get(_suffix(name))


def by_plugin(plugins: Sequence[FoundPlugin], url: str) -> FileFormat | None:
    """Return the format of a plugin that the name of a file suggests, or None.

    Raises:
        PlanError: Several plugins have this suffix.
    """
    plugin = named(plugins, _suffix(_uncompressed_name(url)))
    return None if plugin is None else _plugin_format(plugin)


def by_start_and_plugin(
    plugins: Sequence[FoundPlugin], start: bytes, suggested: FileFormat | None
) -> FileFormat | file_kinds.FileKind | None:
    """Return the format that the first bytes of a file show, as :func:`by_start`, also of plugins.

    A plugin that the name suggests goes before kinds of files that no constructor reads. If its ``magics`` fit, it goes
    before all formats. Formats of this package go before plugins that the name does not suggest.

    Raises:
        PlanError: Several plugins have a magic that fits.
    """
    content, found = _decompressed(start), by_start(start)
    is_known = isinstance(found, FileFormat) and found not in (TEXT, JSON_LINES)
    by_name = next((each.plugin for each in plugins if _plugin_format(each.plugin) == suggested), None)
    if by_name is not None and by_name.accepts(content) and (by_name.magics or not is_known):
        return suggested
    plugin = None if is_known else marked(plugins, content)
    return found if plugin is None else _plugin_format(plugin)


def _plugin_format(plugin: FormatPlugin) -> FileFormat:
    return FileFormat(plugin.format.name, _PLUGIN, (("format", plugin.format),))


def is_json(url: str) -> bool:
    """Return True for the names of JSON documents, compressed or not."""
    return re.search(r"\.json(\.\w+)?$", _base(url)) is not None


def is_data(url: str) -> bool:
    """Return False for the names of files beside the data, such as ``_SUCCESS`` and ``README.md``."""
    return _IGNORED.fullmatch(_base(url)) is None


def is_in_data_folder(path: str) -> bool:
    """Return False for a path below a hidden or temporary folder, such as ``_temporary`` of Spark.

    A folder of a partition, such as ``_day=1``, is no temporary folder.
    """
    return not any(part.startswith((".", "_")) and "=" not in part for part in path.split("/")[:-1])


def by_start(start: bytes) -> FileFormat | file_kinds.FileKind | None:
    """Return the format that the first ``START_NBYTES`` bytes of a file show.

    Compressed bytes are decompressed. Return a :class:`FileKind` for a format that no constructor reads, and None for
    bytes that are no text and have no known mark.
    """
    content = _decompressed(start)
    kind = file_kinds.kind_of(content[: file_kinds.START_NBYTES])
    if kind is file_kinds.ZIP and content[30:64].partition(b".npy")[1]:  # the name of the first member
        return NUMPY
    if kind is not None:
        return _BY_KIND.get(kind, kind)
    return HDF5 if has_user_block(content) else _text(content)


def csv_by_start(start: bytes) -> FileFormat:
    """Return the format of a CSV file, with the delimiter that its header shows.

    Without a comma outside quotes, a tab, semicolon or bar is the delimiter if the next line contains as many of them.
    """
    lines = list(filter(None, _QUOTED.sub(b"", _decompressed(start)).splitlines()))[:2]
    if lines and b"," not in lines[0]:
        for delimiter in _DELIMITERS:
            counts = {line.count(delimiter.encode()) for line in lines}
            if len(counts) == 1 and counts != {0}:
                return TSV if delimiter == "\t" else CSV._replace(arguments=(("delimiter", delimiter),))
    return CSV


def splits_of(paths: Iterable[str]) -> list[str]:
    """Return the names of the folders of a folder of images if they are splits of a data set, otherwise []."""
    parts = [path.split("/") for path in paths]
    found = {part[0] for part in parts}
    return sorted(found) if found <= _SPLITS and all(len(part) > len(("split", "class")) for part in parts) else []


def folder_layout(paths: Sequence[str]) -> FileFormat | None:
    """Return the format of a folder with these files below it, if the folder itself is the dataset; otherwise None."""
    if "index.json" in paths and any(re.search(r"\.mds(\.(gz|zstd?))?$", path) for path in paths):
        return MDS
    if {"dataset_info.json", "features.json"} <= set(paths):
        return TFDS
    if any(path.startswith("_delta_log/") for path in paths):
        return DELTA
    data = [path for path in paths if is_data(path) and not path.startswith(".") and "/." not in path]
    images = [path for path in data if by_name(path) is IMAGES]
    in_folders = bool(images) and all("/" in path for path in images)
    return IMAGE_FOLDER if in_folders and len(images) == len(data) else None


def is_iceberg(paths: Iterable[str]) -> bool:
    """Return True if the files below a folder are those of an Iceberg table."""
    return any(re.fullmatch(r"metadata/[^/]+\.metadata\.json", path) for path in paths)


def formats_of(urls: Iterable[str]) -> dict[FileFormat | None, list[str]]:
    """Group the URLs of data files by the formats of this package that their names suggest."""
    found: dict[FileFormat | None, list[str]] = {}
    for url in urls:
        if is_data(url):
            found.setdefault(by_name(url), []).append(url)
    return found


def _uncompressed_name(url: str) -> str:
    """Return the name of a file in lower case, without the suffixes of compressions."""
    name = _base(url)
    while named_compressed(name) and name.rpartition(".")[2] not in _BY_SUFFIX:
        name = name.rpartition(".")[0]
    return name


def _suffix(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    return suffix if stem else ""


def _base(url: str) -> str:
    path = url.partition("#")[0].partition("?")[0] if url.startswith(("http://", "https://")) else url
    return path.rpartition("/")[2].lower()


def _decompressed(start: bytes) -> bytes:
    """Return the first bytes of the content. Damaged and unknown compressions are returned as they are."""
    compression = detect(start[:4])
    if compression == "":
        return start
    content = bytearray()
    stream = decompressor(compression, "")
    try:
        for block in stream.feed(memoryview(start)):
            content += block
            if len(content) >= START_NBYTES:
                break
    except CorruptRecordError:
        return start
    finally:
        stream.discard()
    return bytes(content)


def _text(content: bytes) -> FileFormat | None:
    """Return the format of text: JSON lines, or lines of text. Return None for bytes that are no text."""
    sample = content[:_TEXT_NBYTES]
    try:
        text = sample.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(sample) - 3 or not error.start:  # otherwise the sample ends within a character
            return None
        text = sample[: error.start].decode("utf-8-sig")
    if not text.strip() or any(character < " " and character not in "\t\n\v\f\r" for character in text):
        return None
    first, end, _ = content.removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")
    return JSON_LINES if (end or len(content) < START_NBYTES) and _is_json_record(first) else TEXT


def _is_json_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
