"""Operator nodes: one frozen dataclass for each operator, with the names of tf.data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from aiostream_data.failing.policies import OnError
from aiostream_data.plan.base import AUTO, Concurrency, Decoder, ExecutorName, Node, Operator, SameElements, Transform
from aiostream_data.plan.written import Verbatim, call_arguments
from aiostream_data.rows.structure import Structure


@dataclass(frozen=True, eq=False, kw_only=True)
class Call(Operator):
    """A user function called for each element, with its execution options.

    Attributes:
        executor, concurrency: Executor of the calls, and maximum number of concurrent calls.
        ordered: If False, results are emitted in completion order.
        init: Function that creates the state of a worker, called once per worker, or None.
        wants_state: True if the function has a parameter ``state``, which receives the result of ``init``.
        timeout_s: Maximum duration of one call in seconds; None for no limit.
        on_error: Error policy for elements on which the function fails.
        is_coroutine: True for a coroutine function, which is awaited on the engine's event loop.
        wants_rng: True if the function has a parameter ``rng``, which receives a random generator.
        seed: Seed of the random generators; None for the seed of the loader.
    """

    executor: ExecutorName = "thread"
    concurrency: Concurrency = AUTO
    ordered: bool = True
    init: Callable[[], Any] | None = None
    wants_state: bool = False
    timeout_s: float | None = None
    on_error: OnError = None
    is_coroutine: bool = False
    wants_rng: bool = False
    seed: int | None = None

    @property
    def function_called(self) -> Callable[..., Any]:
        """The user function."""
        raise NotImplementedError

    def detail(self) -> str:
        return call_arguments(
            self.function_called,
            executor=(AUTO if self.executor == "auto" else self.executor, "thread"),
            concurrency=(self.concurrency, AUTO),
            ordered=(self.ordered, True),
            batched=(getattr(self, "batched", False), False),
            seed=(self.seed, None),
            init=(self.init, None),
            timeout=(self.timeout_s, None),
            on_error=(self.on_error, None),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Map(Call):
    """The results of ``function`` for each element, or for runs of rows as arrays if ``batched``."""

    function: Callable[..., Any]
    batched: bool = False

    @property
    def function_called(self) -> Callable[..., Any]:
        return self.function


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(Call, SameElements):
    """The elements of the input for which ``predicate`` returns true."""

    predicate: Callable[..., Any]

    @property
    def function_called(self) -> Callable[..., Any]:
        return self.predicate


AUTO_CYCLE_LENGTH: Final = 8
"""Default ``cycle_length`` of ``interleave()``: the number of data sets read concurrently."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Interleave(Operator):
    """Elements of the data sets or iterables returned by ``function``, several of them read in turn."""

    function: Callable[..., Any]
    cycle_length: int
    block_length: int
    ordered: bool = True
    name: str = "interleave"
    on_error: OnError = None

    @property
    def label(self) -> str:
        return self.name

    def detail(self) -> str:
        return call_arguments(
            self.function,
            cycle_length=(self.cycle_length, 1 if self.name == "flat_map" else AUTO_CYCLE_LENGTH),
            block_length=(self.block_length, 1),
            ordered=(self.ordered, True),
            on_error=(self.on_error, None),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ParseExample(Operator):
    """Columns parsed from serialized ``tf.train.Example`` or ``SequenceExample`` records."""

    decoder: Decoder
    features: tuple[str, ...]
    name: str = "parse_example"
    on_error: OnError = None

    @property
    def label(self) -> str:
        return self.name

    def detail(self) -> str:
        features = ", ".join(f"{name!r}: ..." for name in self.features)
        return call_arguments(Verbatim("{" + features + "}"), on_error=(self.on_error, None))


@dataclass(frozen=True, eq=False, kw_only=True)
class ParseRows(Call):
    """``ParseExample`` with an error policy that skips, replaces or retries records. Created by a rewrite."""

    decoder: Decoder
    name: str

    @property
    def label(self) -> str:
        return self.name

    @property
    def function_called(self) -> Callable[..., Any]:
        return self.decoder.parse


AUTO_BUFFER_ROWS: Final = 8192
"""Maximum number of rows in the buffer of ``shuffle()`` without a buffer size."""

AUTO_BUFFER_NBYTES: Final = 128 << 20
"""Maximum size in bytes of the buffer of ``shuffle()`` without a buffer size."""


SCHEDULE_EVERY: Final = 1000
"""Default number of rows between two calls of the weight function of ``sample_from()``."""

OPEN_BINS: Final = 16
"""Default number of rows that ``pack()`` fills concurrently."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Shuffle(SameElements):
    """The input in random order. Each row is drawn uniformly from a buffer of ``buffer_size`` rows.

    With AUTO, a rewrite replaces the buffer by a permutation of the whole epoch if the source supports it. Otherwise
    the buffer emits rows while it grows.

    Attributes:
        spill: True if rows may be spilled to a file in the temporary folder, or the path of another folder.
    """

    buffer_size: Concurrency
    seed: int | None
    reshuffle_each_iteration: bool = True
    spill: bool | str = False

    @property
    def growing(self) -> bool:
        """True if the buffer emits rows before it is full."""
        return self.buffer_size is AUTO

    @property
    def buffer_rows(self) -> int:
        """Maximum number of rows in the buffer."""
        return self.buffer_size if isinstance(self.buffer_size, int) else AUTO_BUFFER_ROWS

    @property
    def spill_folder(self) -> str | None:
        """Folder of the spill file on this machine; None if spilling is disabled."""
        if isinstance(self.spill, str):
            return self.spill
        if not self.spill:
            return None
        from tempfile import gettempdir  # slow import

        return gettempdir()

    def detail(self) -> str:
        return call_arguments(
            *(() if self.growing else (self.buffer_size,)),
            seed=(self.seed, None),
            reshuffle_each_iteration=(self.reshuffle_each_iteration, True),
            spill=(Verbatim(repr(self.spill)), Verbatim("False")),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch(Operator):
    """Batches of ``batch_size`` consecutive elements, stacked.

    Attributes:
        parts_from: Set by a rewrite if batches are copied into other memory later, such as a device slot. Rows of
            chunks with at least this many bytes then stay in their chunks until that copy.
    """

    batch_size: int
    drop_remainder: bool = False
    parts_from: int | None = None

    def detail(self) -> str:
        return call_arguments(self.batch_size, drop_remainder=(self.drop_remainder, False))


@dataclass(frozen=True, eq=False, kw_only=True)
class Unbatch(Operator):
    """The elements of each batch: the rows along its first axis."""


ENDLESS: Final = 10**12
"""Epochs reserved for an infinite ``repeat()``. Epoch 2 of the node begins at epoch 2 * 10**12 of its input."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Repeat(SameElements):
    """The input repeated ``count`` times; None repeats without end."""

    count: int | None

    @property
    def turns(self) -> int:
        """Number of input epochs per epoch of this node. It makes the epoch numbers of the input unique."""
        return ENDLESS if self.count is None else self.count

    def detail(self) -> str:
        return "" if self.count is None else f"{self.count}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Take(SameElements):
    """The first ``count`` elements; all elements if ``count`` is -1."""

    count: int

    def detail(self) -> str:
        return f"{self.count}"


@dataclass(frozen=True, eq=False, kw_only=True)
class SkipFirst(SameElements):
    """All elements except the first ``count``; no elements if ``count`` is -1."""

    count: int

    @property
    def label(self) -> str:
        return "skip"

    def detail(self) -> str:
        return f"{self.count}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Shard(SameElements):
    """Every ``num_shards``-th element, starting at position ``index``."""

    num_shards: int
    index: int

    def detail(self) -> str:
        return f"{self.num_shards}, {self.index}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Enumerate(Operator):
    """(index, element) pairs, with indices counted from ``start``."""

    start: int = 0

    def detail(self) -> str:
        return f"{self.start}" if self.start else ""


class CacheToken:
    """Identity of one ``cache()`` call. Loaders in the same process with the same token share the cached rows."""

    def __reduce__(self) -> tuple[type[CacheToken], tuple[()]]:
        return CacheToken, ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Cache(SameElements):
    """The input, served from memory after its first complete pass."""

    token: CacheToken = field(default_factory=CacheToken)


@dataclass(frozen=True, eq=False, kw_only=True)
class Prefetch(SameElements):
    """The input, computed ahead into a buffer of ``buffer_size`` elements."""

    buffer_size: Concurrency

    def detail(self) -> str:
        return "" if self.buffer_size is AUTO else f"{self.buffer_size}"


@dataclass(frozen=True, eq=False, kw_only=True)
class ToDevice(SameElements):
    """Batches in device memory, copied through a ring of slots. Always the last operator of a plan."""

    device: str
    depth: int = 3
    handoff: Literal["copy", "lease", "into"] = "copy"
    framework: Literal["cupy", "torch", "jax"] | None = None
    transform: Transform | None = None
    allow_pageable: bool = False

    @property
    def label(self) -> str:
        return "to_device"

    def detail(self) -> str:
        return call_arguments(
            *(() if self.device == "auto" else (self.device,)),
            depth=(self.depth, 3),
            handoff=(self.handoff, "copy"),
            framework=(self.framework, None),
            transform=(None if self.transform is None else Verbatim(self.transform), None),
            allow_pageable=(self.allow_pageable, False),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Zip(Node):
    """Elements that combine one element of each input in ``structure``. Ends with the shortest input."""

    structure: Structure
    nodes: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.nodes


@dataclass(frozen=True, eq=False, kw_only=True)
class Concatenate(Node):
    """All elements of the first input, followed by those of the next inputs."""

    nodes: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.nodes
