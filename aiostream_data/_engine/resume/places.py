"""The place of one node in a state, as a schema checks it: its part of the state, the node, and the rows it gave.

How this works. A stage that writes a part of a state has a classmethod ``schema`` beside ``at`` and ``resume``. It
takes a :class:`Place`, checks its own fields, and yields the places of its inputs. Row numbers are checked from the
consumer down: a node that counted its rows says how many rows its input gave, and the input's number has to agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from aiostream_data._engine.resume.lineage_reader import Book
from aiostream_data._engine.resume.lineage_writer import ROWS
from aiostream_data._engine.resume.shard_numbers import Era, ShardNumbers
from aiostream_data.plan.base import Node
from aiostream_data.state_parts import MAX_COUNT, Part

SKIPPED_ROWS: Final = 1 << 22
"""Rows that an error policy may have skipped in one stage. The state does not count them."""


MOST_SHARES: Final = 1 << 10
"""Ranks times worker processes, about, that saved a state."""


class Rows(NamedTuple):
    """Range of the number of rows that a node gave before the state was taken."""

    least: int = 0
    most: int = MAX_COUNT

    def includes(self, count: int) -> bool:
        """Return True if the node may have given this many rows."""
        return self.least <= count <= self.most

    @property
    def or_more(self) -> Rows:
        """The rows of an input of which any number was left out."""
        return Rows(self.least)

    @property
    def or_some_more(self) -> Rows:
        """The rows of an input of which an error policy may have left some out."""
        return Rows(self.least, min(MAX_COUNT, self.most + SKIPPED_ROWS))

    @property
    def of_all_ranks(self) -> Rows:
        """The rows of an input that ranks or worker processes shared, of which this node counts its own share."""
        return Rows(min(1, self.least), min(MAX_COUNT, self.most * MOST_SHARES))

    @property
    def any(self) -> Rows:
        """The rows of an input that may have given no row yet, or any number of them."""
        return Rows()


@dataclass(frozen=True)
class SavedShards:
    """What a state says of the shards of one source.

    Attributes:
        count: Length of the list.
        numbered: Numbers of the shards in epochs that began before the list changed, of the earliest epochs first.
    """

    count: int
    numbered: Sequence[ShardNumbers] = ()


@dataclass(frozen=True)
class Scope:
    """What all places of one state have in common.

    Attributes:
        book: The rows that the state names.
        keys: Numbers of the plan's nodes.
        shards: Shards of each source, by the source's key, as far as the state says so.
        received: Rows that any node gave at most, unless it drops rows.
        shared: Nodes whose rows ranks share, if there are several. What is above counts a rank's own rows. Any number
            of ranks may have saved the state.
        exact: The plan is the one that the state was taken of. Otherwise the user allowed a difference, and
            numbers need not agree with each other.
    """

    book: Book
    keys: Mapping[Node, int] = field(default_factory=dict)
    shards: Mapping[int, SavedShards] = field(default_factory=dict)
    received: int = 0
    shared: frozenset[Node] = frozenset()
    exact: bool = True


@dataclass(frozen=True)
class Place:
    """Where one node stood.

    Attributes:
        part: Its part of the state.
        node: The node; None inside a data set that is made while running, which is not known yet.
        rows: How many rows the node gave.
        fused: Nodes below it whose work its stage does as well, in order.
        epoch: Which repetition of the node this is.
    """

    part: Part
    node: Any
    rows: Rows
    scope: Scope
    fused: Sequence[Any] = ()
    epoch: int = 0

    @property
    def shards(self) -> SavedShards | None:
        """What the state says of the shards of the node, which is a source."""
        return None if self.node is None else self.scope.shards.get(self.scope.keys[self.node])

    @property
    def numbers(self) -> ShardNumbers | None:
        """The numbers of the shards of the node; None if they are their places in the list."""
        numbered = () if self.shards is None else self.shards.numbered
        return next((numbers for numbers in numbered if self.epoch <= numbers.epoch), None)

    @property
    def shard_eras(self) -> list[Era] | None:
        """The eras of the shards of the node; None if the state does not say."""
        if self.shards is None:
            return None
        return [Era(0, 0, self.shards.count)] if self.numbers is None else self.numbers.eras

    def fields(self, kind: str, *names: str, optional: tuple[str, ...] = ()) -> dict[str, Part]:
        """Return the fields of a node of this kind.

        Raises:
            DamagedStateError: The part is of another kind, or has other fields.
        """
        op = self.part.entry("op")
        if op.value != kind:
            raise self.part.refused_kind(op.value, kind)
        return self.part.fields("op", *names, optional=optional)

    def of_input(self, part: Part, number: int = 0, rows: Rows | None = None) -> Place:
        """Return the place of an input.

        Args:
            number: Of the input.
            rows: How many rows it gave; any number when None.
        """
        node = None if self.node is None else self.node.inputs[number]
        return self.of_node(part, node, rows)

    def of_node(self, part: Part, node: Node | None, rows: Rows | None = None) -> Place:
        """Return the place of another node."""
        # An unknown plan may have operators without a place of their own between this node and the one of the part.
        known = rows if rows is not None and node is not None and self.scope.exact else Rows()
        return replace(self, part=part, node=node, rows=known, fused=())

    def counted(self, part: Part, least: int = 0, most: int = MAX_COUNT) -> int:
        """Return how many rows the node says that it gave: what is known of them has to agree."""
        least, most = max(least, self.rows.least), min(most, self.rows.most)
        if least > most:
            raise part.refused(f"counts {self.rows.least} rows or more, and there are {most} at most")
        return part.integer(least, most)

    def held(self, part: Part, least: int = 0, most: int = MAX_COUNT) -> int:
        """Return how many rows a reference to the table of rows stands for; 0 for None.

        Raises:
            DamagedStateError: It refers to no rows, to damaged ones, or to fewer or more than there can be.
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
