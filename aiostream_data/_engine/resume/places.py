"""Place of one node in a state, for schema checks: the node, its part of the state, and its number of emitted rows.

How this works. A stage that writes a part of a state has a classmethod ``schema`` next to ``at`` and ``resume``.
``schema`` receives a :class:`Place`, checks the node's own fields, and yields the places of its inputs. Row counts are
checked from the consumer to the sources. A node's count determines how many rows its input emitted, and the input's
count must match.
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
"""Maximum number of rows that an error policy can have skipped in one stage. A state does not count skipped rows."""


MOST_SHARES: Final = 1 << 10
"""Approximate maximum of ranks times worker processes at the time of saving."""


class Rows(NamedTuple):
    """Range for the number of rows that a node emitted before the state was saved."""

    least: int = 0
    most: int = MAX_COUNT

    def includes(self, count: int) -> bool:
        """Return True if ``count`` is in the range."""
        return self.least <= count <= self.most

    @property
    def or_more(self) -> Rows:
        """Range for the input of a node that can drop any number of rows."""
        return Rows(self.least)

    @property
    def or_some_more(self) -> Rows:
        """Range for the input of a node whose error policy can skip rows."""
        return Rows(self.least, min(MAX_COUNT, self.most + SKIPPED_ROWS))

    @property
    def of_all_ranks(self) -> Rows:
        """Range for an input that ranks or worker processes share, while the node counts only its own share."""
        return Rows(min(1, self.least), min(MAX_COUNT, self.most * MOST_SHARES))

    @property
    def any(self) -> Rows:
        """Range without limits, for an input that can have emitted any number of rows."""
        return Rows()


@dataclass(frozen=True)
class SavedShards:
    """Shard list of one source, as a state stores it.

    Attributes:
        count: Length of the shard list.
        numbered: Shard numbers for epochs that began before the list changed, earliest epoch first.
    """

    count: int
    numbered: Sequence[ShardNumbers] = ()


@dataclass(frozen=True)
class Scope:
    """Data shared by all places of one state.

    Attributes:
        book: The rows that the state names.
        keys: Numbers of the plan's nodes.
        shards: Saved shard lists, keyed by source key.
        received: Maximum number of rows that a node without dropped rows can have emitted.
        shared: Nodes whose rows several ranks share. Nodes above them count the rows of one rank. Any number of ranks
            can have saved the state.
        exact: True if the state was saved from the same plan. If False, the user allowed a difference, and row counts
            need not match.
    """

    book: Book
    keys: Mapping[Node, int] = field(default_factory=dict)
    shards: Mapping[int, SavedShards] = field(default_factory=dict)
    received: int = 0
    shared: frozenset[Node] = frozenset()
    exact: bool = True


@dataclass(frozen=True)
class Place:
    """Place of one node in a state.

    Attributes:
        part: The node's part of the state.
        node: The node; None inside a data set that a user function creates, because its plan is unknown.
        rows: Possible numbers of rows that the node emitted.
        scope: Data shared by all places of the state.
        fused: Nodes below ``node`` that run in the same stage, in stream order.
        epoch: Epoch of the node.
    """

    part: Part
    node: Any
    rows: Rows
    scope: Scope
    fused: Sequence[Any] = ()
    epoch: int = 0

    @property
    def shards(self) -> SavedShards | None:
        """Saved shard list of the node, which must be a source; None if the state has none."""
        return None if self.node is None else self.scope.shards.get(self.scope.keys[self.node])

    @property
    def numbers(self) -> ShardNumbers | None:
        """Shard numbers of the node; None if the numbers equal the positions in the shard list."""
        numbered = () if self.shards is None else self.shards.numbered
        return next((numbers for numbers in numbered if self.epoch <= numbers.epoch), None)

    @property
    def shard_eras(self) -> list[Era] | None:
        """Eras of the node's shards; None if the state has no shard list for it."""
        if self.shards is None:
            return None
        return [Era(0, 0, self.shards.count)] if self.numbers is None else self.numbers.eras

    def fields(self, kind: str, *names: str, optional: tuple[str, ...] = ()) -> dict[str, Part]:
        """Return the fields of the node's part, which must be of kind ``kind``.

        Raises:
            DamagedStateError: The part has another kind or other fields.
        """
        op = self.part.entry("op")
        if op.value != kind:
            raise self.part.refused_kind(op.value, kind)
        return self.part.fields("op", *names, optional=optional)

    def of_input(self, part: Part, number: int = 0, rows: Rows | None = None) -> Place:
        """Return the place of an input.

        Args:
            part: The input's part of the state.
            number: Number of the input.
            rows: Possible numbers of rows that the input emitted; None for any number.
        """
        node = None if self.node is None else self.node.inputs[number]
        return self.of_node(part, node, rows)

    def of_node(self, part: Part, node: Node | None, rows: Rows | None = None) -> Place:
        """Return the place of ``node``, in the same scope as this place."""
        # An unknown plan may have operators without a saved place between this node and the node of the part.
        known = rows if rows is not None and node is not None and self.scope.exact else Rows()
        return replace(self, part=part, node=node, rows=known, fused=())

    def counted(self, part: Part, least: int = 0, most: int = MAX_COUNT) -> int:
        """Return the node's saved row count. Raise DamagedStateError if it is outside the possible range."""
        least, most = max(least, self.rows.least), min(most, self.rows.most)
        if least > most:
            raise part.refused(f"counts {self.rows.least} rows or more, and there are {most} at most")
        return part.integer(least, most)

    def held(self, part: Part, least: int = 0, most: int = MAX_COUNT) -> int:
        """Return the number of rows of a row reference; 0 for None.

        Raises:
            DamagedStateError: The reference is invalid, its rows are damaged, or their number is out of range.
        """
        count = 0
        if part.value is not None:
            number = part.fields(ROWS)[ROWS].integer(0, len(self.scope.book) - 1)
            count = self.scope.book.rows_declared(number)
            if least <= count <= most:
                count = len(self.scope.book.rows(part.value))
        if not least <= count <= most:
            between = f"{least}" if least == most else f"{least} to {most}"
            raise part.refused(f"must refer to {between} rows, and refers to {count}")
        return count
