"""Nodes that begin a plan: data in memory, Python iterables, and files in a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from aiostream_data.failing.policies import OnError
from aiostream_data.plan.base import AUTO, Concurrency, Decoder, Node
from aiostream_data.plan.written import Verbatim, call_arguments
from aiostream_data.rows.structure import Structure
from aiostream_data.safe_url import safe_url


@dataclass(frozen=True, kw_only=True)
class Permuted:
    """A random order of all rows of a source, which a rewrite has put in place of ``shuffle()``.

    Attributes:
        seed: None for the loader's.
        reshuffle: Whether every epoch has an order of its own.
    """

    seed: int | None
    reshuffle: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorSlices(Node):
    """Rows of arrays in memory: the first axis of every leaf is cut into elements.

    ``times`` is how often the rows are given (None: for ever), which is how a rewrite folds
    ``repeat`` into the source. ``permuted`` gives every repetition an order of its own.
    """

    structure: Structure
    leaves: tuple[NDArray[Any], ...]
    rows: int
    times: int | None = 1
    permuted: Permuted | None = None
    name: str = "from_tensor_slices"

    @property
    def label(self) -> str:
        return self.name

    def detail(self) -> str:
        return self.structure.described(f"{leaf.dtype}{list(leaf.shape)}" for leaf in self.leaves)


@dataclass(frozen=True, eq=False, kw_only=True)
class Tensors(Node):
    """One element, given ``times`` times."""

    element: Any
    times: int | None = 1

    @property
    def label(self) -> str:
        return "from_tensors"

    def detail(self) -> str:
        return type(self.element).__name__


@dataclass(frozen=True, eq=False, kw_only=True)
class Range(Node):
    """The integers of a Python range, as int64 or ``dtype``."""

    start: int
    stop: int
    step: int
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.int64))
    permuted: Permuted | None = None

    @property
    def numbers(self) -> range:
        return range(self.start, self.stop, self.step)

    def detail(self) -> str:
        return call_arguments(*self._bounds(), dtype=(Verbatim(self.dtype), Verbatim("int64")))

    def _bounds(self) -> tuple[int, ...]:
        if self.step != 1:
            return self.start, self.stop, self.step
        return (self.start, self.stop) if self.start else (self.stop,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Generator(Node):
    """What ``factory(*args)`` yields; called anew for every epoch."""

    factory: Callable[..., Any]
    args: tuple[Any, ...] = ()
    signature: Any = None

    @property
    def label(self) -> str:
        return "from_generator"

    @property
    def factory_name(self) -> str:
        """The name that rows of it have in origins and states."""
        return getattr(self.factory, "__qualname__", None) or type(self.factory).__qualname__

    def detail(self) -> str:
        args = [Verbatim("args=...")] if self.args else []
        return call_arguments(self.factory, *args)


@dataclass(frozen=True, eq=False, kw_only=True)
class PythonIterable(Node):
    """A sync or async iterable; ``one_shot`` when it is its own iterator and cannot be read twice."""

    iterable: Any
    one_shot: bool

    @property
    def label(self) -> str:
        return "from_iterable"

    def detail(self) -> str:
        return type(self.iterable).__name__


class FormatLike(Protocol):
    """What the plan needs to know of a format; see :class:`aiostream_data.formats.base.Format`."""

    @property
    def name(self) -> str: ...
    @property
    def whole(self) -> bool: ...
    def framer(self, url: str) -> Any: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class ListFiles(Node):
    """URLs that match patterns, sorted; shuffled per epoch when ``seed`` is given.

    With ``index_url`` they are taken from that file instead of from a listing; all of them where there are no patterns.
    ``share`` is (number, count) where ranks share the URLs, each taking every ``count``-th of that order. What may hold
    a secret is not in the ``repr``; :meth:`detail` shows it without.
    """

    patterns: tuple[str, ...] = field(repr=False)
    storage_options: Mapping[str, Any] = field(repr=False)
    seed: int | None = None
    share: tuple[int, int] | None = None
    permuted: Permuted | None = None
    index_url: str | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        return "list_files"

    def detail(self) -> str:
        return call_arguments(
            *_names(self.patterns), seed=(self.seed, None), **_from(self.index_url, self.storage_options)
        ) + _shared(self.share)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReadFiles(Node):
    """Records of every file that matches, interleaved.

    Attributes:
        patterns: URLs and glob patterns; none with ``files`` a node of URLs, or for all shards of ``index_url``.
        format: How a file is cut into records.
        compression: "auto", "", "gzip", "zlib" or "zstd".
        cycle_length, block_length: As in tf.data's interleave, over the files.
        ordered: False lets whichever file is ready go next.
        shuffle_shards: Permute the files per epoch, with ``seed``.
        reshuffle: Whether every epoch has an order of its own.
        spread: Read for a shuffle: choose order and cycle such that the last files end together, in small ranges.
        decoders: Row-wise steps fused into the reading hop by a rewrite.
        share: (number, count) where ranks share the files, each taking every ``count``-th of the epoch's order.
        index_url: The file that names the shards, which are not listed then.
        on_error: What becomes of damage, and of files that are missing.
        checks_first: Check all of a compressed file before any of its rows are delivered.
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
        return "from_files" if self.format.name == "whole_file" else f"from_{self.format.name}"

    def detail(self) -> str:
        length = getattr(self.format, "record_nbytes", None)
        default = _DEFAULTS.get(self.format.name, ("auto", AUTO))
        return call_arguments(
            *(_names(self.patterns) if self.files is None else [Verbatim("files")]),
            *(() if length is None else (length,)),
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


_DEFAULTS: Final[Mapping[str, tuple[str, Concurrency]]] = {"fixed_length": ("", AUTO), "whole_file": ("", 16)}
"""Of each format whose defaults are others: compression and files opened ahead."""


def _names(patterns: tuple[str, ...]) -> list[object]:
    """Return patterns as an argument by position: one text, or a list of several; nothing where there are none."""
    shown = [Verbatim(repr(safe_url(pattern))) for pattern in patterns]
    return [*shown] if len(shown) < 2 else [Verbatim(f"[{', '.join(shown)}]")]


def _from(index_url: str | None, storage_options: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    """Return what tells where files are found. Values of ``storage_options`` may be secret."""
    index = None if index_url is None else Verbatim(repr(safe_url(index_url)))
    return {
        "index": (index, None),
        "storage_options": (Verbatim("...") if storage_options else None, None),
    }


def _shared(share: tuple[int, int] | None) -> str:
    return "" if share is None else f", share {share[0]} of {share[1]}"


def is_one_shot(iterable: Iterable[Any] | Any) -> bool:
    """True for an object that is its own (async) iterator, such as a generator or an open file."""
    if isinstance(getattr(iterable, "plan", None), Node):  # a data set has a __next__ that says how to iterate it
        return False
    return isinstance(iterable, Iterator) or hasattr(iterable, "__anext__")
