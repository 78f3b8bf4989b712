"""Source nodes of plans: in-memory data, Python iterables, and files in stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from aiostream_data.failing.policies import OnError
from aiostream_data.plan.base import AUTO, Concurrency, Decoder, Node
from aiostream_data.plan.written import SourceLine, Verbatim, call_arguments
from aiostream_data.rows.columns import Column, VarColumn
from aiostream_data.rows.structure import Structure
from aiostream_data.safe_url import safe_url

INT64: Final[np.dtype[Any]] = np.dtype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Permuted:
    """Random order of all rows of a source. A rewrite sets this random order to replace ``shuffle()``.

    Attributes:
        seed: Seed of the random order; None to use the seed of the loader.
        reshuffle: True to use a new random order in every epoch.
    """

    seed: int | None
    reshuffle: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorSlices(Node):
    """Source that emits the rows of in-memory arrays: slices along the first axis of every leaf.

    Attributes:
        times: Number of repetitions of all rows; None repeats without end. A rewrite of ``repeat`` sets the number of
            repetitions.
        permuted: Random order of the rows. A rewrite of ``shuffle`` sets the random order. Each repetition of the rows
            uses its own random order.
    """

    structure: Structure
    leaves: tuple[Column, ...]
    rows: int
    times: int | None = 1
    permuted: Permuted | None = None
    name: str = "from_tensor_slices"

    @property
    def label(self) -> str:
        return self.name

    def detail(self) -> str:
        return self.structure.described(
            leaf.kind if isinstance(leaf, VarColumn) else f"{leaf.dtype}{list(leaf.shape)}" for leaf in self.leaves
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Tensors(Node):
    """Source that emits a single element ``times`` times; None repeats without end."""

    element: Any
    times: int | None = 1

    @property
    def label(self) -> str:
        return "from_tensors"

    def detail(self) -> str:
        return type(self.element).__name__


@dataclass(frozen=True, eq=False, kw_only=True)
class Range(Node):
    """Source that emits the integers of a Python range, as int64 or as ``dtype``.

    Attributes:
        times, permuted: Repetitions and random order, as for :class:`TensorSlices`.
    """

    start: int
    stop: int
    step: int
    dtype: np.dtype[Any] = INT64
    times: int | None = 1
    permuted: Permuted | None = None

    @classmethod
    def of(cls, start: int, stop: int, written_at: SourceLine | None) -> Range:
        """Return a range of int64 numbers with the step 1, in a fifth of the usual time.

        A function of ``flat_map()`` may make one for each element.
        """
        node = cls.__new__(cls)
        fields = {
            "written_at": written_at,
            "start": start,
            "stop": stop,
            "step": 1,
            "dtype": INT64,
            "times": 1,
            "permuted": None,
            "depth": 1,
        }
        object.__setattr__(node, "__dict__", fields)
        return node

    @property
    def numbers(self) -> range:
        return range(self.start, self.stop, self.step)

    @property
    def rows(self) -> int:
        """Number of integers."""
        return len(self.numbers)

    def detail(self) -> str:
        return call_arguments(*self._bounds(), dtype=(Verbatim(self.dtype), Verbatim("int64")))

    def _bounds(self) -> tuple[int, ...]:
        if self.step != 1:
            return self.start, self.stop, self.step
        return (self.start, self.stop) if self.start else (self.stop,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Generator(Node):
    """Elements yielded by ``factory(*args)``. The source calls the factory at the start of each epoch."""

    factory: Callable[..., Any]
    args: tuple[Any, ...] = ()
    signature: Any = None

    @property
    def label(self) -> str:
        return "from_generator"

    @property
    def factory_name(self) -> str:
        """Name of the source in row origins and saved states."""
        return getattr(self.factory, "__qualname__", None) or type(self.factory).__qualname__

    def detail(self) -> str:
        args = [Verbatim("args=...")] if self.args else []
        return call_arguments(self.factory, *args)


@dataclass(frozen=True, eq=False, kw_only=True)
class PythonIterable(Node):
    """Source that emits the elements of a sync or async iterable.

    ``one_shot`` is True for an iterator, which can be read only once.
    """

    iterable: Any
    one_shot: bool

    @property
    def label(self) -> str:
        return "from_iterable"

    def detail(self) -> str:
        return type(self.iterable).__name__


class FormatLike(Protocol):
    """Properties of a file format that plans use; see :class:`aiostream_data.formats.base.Format`."""

    @property
    def name(self) -> str: ...
    @property
    def whole(self) -> bool: ...
    def framer(self, url: str) -> Any: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class ListFiles(Node):
    """Source that emits the sorted URLs that match patterns. If ``seed`` is set, URLs are shuffled in each epoch.

    The ``repr`` omits fields that may contain secrets. The result of :meth:`detail` replaces secrets in these fields.

    Attributes:
        patterns: URLs and glob patterns. An empty tuple emits all URLs of the index file.
        share: Pair (number, count) if ranks share the URLs. Each rank emits every ``count``-th URL, in order.
        index_url: URL of an index file that replaces listing the store, or None.
        keeps_missing: True to emit URLs without wildcards whose objects do not exist. A rewrite sets it if a reader
            counts them as losses, because of its error policy.
    """

    patterns: tuple[str, ...] = field(repr=False)
    storage_options: Mapping[str, Any] = field(repr=False)
    seed: int | None = None
    share: tuple[int, int] | None = None
    permuted: Permuted | None = None
    index_url: str | None = field(default=None, repr=False)
    keeps_missing: bool = False

    @property
    def label(self) -> str:
        return "list_files"

    def detail(self) -> str:
        return call_arguments(
            *_names(self.patterns), seed=(self.seed, None), **_from(self.index_url, self.storage_options)
        ) + _shared(self.share)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReadFiles(Node):
    """Source that emits the records of all matching files, interleaved.

    Attributes:
        patterns: URLs and glob patterns. The tuple is empty if ``files`` is set, or if the source reads all shards of
            ``index_url``.
        files: Node that emits the URLs of the files to read, or None.
        format: File format that splits the files into records.
        compression: "auto", or a name of ``codecs.compression.COMPRESSIONS``.
        cycle_length, block_length: Options for interleaving files, as for tf.data's interleave.
        ordered: If False, the next record comes from any file that has a record ready.
        shuffle_shards: If True, read the files in a random order that depends on ``seed``.
        read_ahead: Number of files to open in addition to the files being read; AUTO lets the engine choose.
        reshuffle: True to use a new order of files in every epoch.
        spread: True if a ``shuffle()`` follows the source. With ``spread=True``, the source reads small ranges, and
            chooses the file order and cycle so that the last files end together.
        decoders: Row-wise parsing steps that a rewrite moved into the reading stage.
        share: Pair (number, count) if ranks share the files. Each rank reads every ``count``-th file of the epoch's
            order.
        index_url: URL of an index file that replaces listing the store, or None.
        on_error: Error policy for damaged and missing files.
        checks_first: If True, verify a compressed file completely before emitting its rows.
    """

    patterns: tuple[str, ...] = field(repr=False)
    files: Node | None
    format: FormatLike
    compression: str
    cycle_length: int
    block_length: int
    ordered: bool
    shuffle_shards: bool
    seed: int | None
    storage_options: Mapping[str, Any] = field(repr=False)
    read_ahead: Concurrency
    decoders: tuple[Decoder, ...] = ()
    share: tuple[int, int] | None = None
    reshuffle: bool = True
    spread: bool = False
    index_url: str | None = field(default=None, repr=False)
    checks_first: bool = False
    on_error: OnError = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.files,) if self.files is not None else ()

    @property
    def label(self) -> str:
        return f"read_{self.format.name}"

    @property
    def method(self) -> str:
        if self._is_foreign:
            return "from_format"
        return "from_files" if self.format.name == "whole_file" else f"from_{self.format.name}"

    @property
    def _is_foreign(self) -> bool:
        """True for a format of another package, which no other constructor reads."""
        return not type(self.format).__module__.startswith("aiostream_data.")

    def detail(self) -> str:
        format = Verbatim(f"{type(self.format).__name__}(...)") if self._is_foreign else None
        length = format or getattr(self.format, "record_nbytes", None)
        default = _DEFAULTS.get(self.format.name, ("auto", AUTO))
        return call_arguments(
            *(_names(self.patterns) if self.files is None else [Verbatim("files")]),
            *(() if length is None else (length,)),
            split=(getattr(self.format, "split", None), None),
            compression=(self.compression, default[0]),
            cycle_length=(self.cycle_length, 1),
            block_length=(self.block_length, 1),
            shuffle_shards=(self.shuffle_shards, False),
            seed=(self.seed, None),
            ordered=(self.ordered, True),
            read_ahead=(self.read_ahead, default[1]),
            on_error=(self.on_error, None),
            **_from(self.index_url, self.storage_options),
        ) + _shared(self.share)


_DEFAULTS: Final[Mapping[str, tuple[str, Concurrency]]] = dict.fromkeys(
    ("fixed_length", "whole_file", "image_folder", "mds", "tfds"), ("", AUTO)
)
"""Default values of ``compression`` and ``read_ahead`` by format name. Other formats use the defaults ("auto",
AUTO)."""


def _names(patterns: tuple[str, ...]) -> list[object]:
    shown = [Verbatim(repr(safe_url(pattern))) for pattern in patterns]
    return [*shown] if len(shown) < 2 else [Verbatim(f"[{', '.join(shown)}]")]


def _from(index_url: str | None, storage_options: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    """Format the arguments ``index`` and ``storage_options`` of a call as text.

    The text hides option values, because they may be secret.
    """
    index = None if index_url is None else Verbatim(repr(safe_url(index_url)))
    return {
        "index": (index, None),
        "storage_options": (Verbatim("...") if storage_options else None, None),
    }


def _shared(share: tuple[int, int] | None) -> str:
    return "" if share is None else f", share {share[0]} of {share[1]}"


def is_one_shot(iterable: Iterable[Any] | Any) -> bool:
    """Return True for a sync or async iterator, such as a generator or an open file; False for other iterables."""
    if isinstance(getattr(iterable, "plan", None), Node):  # Dataset.__next__ exists, but only raises a helpful error
        return False
    return isinstance(iterable, Iterator) or hasattr(iterable, "__anext__")
