"""Where a data set of files begins: the ``Dataset.from_*`` constructors that read a store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from aiostream_data.arguments import flag, shown
from aiostream_data.errors import PlanError
from aiostream_data.failing.policies import OnError, source_policy_of
from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.formats.named import WithUrl
from aiostream_data.formats.text import TextFormat
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.plan import sources as src
from aiostream_data.plan.base import AUTO, Concurrency, Decoder, Node, at_least, auto_or_at_least_one, seed_of
from aiostream_data.safe_url import safe_url
from aiostream_data.storage.urls import has_magic, split_url

if TYPE_CHECKING:
    from aiostream_data.dataset.dataset import Dataset

Files: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Dataset[str]"
"""One URL or glob pattern, several, or a data set of URLs."""

Url: TypeAlias = "str | os.PathLike[str]"
StorageOptions: TypeAlias = Mapping[str, Any] | None
_SCHEMES = ("s3", "s3a", "gs", "gcs", "http", "https", "file")
_FILES = "files must be URLs, paths or a Dataset of them"
_FILES_CURES: dict[type, str] = {
    bytes: ": decode it to str, or use from_tensor_slices() for data in memory",
    dict: ": pass a list of its values",
    TextIOWrapper: ": pass its path",
    BufferedReader: ": pass its path",
}
COMPRESSIONS = ("auto", "", "gzip", "zlib", "zstd")


class FileSources:
    """Constructors of :class:`~aiostream_data.Dataset` that read files. None of them does any I/O."""

    def __init__(self, plan: Node) -> None:
        self.plan = plan

    @classmethod
    def _begin(cls, node: Node) -> Dataset[Any]:
        return cast("Dataset[Any]", cls(node))  # these constructors are only ever called on Dataset

    @classmethod
    def list_files(
        cls,
        pattern: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        *,
        seed: int | None = None,
        index: Url | None = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[str]:
        """Return the URLs that match a glob pattern or several (tf.data ``list_files``).

        Unlike in tf.data the URLs are sorted, unless a ``seed`` asks for another order every epoch.

        Args:
            seed: Of the order, which is another one every epoch.
            index: File of :func:`aiostream_data.write_index` that names the URLs, which are not listed then; without
                a pattern all of them are given.

        Raises (when opened):
            NoMatchError: A pattern matches nothing.
            IndexFileError: The index is none.
        """
        options, named_in = _options(storage_options), _index(index)
        patterns = _patterns(pattern, named_in)
        return cls._begin(
            src.ListFiles(patterns=patterns, storage_options=options, seed=seed_of(seed), index_url=named_in)
        )

    @classmethod
    def from_tfrecord(
        cls,
        files: Files | None = None,
        *,
        compression: str = "auto",
        verify: bool = True,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[bytes]:
        """Return the records of TFRecord files, as bytes (tf.data ``TFRecordDataset``).

        Args:
            compression: "auto" (by the first bytes), "", "gzip", "zlib" or "zstd".
            verify: Check the CRC32C of every payload; those of lengths are always checked.
            cycle_length, block_length: How files are interleaved, as in tf.data's ``interleave``.
            shuffle_shards: Permute the files, anew every epoch, by ``seed``.
            ordered: False lets any file whose records are ready go next.
            read_ahead: Files opened before their turn comes.
            index: File of :func:`aiostream_data.write_index` that names the files, so that nothing is listed. Without
                ``files`` all that it names are read, in its order.
            on_error: What becomes of damaged records and files, and of files that are missing: "raise" (the default),
                "skip", or a policy as for :meth:`map`, but not Replace. See docs/bad_data.md.
            storage_options: For the store, as in fsspec.

        Raises (when opened or iterated):
            NoMatchError, StorageError: The files cannot be found or read.
            IndexFileError: The index is none, or was cut.
            ErrorBudgetError: More was lost than ``on_error`` allows.
            CorruptRecordError: A file is damaged. With ``verify``, every record delivered matches its checksum.
        """
        read = _Reading(compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error)
        return cls._begin(read.node(files, TFRecordFormat(verify=flag("verify", verify)), storage_options, index))

    @classmethod
    def from_text(
        cls,
        files: Files | None = None,
        *,
        encoding: str | None = "utf-8",
        compression: str = "auto",
        verify: bool = False,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[str]:
        r"""Return the lines of text files without their ends (tf.data ``TextLineDataset``).

        ``\n`` and ``\r\n`` end a line; a last line without either is given too. Lines are str; with
        ``encoding=None`` they are bytes, as tf.data's. The rest as in :meth:`from_tfrecord`.

        Args:
            verify: Check all of a compressed file before any of its lines are delivered. The file is read and
                decompressed twice. Without it, lines of a damaged file may be delivered before the error.
        """
        read = _Reading(
            compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error, verify
        )
        return cls._begin(read.node(files, TextFormat(encoding=encoding), storage_options, index))

    @classmethod
    def from_fixed_length(
        cls,
        files: Files | None,
        record_nbytes: int,
        *,
        header_nbytes: int = 0,
        footer_nbytes: int = 0,
        compression: str = "",
        verify: bool = False,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[bytes]:
        """Return records of ``record_nbytes`` bytes each (tf.data ``FixedLengthRecordDataset``).

        What is left between header and footer must be whole records. ``verify`` as in :meth:`from_text`, the rest as in
        :meth:`from_tfrecord`.
        """
        read = _Reading(
            compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead, on_error, verify
        )
        format = FixedLengthFormat(
            record_nbytes=record_nbytes, header_nbytes=header_nbytes, footer_nbytes=footer_nbytes
        )
        return cls._begin(read.node(files, format, storage_options, index))

    @classmethod
    def from_files(
        cls,
        files: Files | None = None,
        *,
        compression: str = "",
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = 16,
        index: Url | None = None,
        on_error: OnError = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return whole objects as ``{"url": str, "data": bytes}``, one element each, in order of URL.

        The rest as in :meth:`from_tfrecord`.
        """
        read = _Reading(compression, 1, 1, shuffle_shards, seed, ordered, read_ahead, on_error, False, (WithUrl(),))
        return cls._begin(read.node(files, WholeFileFormat(), storage_options, index))


