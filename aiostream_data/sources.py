"""Where a data set begins: the ``Dataset.from_*`` constructors."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike

from aiostream_data.errors import PlanError, StageBuildError
from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.formats.named import WithUrl
from aiostream_data.formats.text import TextFormat
from aiostream_data.formats.tfrecord import TFRecordFormat
from aiostream_data.formats.whole_file import WholeFileFormat
from aiostream_data.plan import sources as src
from aiostream_data.plan.base import AUTO, Auto, Concurrency, Decoder, Node, at_least
from aiostream_data.plan.spec import ArraySpec
from aiostream_data.structure import flatten

if TYPE_CHECKING:
    from aiostream_data.dataset import Dataset

E = TypeVar("E")
Files: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Dataset[str]"
"""One URL or glob pattern, several, or a data set of URLs."""

StorageOptions: TypeAlias = Mapping[str, Any] | None
COMPRESSIONS = ("auto", "", "gzip", "zlib", "zstd")


class DatasetSources:
    """Constructors of :class:`~aiostream_data.Dataset`. None of them does any I/O."""

    def __init__(self, plan: Node) -> None:
        self.plan = plan

    @classmethod
    def _begin(cls, node: Node) -> Dataset[Any]:
        return cast("Dataset[Any]", cls(node))  # these constructors are only ever called on Dataset

    @classmethod
    def from_tensors(cls, element: E) -> Dataset[E]:
        """Return a data set of one element: the whole structure (tf.data ``from_tensors``)."""
        return cls._begin(src.Tensors(element=element))

    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> Dataset[Any]:
        """Return the slices along the first axis of every leaf (tf.data ``from_tensor_slices``).

        The structure (dict, tuple, NamedTuple, dataclass) is kept; lists become arrays. Arrays are not
        copied, so do not change them while the data set is in use; elements see them read-only.

        Raises:
            PlanError: A leaf has no first axis, or the first axes differ.
        """
        structure, leaves = flatten(tensors)
        arrays = tuple(_read_only(leaf, path) for leaf, path in zip(leaves, structure.paths(), strict=True))
        if not arrays:
            raise PlanError("from_tensor_slices() needs at least one array")
        for path, array in zip(structure.paths(), arrays, strict=True):
            if array.ndim == 0:
                raise PlanError(f"from_tensor_slices() needs arrays with a first axis, but {path} is a scalar")
            if len(array) != len(arrays[0]):
                first = structure.paths()[0]
                raise PlanError(f"first axes differ: {first} has {len(arrays[0])} rows, {path} has {len(array)}")
        return cls._begin(src.TensorSlices(structure=structure, leaves=arrays, rows=len(arrays[0])))

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[E] | AsyncIterable[E]],
        *,
        args: tuple[Any, ...] = (),
        signature: Any = None,
    ) -> Dataset[E]:
        """Return what ``generator(*args)`` yields, called anew for every epoch (tf.data ``from_generator``).

        A sync generator runs on a thread of its own and is closed when the iteration ends, however it
        ends; an async one is awaited on the engine's loop.

        Args:
            signature: Structure of :class:`ArraySpec`; every item is held against it when given.

        Raises:
            PlanError: ``generator`` is not callable, such as a generator object.
        """
        if not callable(generator):
            raise StageBuildError(
                f"from_generator() needs a function that returns an iterator, got a {type(generator).__name__}; "
                "give the function itself, without calling it"
            )
        _, specs = flatten(signature, ArraySpec)
        if signature is not None and not all(isinstance(spec, ArraySpec) for spec in specs):
            raise PlanError(f"signature must be a structure of ArraySpec, got {signature!r}")
        return cls._begin(src.Generator(factory=generator, args=tuple(args), signature=signature))

    @classmethod
    def from_iterable(cls, iterable: Iterable[E] | AsyncIterable[E]) -> Dataset[E]:
        """Return the items of a sync or async iterable.

        An iterable that is its own iterator (a generator object, an open file) can be read once; a plan
        that would read it again is refused when it is written.
        """
        if not isinstance(iterable, (Iterable, AsyncIterable)):
            raise PlanError(f"from_iterable() needs an iterable or async iterable, got {type(iterable).__name__}")
        return cls._begin(src.PythonIterable(iterable=iterable, one_shot=src.is_one_shot(iterable)))

    @classmethod
    def range(cls, start: int, stop: int | None = None, step: int = 1, *, dtype: DTypeLike = np.int64) -> Dataset[int]:
        """Return the integers of ``range(start, stop, step)`` (tf.data ``range``)."""
        for name, bound in (("start", start), ("stop", stop), ("step", step)):
            if bound is not None and not hasattr(bound, "__index__"):
                raise PlanError(f"range() {name} must be an integer, got {bound!r}")
        first, last = (0, start) if stop is None else (start, stop)
        if step == 0:
            raise PlanError("range() step must not be 0")
        return cls._begin(src.Range(start=first, stop=last, step=step, dtype=np.dtype(dtype)))

    @classmethod
    def list_files(
        cls,
        pattern: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        seed: int | None = None,
        storage_options: StorageOptions = None,
    ) -> Dataset[str]:
        """Return the URLs that match a glob pattern or several (tf.data ``list_files``).

        Unlike in tf.data the URLs are sorted, unless a ``seed`` asks for another order every epoch.

        Raises (when opened):
            NoMatchError: A pattern matches nothing.
        """
        options = dict(storage_options or {})
        return cls._begin(src.ListFiles(patterns=_patterns(pattern), storage_options=options, seed=seed))

    @classmethod
    def from_tfrecord(
        cls,
        files: Files,
        *,
        compression: str = "auto",
        verify: bool = True,
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
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
            storage_options: For the store, as in fsspec.

        Raises (when opened or iterated):
            NoMatchError, StorageError: The files cannot be found or read.
            CorruptRecordError: A file is damaged; nothing at or after the damage is delivered.
        """
        read = _Reading(compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead)
        return cls._begin(read.node(files, TFRecordFormat(verify=verify), storage_options))

    @classmethod
    def from_text(
        cls,
        files: Files,
        *,
        encoding: str | None = "utf-8",
        compression: str = "auto",
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        storage_options: StorageOptions = None,
    ) -> Dataset[str]:
        r"""Return the lines of text files without their ends (tf.data ``TextLineDataset``).

        ``\n`` and ``\r\n`` end a line; a last line without either is given too. Lines are str; with
        ``encoding=None`` they are bytes, as tf.data's. The rest as in :meth:`from_tfrecord`.
        """
        read = _Reading(compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead)
        return cls._begin(read.node(files, TextFormat(encoding=encoding), storage_options))

    @classmethod
    def from_fixed_length(
        cls,
        files: Files,
        record_nbytes: int,
        *,
        header_nbytes: int = 0,
        footer_nbytes: int = 0,
        compression: str = "",
        cycle_length: int = 1,
        block_length: int = 1,
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = AUTO,
        storage_options: StorageOptions = None,
    ) -> Dataset[bytes]:
        """Return records of ``record_nbytes`` bytes each (tf.data ``FixedLengthRecordDataset``).

        What is left between header and footer must be whole records. The rest as in :meth:`from_tfrecord`.
        """
        read = _Reading(compression, cycle_length, block_length, shuffle_shards, seed, ordered, read_ahead)
        format = FixedLengthFormat(
            record_nbytes=record_nbytes, header_nbytes=header_nbytes, footer_nbytes=footer_nbytes
        )
        return cls._begin(read.node(files, format, storage_options))

    @classmethod
    def from_files(
        cls,
        files: Files,
        *,
        compression: str = "",
        shuffle_shards: bool = False,
        seed: int | None = None,
        ordered: bool = True,
        read_ahead: Concurrency = 16,
        storage_options: StorageOptions = None,
    ) -> Dataset[dict[str, Any]]:
        """Return whole objects as ``{"url": str, "data": bytes}``, one element each, in order of URL."""
        read = _Reading(compression, 1, 1, shuffle_shards, seed, ordered, read_ahead, (WithUrl(),))
        return cls._begin(read.node(files, WholeFileFormat(), storage_options))


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
    decoders: tuple[Decoder, ...] = ()

    def node(self, files: Any, format: src.FormatLike, storage_options: StorageOptions) -> src.ReadFiles:
        compression = (self.compression or "").lower()
        if compression not in COMPRESSIONS:
            known = ", ".join(map(repr, COMPRESSIONS))
            raise PlanError(f"compression must be one of {known}, got {self.compression!r}")
        plan = getattr(files, "plan", None)
        inner = plan if isinstance(plan, Node) else None
        return src.ReadFiles(
            patterns=() if inner is not None else _patterns(files),
            files=inner,
            format=format,
            compression=compression,
            cycle_length=at_least("cycle_length", self.cycle_length, 1),
            block_length=at_least("block_length", self.block_length, 1),
            ordered=self.ordered,
            shuffle_shards=self.shuffle_shards,
            seed=self.seed,
            storage_options=dict(storage_options or {}),
            read_ahead=_read_ahead(self.read_ahead),
            decoders=self.decoders,
        )


def _read_ahead(value: Concurrency) -> Concurrency:
    return value if isinstance(value, Auto) else at_least("read_ahead", value, 1)


def _patterns(files: Any) -> tuple[str, ...]:
    if not isinstance(files, (str, os.PathLike, Iterable)):
        raise PlanError(f"files must be URLs, paths or a Dataset of them, got {type(files).__name__}")
    listed = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    if not listed:
        raise PlanError("at least one file or pattern is needed, got an empty list")
    for one in listed:
        if not isinstance(one, (str, os.PathLike)):
            raise PlanError(f"files must be URLs, paths or a Dataset of them, got {type(one).__name__}")
    return tuple(os.fspath(one) for one in listed)


def _read_only(leaf: Any, path: str) -> np.ndarray[Any, Any]:
    if isinstance(leaf, (list, tuple)) and leaf and all(isinstance(value, (str, bytes)) for value in leaf):
        array = np.empty(len(leaf), object)
        array[:] = leaf
        return array
    try:
        array = np.asarray(leaf).view()
    except ValueError as error:
        raise PlanError(f"from_tensor_slices() cannot make an array of {path}: {error}") from error
    if array.dtype.kind in "US":
        array = array.astype(object)
    array.flags.writeable = False
    return array
