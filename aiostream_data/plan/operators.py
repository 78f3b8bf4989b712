"""Nodes that transform: one frozen dataclass per operator of tf.data's vocabulary."""

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
    """A user's function that is called for every element, one by one, and how.

    Attributes:
        executor, concurrency: Where it runs, and how many calls at once.
        init: Makes the state of a worker, once per worker; None for none.
        wants_state: The function takes it as ``state``.
        timeout_s: Seconds that one call may take; None for any time.
        on_error: What becomes of an element on which it fails.
        is_coroutine: It is awaited on the engine's loop.
        wants_rng: It takes a generator as ``rng``.
        seed: For that; None for the loader's.
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
        """The function."""
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
    """``function`` on every element, or on runs of rows as arrays when ``batched``."""

    function: Callable[..., Any]
    batched: bool = False

    @property
    def function_called(self) -> Callable[..., Any]:
        return self.function


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(Call, SameElements):
    """The elements for which ``predicate`` is true."""

    predicate: Callable[..., Any]

    @property
    def function_called(self) -> Callable[..., Any]:
        return self.predicate


AUTO_CYCLE_LENGTH: Final = 8
"""Data sets that ``interleave()`` takes elements from at once, when it is not told how many."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Interleave(Operator):
    """Elements of the data sets (or iterables) that ``function`` makes, several at a time."""

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
    """Serialized ``tf.train.Example`` (or ``SequenceExample``) records to columns."""

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
    """``ParseExample`` where records that cannot be parsed are skipped, replaced or tried again; set by a rewrite."""

    decoder: Decoder
    name: str

    @property
    def label(self) -> str:
        return self.name

    @property
    def function_called(self) -> Callable[..., Any]:
        return self.decoder.parse


AUTO_BUFFER_ROWS: Final = 8192
"""Rows that ``shuffle()`` holds, at most, when it is not told how many."""

AUTO_BUFFER_NBYTES: Final = 128 << 20
"""It holds no more than this many bytes of them: fewer rows where they are large."""


SCHEDULE_EVERY: Final = 1000
"""Rows after which ``sample_from()`` asks a function for weights again, when it is not told."""

OPEN_BINS: Final = 16
"""Rows that ``pack()`` fills at once, when it is not told how many."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Shuffle(SameElements):
    """A uniformly chosen row of a buffer of ``buffer_size`` rows, again and again.

    AUTO stands for a whole-epoch permutation where a rewrite finds that possible, and otherwise for a
    buffer that gives rows out while it grows.

    Attributes:
        spill: Whether rows may wait in a file, or the folder of that file.
    """

    buffer_size: Concurrency
    seed: int | None
    reshuffle_each_iteration: bool = True
    spill: bool | str = False

    @property
    def growing(self) -> bool:
        """Whether rows go out before the buffer is full."""
        return self.buffer_size is AUTO

    @property
    def buffer_rows(self) -> int:
        """Most rows held."""
        return self.buffer_size if isinstance(self.buffer_size, int) else AUTO_BUFFER_ROWS

    @property
    def spill_folder(self) -> str | None:
        """Where rows may wait in a file, on the machine that asks; None where they may not."""
        if isinstance(self.spill, str):
            return self.spill
        if not self.spill:
            return None
        from tempfile import gettempdir  # takes milliseconds

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
    """``batch_size`` consecutive elements stacked into one.

    ``parts_from`` is set by a rewrite where the batch is written into other memory anyway, such as a device's slot:
    from how many bytes of a chunk on its rows are left in it until then.
    """

    batch_size: int
    drop_remainder: bool = False
    parts_from: int | None = None

    def detail(self) -> str:
        return call_arguments(self.batch_size, drop_remainder=(self.drop_remainder, False))


@dataclass(frozen=True, eq=False, kw_only=True)
class Unbatch(Operator):
    """The rows of every element's first axis."""


ENDLESS: Final = 10**12
"""Turns that a repetition for ever counts as; more than any run plays. Epoch 2 of ``repeat()`` begins at 2 * 10**12."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Repeat(SameElements):
    """The input ``count`` times, epoch by epoch; None for ever."""

    count: int | None

    @property
    def turns(self) -> int:
        """Turns that one epoch of this node counts as, so that no two turns of the input have one number."""
        return ENDLESS if self.count is None else self.count

    def detail(self) -> str:
        return "" if self.count is None else f"{self.count}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Take(SameElements):
    """The first ``count`` elements; -1 for all."""

    count: int

    def detail(self) -> str:
        return f"{self.count}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Skip(SameElements):
    """All but the first ``count`` elements; -1 skips everything."""

    count: int

    def detail(self) -> str:
        return f"{self.count}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Shard(SameElements):
    """Every ``num_shards``-th element, beginning with number ``index``."""

    num_shards: int
    index: int

    def detail(self) -> str:
        return f"{self.num_shards}, {self.index}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Enumerate(Operator):
    """(index, element) pairs, counted from ``start``."""

    start: int = 0

    def detail(self) -> str:
        return f"{self.start}" if self.start else ""


class CacheToken:
    """Names one ``cache()`` call: iterators of the same process that hold it share what was cached."""

    def __reduce__(self) -> tuple[type[CacheToken], tuple[()]]:
        return CacheToken, ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Cache(SameElements):
    """The input, kept in memory once a pass over it was completed."""

    token: CacheToken = field(default_factory=CacheToken)


@dataclass(frozen=True, eq=False, kw_only=True)
class Prefetch(SameElements):
    """A buffer of ``buffer_size`` elements, so that the input runs ahead."""

    buffer_size: Concurrency

    def detail(self) -> str:
        return "" if self.buffer_size is AUTO else f"{self.buffer_size}"


@dataclass(frozen=True, eq=False, kw_only=True)
class ToDevice(SameElements):
    """Batches in device memory, written through a ring of slots; always the last operator."""

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
    """One element of every input at a time, in ``structure``; ends with the shortest."""

    structure: Structure
    nodes: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.nodes


@dataclass(frozen=True, eq=False, kw_only=True)
class Concatenate(Node):
    """All of the first input, then all of the next."""

    nodes: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.nodes