@dataclass(frozen=True)
class _Reading:
    """The arguments that every file source shares, checked."""

    compression: str
    cycle_length: int
    block_length: int
    shuffle_shards: bool
    seed: int | None
    ordered: bool
    read_ahead: Concurrency
    on_error: OnError
    checks_first: bool = False
    decoders: tuple[Decoder, ...] = ()

    def node(
        self, files: Any, format: src.FormatLike, storage_options: StorageOptions, index: Url | None
    ) -> src.ReadFiles:
        compression = _compression(self.compression)
        plan = getattr(files, "plan", None)
        inner = plan if isinstance(plan, Node) else None
        source_policy_of(self.on_error)
        named_in = _index(index)
        if inner is not None and named_in is not None:
            raise PlanError("index= names files, and so does the data set of files: give one of them")
        return src.ReadFiles(
            patterns=() if inner is not None else _patterns(files, named_in),
            files=inner,
            format=format,
            compression=compression,
            cycle_length=at_least("cycle_length", self.cycle_length, 1),
            block_length=at_least("block_length", self.block_length, 1),
            ordered=flag("ordered", self.ordered),
            shuffle_shards=flag("shuffle_shards", self.shuffle_shards),
            seed=seed_of(self.seed),
            storage_options=_options(storage_options),
            read_ahead=auto_or_at_least_one("read_ahead", self.read_ahead),
            decoders=self.decoders,
            index_url=named_in,
            checks_first=flag("verify", self.checks_first),
            on_error=self.on_error,
        )


def _compression(given: Any) -> str:
    found = "" if given is None else given.lower() if isinstance(given, str) else given
    if not isinstance(found, str) or found not in COMPRESSIONS:
        raise PlanError(f"compression must be one of {', '.join(map(repr, COMPRESSIONS))}, got {shown(given)}")
    return found


def _index(index: Any) -> str | None:
    if index is None:
        return None
    if not isinstance(index, (str, os.PathLike)) or has_magic(index):
        raise PlanError(f"index must be one URL or path, got {_shown_index(index)}")
    return os.fspath(index)


def _shown_index(index: Any) -> str:
    return repr(safe_url(index)) if isinstance(index, (str, os.PathLike)) else f"a {type(index).__name__}"


def _options(given: StorageOptions) -> dict[str, Any]:
    """Return a copy of ``storage_options``.

    Raises:
        PlanError: They are none.
    """
    if not isinstance(given, Mapping | None):
        raise PlanError(f"storage_options is a dict of options by name, got {type(given).__name__}")
    for name, value in (given or {}).items():
        if not isinstance(name, str):
            raise PlanError(f"the names of storage_options are text, got {name!r}")
        if name in _SCHEMES and isinstance(value, Mapping):
            raise PlanError(f"options of one store stand under its scheme: storage_options={{'{name}://': {{...}}}}")
        if name.endswith("://") and not isinstance(value, Mapping):
            raise PlanError(
                f"storage_options[{name!r}] is a dict of options for that store, got {type(value).__name__}"
            )
    return dict(given or {})


def _patterns(files: Any, index: str | None) -> tuple[str, ...]:
    if files is None and index is not None:
        return ()
    if files is None:
        raise PlanError("no files are given: pass files=, or index= for those that an index names")
    is_one = isinstance(files, (bytes, Mapping)) or hasattr(files, "read")
    if is_one or not isinstance(files, (str, os.PathLike, Iterable)):
        raise PlanError(f"{_FILES}, got {type(files).__name__}{_FILES_CURES.get(type(files), '')}")
    listed = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    if not listed:
        raise PlanError("at least one file or pattern is needed, got an empty list")
    for one in listed:
        if not isinstance(one, (str, os.PathLike)):
            raise PlanError(f"{_FILES}, got {type(one).__name__}{_FILES_CURES.get(type(one), '')}")
        if not os.fspath(one):
            raise PlanError(f"{_FILES}, got an empty text")
        split_url(one)  # refuses what is no URL
    return tuple(os.fspath(one) for one in listed)
