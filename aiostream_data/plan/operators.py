"""Operator nodes: one immutable dataclass for each operator, with names as in tf.data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from aiostream_data.failing.policies import OnError
from aiostream_data.plan.base import (
    AUTO,
    Concurrency,
    Decoder,
    ExecutorName,
    Node,
    Operator,
    SameElements,
    Spills,
    Transform,
)
from aiostream_data.plan.written import Verbatim, call_arguments
from aiostream_data.rows.structure import Structure
from aiostream_data.rows.text_arrays import Strings


@dataclass(frozen=True, eq=False, kw_only=True)
class Call(Operator):
    """Base class of nodes that call a user function for each element, with the options of these calls.

    Attributes:
        executor, concurrency: Executor that runs the calls, and maximum number of concurrent calls.
        ordered: If False, results are emitted in the order in which calls finish.
        init: Function that creates the state of a worker, or None. Each worker calls the function ``init`` one time.
        wants_state: True if the function has a parameter ``state``, which receives the result of ``init``.
        timeout_s: Maximum duration of one call in seconds; None for no limit.
        on_error: Error policy that applies when the function fails on an element.
        is_coroutine: True for a coroutine function, which runs on the engine's event loop.
        wants_rng: True if the function has a parameter ``rng``, which receives a random generator.
        seed: Seed of the random generators; None to use the seed of the loader.
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
    """Node that emits the results of ``function``, called for each element, or for arrays of rows if ``batched``.

    Attributes:
        keeps_epochs: True if the node emits all results of one epoch of its source before those of the next, also
            without order. A rewrite sets it if the source repeats its rows itself.
    """

    function: Callable[..., Any]
    batched: bool = False
    keeps_epochs: bool = False

    @property
    def function_called(self) -> Callable[..., Any]:
        return self.function


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(Call, SameElements):
    """Node that emits the input elements for which ``predicate`` returns a true value."""

    predicate: Callable[..., Any]

    @property
    def function_called(self) -> Callable[..., Any]:
        return self.predicate


