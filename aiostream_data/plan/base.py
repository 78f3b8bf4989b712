"""Base classes of plan nodes. A node is an immutable description of one source or operator and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

import numpy as np

from aiostream_data.arguments import integer, local_path
from aiostream_data.errors import PlanError
from aiostream_data.plan.written import SourceLine, Verbatim, callers_line
from aiostream_data.rows.records import Chunk, Columns

INFINITE: Final = -1
"""Cardinality of an infinite data set, as in tf.data."""

UNKNOWN: Final = -2
"""Cardinality if the length is unknown before reading, as in tf.data."""


class Auto(Enum):
    """The type of :data:`AUTO`."""

    AUTO = "auto"

    def __repr__(self) -> str:
        return "AUTO"


AUTO: Final = Auto.AUTO
"""Argument value that lets the engine choose a setting, based on measurements."""

_AUTOTUNE: Final = -1
"""Value of ``tf.data.AUTOTUNE``."""

ExecutorName: TypeAlias = Literal["auto", "thread", "process", "inline", "interpreter"]
Concurrency: TypeAlias = int | Auto
Describe: TypeAlias = Callable[[int], tuple[str, int]]
"""Function from the index of a row in its chunk to a pair (url, record index), for error messages."""


class Decoder(Protocol):
    """Parser that converts framed records to columns, row by row, without holding the GIL.

    Attributes:
        wraps: True if the parser does not read the bytes of records. It then needs no worker thread.
    """

    wraps: ClassVar[bool]

    def parse(self, chunk: Columns, describe: Describe) -> Chunk: ...


Shape: TypeAlias = tuple[int | None, ...]
"""Shape of an array, with one entry per axis. An entry is None if the length is unknown."""
Outcome: TypeAlias = "tuple[Shape | None, np.dtype[Any] | None]"


class Transform(Protocol):
    """Transformation that changes batches while they are copied out of device slots."""

    @property
    def draws(self) -> bool:
        """True if the transform uses random numbers for each row."""

    @property
    def seed(self) -> int | None:
        """Seed of the transform's random numbers; None to use the seed of the run."""

    @property
    def itemsize(self) -> int:
        """Maximum factor by which the transform increases the size of a batch in bytes."""

    def outcome(self, leaves: Sequence[tuple[str, Shape | None, np.dtype[Any] | None, bool]]) -> list[Outcome]:
        """Return the shape and dtype of each leaf of a transformed batch; None for an unknown shape or dtype.

        Args:
            leaves: Tuple (path, shape, dtype, is dense) for each leaf of the input batch.

        Raises:
            DataError: The transform does not support batches with these leaves.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """Node of a plan: one source or operator.

    Nodes are compared by identity; :mod:`.fingerprint` compares their contents.

    Attributes:
        is_transparent: True for a node that uses no random numbers and has no number of its own. Ranks, options of a
            run and rewrites add and remove such nodes without an effect on the rows.
        written_at: Source line of the user's call that created the node, for messages. Copies of a node made with
            ``replace`` have the same source line.
    """

    is_transparent: ClassVar[bool] = False

    written_at: SourceLine | None = field(default_factory=callers_line, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Input nodes, in order."""
        return ()

    @cached_property
    def depth(self) -> int:
        """Number of nodes of the longest path from this node to a source."""
        return 1 + max((node.depth for node in self.inputs), default=0)

    @property
    def label(self) -> str:
        """Name of the stage in reports, notes and explain()."""
        return type(self).__name__.lower()

    @property
    def noted(self) -> str:
        """Text added to exceptions: the label of the stage, and the source line of the user's call."""
        return f"stage: {self.label}" + (f", written at {self.written_at}" if self.written_at is not None else "")

    @property
    def method(self) -> str:
        """Name of the method that the user called."""
        return self.label

    def detail(self) -> str:
        """Return the arguments of the user's call as text, without arguments that have their default values."""
        return ""

    def call(self) -> str:
        """Return the user's call as text, such as ``batch(32, drop_remainder=True)``."""
        return f"{self.method}({self.detail()})"


