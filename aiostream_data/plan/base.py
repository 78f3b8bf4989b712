"""What every plan node is: a frozen description of one source or operator, and the nodes it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np

from aiostream_data.arguments import integer, local_path
from aiostream_data.errors import PlanError
from aiostream_data.plan.written import SourceLine, callers_line
from aiostream_data.rows.records import Chunk, Columns

INFINITE: Final = -1
"""Cardinality of a data set that never ends, as in tf.data."""

UNKNOWN: Final = -2
"""Cardinality of a data set whose length only reading it would tell, as in tf.data."""


class Auto(Enum):
    """The type of :data:`AUTO`."""

    AUTO = "auto"

    def __repr__(self) -> str:
        return "AUTO"


AUTO: Final = Auto.AUTO
"""Let the engine choose, from what it measures."""

_AUTOTUNE: Final = -1
"""What tf.data has for it."""

ExecutorName: TypeAlias = Literal["auto", "thread", "process", "inline", "interpreter"]
Concurrency: TypeAlias = int | Auto
Describe: TypeAlias = Callable[[int], tuple[str, int]]
"""Given a row of a chunk, return (url, record index) for messages."""


class Decoder(Protocol):
    """A row-wise, GIL-free step that turns framed records into columns."""

    def parse(self, chunk: Columns, describe: Describe) -> Chunk: ...


Shape: TypeAlias = tuple[int | None, ...]
"""One entry per axis, None where it is not known."""
Outcome: TypeAlias = "tuple[Shape | None, np.dtype[Any] | None]"


class Transform(Protocol):
    """What is done to batches while they are taken out of a device's slots."""

    @property
    def draws(self) -> bool:
        """True when it draws something for every row."""

    @property
    def seed(self) -> int | None:
        """Seed of what is drawn; None for that of the run."""

    @property
    def itemsize(self) -> int:
        """By at most this factor it makes a batch larger."""

    def outcome(self, leaves: Sequence[tuple[str, Shape | None, np.dtype[Any] | None, bool]]) -> list[Outcome]:
        """Return shape and dtype of every leaf of a batch as it comes out, as far as they are known.

        Args:
            leaves: Path, shape, dtype, and whether it is dense, of each as it goes in.

        Raises:
            DataError: Such batches cannot be transformed.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """One source or operator. Compared by identity; :mod:`.fingerprint` compares by meaning.

    Attributes:
        written_at: Where the user wrote it, for messages; a node changed by ``replace`` keeps it. Means nothing.
    """

    written_at: SourceLine | None = field(default_factory=callers_line, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes this one reads, in order."""
        return ()

    @property
    def label(self) -> str:
        """Name of the stage in reports, notes and explain()."""
        return type(self).__name__.lower()

    @property
    def noted(self) -> str:
        """What notes of errors say of the stage: its name, and the line where the user wrote it."""
        return f"stage: {self.label}" + (f", written at {self.written_at}" if self.written_at is not None else "")

    @property
    def method(self) -> str:
        """Name of the method that the user called."""
        return self.label

    def detail(self) -> str:
        """Return arguments as in the call of that method; those left at their defaults are left out."""
        return ""

    def call(self) -> str:
        """Return the call as the user wrote it, such as ``batch(32, drop_remainder=True)``."""
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
    """An operator that gives elements of its input as they are: all or some, once or again, in whatever order.

    So what is known of an element of the input is known of its own: structure and types (:mod:`.spec`), and bytes
    (:mod:`.element_nbytes`). How many there are, each tells :mod:`.cardinality` itself.
    """


def walk(node: Node) -> Iterator[Node]:
    """Yield ``node`` and everything it reads, inputs first."""
    for child in node.inputs:
        yield from walk(child)
    yield node


TRANSPARENT: Final = (
    *("prefetch", "to_device", "parse_example", "parse_sequence_example"),
    *("rank_shard", "mark_padding", "equal_rows", "agree", "block"),
    *("in_subprocess", "worker_shard", "loader_shard", "recalled"),
)
"""Labels of nodes that draw nothing at random, and that a plan has or lacks by where and how it runs."""


def keys_of(plan: Node) -> dict[Node, int]:
    """Return a number for every node, by which it draws random numbers and names its rows.

    Adding or leaving out a transparent node changes no other node's number.
    """
    keys: dict[Node, int] = {}
    number = 0
    for node in walk(plan):
        keys[node] = number
        if node.label not in TRANSPARENT:
            number += 1
    return keys


def own_keys(plan: Node, keys: dict[Node, int]) -> tuple[int, ...]:
    """Return the keys of a plan, or of a part of one, in order, without those of transparent nodes.

    Args:
        keys: Of the whole plan.
    """
    return tuple(keys[node] for node in walk(plan) if node.label not in TRANSPARENT)


def keys_again(plan: Node, known: Sequence[int]) -> dict[Node, int]:
    """Return the key of every node of a plan, given those of :func:`own_keys`."""
    keys: dict[Node, int] = {}
    left = list(known[::-1])
    last = known[-1] + 1 if known else 0
    for node in walk(plan):
        keys[node] = left[-1] if left else last
        if node.label not in TRANSPARENT:
            left.pop()
    return keys


def gives_one_order(node: Node) -> bool:
    """Return True if the rows of a plan come in the same order whenever it runs."""
    return all(getattr(lower, "ordered", True) for lower in walk(node))


def at_least(name: str, value: Any, minimum: int) -> int:
    """Return ``value`` when it is an integer of at least ``minimum``.

    Raises:
        PlanError: It is not; the message states rule and value.
    """
    return integer(name, value, minimum)


def auto_or_at_least_one(name: str, value: Any) -> Concurrency:
    """Return ``value`` when it is AUTO or an integer of at least 1; raise PlanError when it is not."""
    if isinstance(value, Auto):
        return value
    number = integer(name, value, what="an integer or AUTO")
    if number == _AUTOTUNE:
        raise PlanError(f"{name} must be at least 1, got -1; tf.data.AUTOTUNE is AUTO here")
    return at_least(name, number, 1)


def seed_of(value: Any) -> int | None:
    """Check a ``seed`` argument: an integer, or None."""
    return None if value is None else integer("seed", value, maximum=None, what="an integer or None")


def spill_of(value: Any) -> bool | str:
    """Check a ``spill`` argument: whether, or the path of a folder."""
    if isinstance(value, bool):
        return value
    return local_path("spill", value, "True, False or the path of a folder")