AUTO_CYCLE_LENGTH: Final = 8
"""Default ``cycle_length`` of ``interleave()``: the number of data sets read concurrently."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Interleave(Operator):
    """Node that emits elements of the data sets or iterables that ``function`` returns.

    The node reads several data sets or iterables in turn.

    Attributes:
        executor, concurrency: Executor that calls the function, and number of concurrent calls.
    """

    function: Callable[..., Any]
    cycle_length: int
    block_length: int
    ordered: bool = True
    name: str = "interleave"
    on_error: OnError = None
    executor: Literal["thread", "process", "inline"] = "thread"
    concurrency: Concurrency = 1

    @property
    def label(self) -> str:
        return self.name

    def detail(self) -> str:
        return call_arguments(
            self.function,
            cycle_length=(self.cycle_length, 1 if self.name == "flat_map" else AUTO_CYCLE_LENGTH),
            block_length=(self.block_length, 1),
            executor=(self.executor, "thread"),
            concurrency=(self.concurrency, 1),
            ordered=(self.ordered, True),
            on_error=(self.on_error, None),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ParseExample(Operator):
    """Node that parses serialized ``tf.train.Example`` or ``SequenceExample`` records into columns."""

    is_transparent: ClassVar[bool] = True

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
    """``ParseExample`` with an error policy that skips, replaces or retries records. A rewrite makes it."""

    is_transparent: ClassVar[bool] = True

    decoder: Decoder
    name: str

    @property
    def label(self) -> str:
        return self.name

    @property
    def function_called(self) -> Callable[..., Any]:
        return self.decoder.parse


AUTO_BUFFER_ROWS: Final = 8192
"""Maximum number of rows in the buffer of ``shuffle()`` if the user sets no buffer size."""

AUTO_BUFFER_NBYTES: Final = 128 << 20
"""Maximum size in bytes of the buffer of ``shuffle()`` if the user sets no buffer size."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Shuffle(Spills, SameElements):
    """Node that emits its input in random order.

    The node draws each row uniformly from a buffer of ``buffer_size`` rows. If the buffer has room for all rows of an
    in-memory source directly before it, a rewrite replaces it with a permutation.

    With buffer size AUTO, a rewrite replaces the buffer with a permutation of all rows, if the source supports
    permutations. If the source does not support permutations, the shuffle buffer emits rows while the buffer still
    grows.
    """

    buffer_size: Concurrency
    seed: int | None
    reshuffle_each_iteration: bool = True

    @property
    def growing(self) -> bool:
        """True if the shuffle buffer emits rows before it is full."""
        return self.buffer_size is AUTO

    @property
    def buffer_rows(self) -> int:
        """Maximum number of rows in the buffer."""
        return self.buffer_size if isinstance(self.buffer_size, int) else AUTO_BUFFER_ROWS

    def detail(self) -> str:
        return call_arguments(
            *(() if self.growing else (self.buffer_size,)),
            seed=(self.seed, None),
            reshuffle_each_iteration=(self.reshuffle_each_iteration, True),
            spill=self.spill_argument,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch(Operator):
    """Node that stacks ``batch_size`` consecutive elements into a batch.

    Attributes:
        parts_from: Minimum size in bytes of a chunk whose rows are not copied during batching. A rewrite sets
            ``parts_from`` if batches are later copied into other memory, such as a device slot. Rows of large chunks
            stay in their chunks until they are copied to that memory.
        strings: Form of leaves whose rows are bytes or text; None for object arrays. See
            :data:`~aiostream_data.rows.text_arrays.Strings`.
    """

    batch_size: int
    drop_remainder: bool = False
    parts_from: int | None = None
    strings: Strings | None = None

    def detail(self) -> str:
        return call_arguments(
            self.batch_size, drop_remainder=(self.drop_remainder, False), strings=(self.strings, None)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Unbatch(Operator):
    """Node that splits each batch into its rows along the first axis."""


ENDLESS: Final = 10**12
"""Number of input epochs reserved for each epoch of an infinite ``repeat()``. For example, epoch 2 of ``repeat()``
begins at epoch 2 * 10**12 of its input."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Repeat(SameElements):
    """Node that emits its input ``count`` times; None repeats without end."""

    count: int | None

    @property
    def turns(self) -> int:
        """Number of input epochs for each epoch of this node.

        The reserved epochs make the epoch numbers of the input unique.
        """
        return ENDLESS if self.count is None else self.count

    def detail(self) -> str:
        return "" if self.count is None else f"{self.count}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Take(SameElements):
    """Node that emits the first ``count`` elements; all elements if ``count`` is -1."""

    count: int

    def detail(self) -> str:
        return f"{self.count}"


@dataclass(frozen=True, eq=False, kw_only=True)
class SkipFirst(SameElements):
    """Node that emits all elements except the first ``count``; no elements if ``count`` is -1."""

    count: int

    @property
    def label(self) -> str:
        return "skip"

    def detail(self) -> str:
        return f"{self.count}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Shard(SameElements):
    """Node that emits every ``num_shards``-th element, starting at position ``index``."""

    num_shards: int
    index: int

    def detail(self) -> str:
        return f"{self.num_shards}, {self.index}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Enumerate(Operator):
    """Node that emits pairs (index, element). Indices begin at ``start``."""

    start: int = 0

    def detail(self) -> str:
        return f"{self.start}" if self.start else ""


class CacheToken:
    """Identity (token) of one ``cache()`` call.

    Loaders in one process share the cached rows if their tokens are the same.
    """

    def __reduce__(self) -> tuple[type[CacheToken], tuple[()]]:
        return CacheToken, ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Cache(SameElements):
    """Node that reads its input in the first complete pass, and later emits the rows from memory."""

    token: CacheToken = field(default_factory=CacheToken)


@dataclass(frozen=True, eq=False, kw_only=True)
class Prefetch(SameElements):
    """Node that computes its input ahead into a buffer of ``buffer_size`` elements."""

    is_transparent: ClassVar[bool] = True

    buffer_size: Concurrency

    def detail(self) -> str:
        return "" if self.buffer_size is AUTO else f"{self.buffer_size}"


@dataclass(frozen=True, eq=False, kw_only=True)
class ToDevice(SameElements):
    """Node that copies batches to device memory, into a fixed number of reused memory slots.

    A ``to_device`` node is always the last operator of a plan.
    """

    is_transparent: ClassVar[bool] = True

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
    """Node whose elements combine one element of each input, arranged as in ``structure``.

    The node ends when its shortest input ends.
    """

    structure: Structure
    nodes: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.nodes


@dataclass(frozen=True, eq=False, kw_only=True)
class Concatenate(Node):
    """Node that emits all elements of its first input, followed by the elements of the next inputs."""

    nodes: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.nodes
