"""Place: the position of one node in a saved state, used to validate the state against a schema.

How this works. A stage that writes a part of a state has a class method ``schema`` in addition to ``at`` and
``resume``. The method ``schema`` receives a :class:`Place`, validates the node's own fields, and yields a place for
each input. Row counts in a state are validated in the order from the consumer to the sources. The row count of a node
determines how many rows its input has emitted. The saved count of the input must match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from aiostream_data._engine.resume.lineage_reader import Book
from aiostream_data._engine.resume.lineage_writer import ROWS
from aiostream_data._engine.resume.shard_numbers import Era, ShardNumbers
from aiostream_data.plan.base import Node
from aiostream_data.state_fields import MAX_COUNT, Part

SKIPPED_ROWS: Final = 1 << 22
"""Assumed maximum number of rows that the error policy of one stage has skipped.

A saved state does not contain the number of skipped rows.
"""


MOST_SHARES: Final = 1 << 10
"""Approximate maximum of (ranks times worker processes) in the run that saved the state."""


class Rows(NamedTuple):
    """Minimum and maximum number of rows that a node can have emitted before the state was saved."""

    least: int = 0
    most: int = MAX_COUNT

    def includes(self, count: int) -> bool:
        """Return True if ``count`` lies within the range."""
        return self.least <= count <= self.most

    @property
    def or_more(self) -> Rows:
        """Range of the input's row count if the node can drop any number of rows."""
        return Rows(self.least)

    @property
    def or_some_more(self) -> Rows:
        """Range of the input's row count if the node's error policy can skip rows."""
        return Rows(self.least, min(MAX_COUNT, self.most + SKIPPED_ROWS))

    @property
    def of_all_ranks(self) -> Rows:
        """Range of the row count of an input that ranks or workers share, if the node counts only its own rows."""
        return Rows(min(1, self.least), min(MAX_COUNT, self.most * MOST_SHARES))

    @property
    def any(self) -> Rows:
        """Range without limits, for an input that can have emitted any number of rows."""
        return Rows()


@dataclass(frozen=True)
class SavedShards:
    """Shard list of one source, in the form that a saved state contains.

    Attributes:
        count: Length of the shard list.
        numbered: Shard numbers for epochs that began before the shard list changed, earliest epoch first.
    """

    count: int
    numbered: Sequence[ShardNumbers] = ()


@dataclass(frozen=True)
class Scope:
    """Data shared by all places (positions of nodes) in one saved state.

    Attributes:
        book: The rows that the saved state names.
        keys: Numbers of the plan's nodes.
        shards: For each source key, the saved shard list of the source.
        received: Maximum number of rows that a node can have emitted if no later node drops rows.
        shared: Nodes that emit rows for several ranks (training processes). Later nodes count only the rows of one
            rank. Any number of ranks may have saved the state.
        exact: True if the state was saved with the same plan. If False, the user allowed a difference between the
            plans, and row counts need not match.
    """

    book: Book
    keys: Mapping[Node, int] = field(default_factory=dict)
    shards: Mapping[int, SavedShards] = field(default_factory=dict)
    received: int = 0
    shared: frozenset[Node] = frozenset()
    exact: bool = True


@dataclass(frozen=True)
class Place:
    """Position of one node in a saved state.

    Attributes:
        part: Part of the saved state that belongs to the node.
        node: The plan node; None inside a data set created by a user function, because its plan is unknown.
        rows: Range of the number of rows that the node can have emitted.
        scope: Data shared by all places in the saved state.
        fused: Earlier nodes that run in the same stage as ``node``, in stream order.
        epoch: Number of the epoch in which the node runs.
    """

    part: Part
    node: Any
    rows: Rows
    scope: Scope
    fused: Sequence[Any] = ()
    epoch: int = 0

    @property
    def shards(self) -> SavedShards | None:
        """Saved shard list of this source; None if the state contains no shard list for the node."""
        return None if self.node is None else self.scope.shards.get(self.scope.keys[self.node])

    @property
    def numbers(self) -> ShardNumbers | None:
        """Shard numbers for the node's epoch. None means that each shard's number is its position in the shard list."""
        numbered = () if self.shards is None else self.shards.numbered
        return next((numbers for numbers in numbered if self.epoch <= numbers.epoch), None)

    @property
    def shard_eras(self) -> list[Era] | None:
        """Eras of the node's shards (an era contains the shards added by one list change).

        None without a saved shard list.
        """
        if self.shards is None:
            return None
        return [Era(0, 0, self.shards.count)] if self.numbers is None else self.numbers.eras

    def fields(self, kind: str, *names: str, optional: tuple[str, ...] = ()) -> dict[str, Part]:
        """Return the fields of the node's part of the state. The field ``op`` of this part must be equal to ``kind``.

        Raises:
            DamagedStateError: The node's part of the state has another kind or other fields.
        """
        op = self.part.entry("op")
        if op.value != kind:
            raise self.part.refused_kind(op.value, kind)
        return self.part.fields("op", *names, optional=optional)

    def of_input(self, part: Part, number: int = 0, rows: Rows | None = None) -> Place:
        """Return the place (position in the saved state) of one input of the node.

        Args:
            part: Part of the saved state that belongs to the input.
            number: Index of the input.
            rows: Range of the number of rows that the input can have emitted; None for any number.
        """
        node = None if self.node is None else self.node.inputs[number]
        return self.of_node(part, node, rows)

    def of_node(self, part: Part, node: Node | None, rows: Rows | None = None) -> Place:
        """Return the place of ``node`` (its position in the saved state).

        The new place shares the data of this place.
        """
        # An unknown plan may have operators without a saved place between this node and the node of the part.
        known = rows if rows is not None and node is not None and self.scope.exact else Rows()
        return replace(self, part=part, node=node, rows=known, fused=())

    def counted(self, part: Part, least: int = 0, most: int = MAX_COUNT) -> int:
        """Return the saved row count of the node.

        Raise DamagedStateError if the count is outside the possible range.
        """
        least, most = max(least, self.rows.least), min(most, self.rows.most)
        if least > most:
            raise part.refused(f"must count at least {self.rows.least} rows, but at most {most} are possible")
        return part.integer(least, most)

    def held(self, part: Part, least: int = 0, most: int = MAX_COUNT) -> int:
        """Return the number of rows that a reference in the state refers to, or 0 if the reference is None.

        Raises:
            DamagedStateError: The reference is invalid, its rows are damaged, or the number of rows is out of range.
        """
        count = 0
        if part.value is not None:
            number = part.fields(ROWS)[ROWS].integer(0, len(self.scope.book) - 1)
            count = self.scope.book.rows_declared(number)
            if least <= count <= most:
                count = len(self.scope.book.rows(part.value))
        if not least <= count <= most:
            between = f"{least}" if least == most else f"{least} to {most}"
            raise part.refused(f"must refer to {between} rows, but refers to {count}")
        return count