@dataclass(frozen=True, eq=False, kw_only=True)
class Operator(Node):
    """A node with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False, kw_only=True)
class SameElements(Operator):
    """Operator that emits elements of its input unchanged: all or some elements, once or repeatedly, in any order.

    The operator has the same element spec (:mod:`.spec`) and element size (:mod:`.element_nbytes`) as its input. Each
    subclass registers a function in :mod:`.cardinality` that returns its number of elements.
    """


def walk(node: Node) -> Iterator[Node]:
    """Yield all nodes of the plan that ends with ``node``; inputs precede the nodes that use them."""
    for child in node.inputs:
        yield from walk(child)
    yield node


def keys_of(plan: Node) -> dict[Node, int]:
    """Assign a number (key) to every node of a plan.

    The number of a node seeds its random numbers and is part of its row ids.

    Adding or removing a transparent node (see :class:`Node`) does not change the numbers of other nodes.
    """
    keys: dict[Node, int] = {}
    number = 0
    for node in walk(plan):
        keys[node] = number
        if not node.is_transparent:
            number += 1
    return keys


def own_keys(plan: Node, keys: dict[Node, int]) -> tuple[int, ...]:
    """Return the keys (node numbers) of a plan or part of a plan, in order and without transparent nodes.

    Args:
        keys: Keys of all nodes of the plan, from :func:`keys_of`.
    """
    return tuple(keys[node] for node in walk(plan) if not node.is_transparent)


def keys_again(plan: Node, known: Sequence[int]) -> dict[Node, int]:
    """Assign a key (node number) to every node of a plan, given the keys that :func:`own_keys` returned."""
    keys: dict[Node, int] = {}
    left = list(known[::-1])
    last = known[-1] + 1 if known else 0
    for node in walk(plan):
        keys[node] = left[-1] if left else last
        if not node.is_transparent:
            left.pop()
    return keys


def gives_one_order(node: Node) -> bool:
    """Return True if a plan emits its rows in the same order in every run."""
    return all(getattr(lower, "ordered", True) for lower in walk(node))


def at_least(name: str, value: Any, minimum: int) -> int:
    """Check that an argument is an integer of at least ``minimum``, and return the integer.

    Raises:
        PlanError: The value is not an integer or is too small. The error message states the minimum and the value.
    """
    return integer(name, value, minimum)


def auto_or_at_least_one(name: str, value: Any) -> Concurrency:
    """Check that an argument is AUTO or an integer of at least 1, and return the value. Raise PlanError otherwise."""
    if isinstance(value, Auto):
        return value
    number = integer(name, value, what="an integer or AUTO")
    if number == _AUTOTUNE:
        raise PlanError(f"{name} must be at least 1, got -1. Use AUTO instead of tf.data.AUTOTUNE")
    return at_least(name, number, 1)


def native_threads_of(value: Any) -> int | None:
    """Check a ``native_threads`` argument: an integer of at least 1, or None."""
    return None if value is None else integer("native_threads", value, 1, what="an integer or None")


def seed_of(value: Any) -> int | None:
    """Check a ``seed`` argument: an integer, or None."""
    return None if value is None else integer("seed", value, maximum=None, what="an integer or None")


@dataclass(frozen=True, eq=False, kw_only=True)
class Spills:
    """Part of a node whose operator can write what it holds to disk.

    Attributes:
        spill: True to allow writing to a file in the temporary folder, or the path of another folder.
    """

    spill: bool | str = False

    @property
    def spill_folder(self) -> str | None:
        """Folder of the spill file on this machine; None if spilling is disabled."""
        if isinstance(self.spill, str):
            return self.spill
        if not self.spill:
            return None
        from tempfile import gettempdir  # slow import

        return gettempdir()

    @property
    def spill_argument(self) -> tuple[object, object]:
        """Value and default of the argument ``spill``, for :func:`.call_arguments`."""
        return Verbatim(repr(self.spill)), Verbatim("False")


def spill_of(value: Any) -> bool | str:
    """Check a ``spill`` argument: a bool, or the path of a folder."""
    if isinstance(value, bool):
        return value
    return local_path("spill", value, "True, False or the path of a folder")
