"""Rows and shards that are not to be given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from aiostream_data.arguments import integer, several
from aiostream_data.errors import PlanError
from aiostream_data.object_names import object_name
from aiostream_data.plan.base import Node, SameElements
from aiostream_data.plan.rank_places import ON_ROWS, at_rows, below


@dataclass(frozen=True)
class Blocked:
    """What is not to be given.

    Attributes:
        rows: (name, record index) of single rows.
        shards: Names of whole objects; see :mod:`aiostream_data.object_names`.
    """

    rows: frozenset[tuple[str, int]] = frozenset()
    shards: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.rows or self.shards)

    def __or__(self, other: Blocked) -> Blocked:
        return Blocked(self.rows | other.rows, self.shards | other.shards)

    @classmethod
    def of(cls, entries: Iterable[Any]) -> Self:
        """Return what a list of URLs, (URL, index) pairs and origins asks for.

        Raises:
            PlanError: An entry is none of these.
        """
        rows: set[tuple[str, int]] = set()
        shards: set[str] = set()
        for entry in several("block", entries, "a list of URLs, (URL, record index) pairs and origins"):
            if isinstance(entry, str):
                shards.add(blocked_name(entry))
            elif hasattr(entry, "url") and hasattr(entry, "index"):
                rows.add((blocked_name(entry.url), int(entry.index)))
            elif isinstance(entry, (tuple, list)) and len(entry) == 2 and isinstance(entry[0], str):
                rows.add((blocked_name(entry[0]), _index(entry[1])))
            else:
                raise PlanError(
                    f"block takes URLs, (URL, record index) pairs and origins, got a {type(entry).__name__}"
                )
        return cls(frozenset(rows), frozenset(shards))

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"rows": sorted(map(list, self.rows)), "shards": sorted(self.shards)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what :meth:`as_dict` was called on."""
        return cls.of([*values["rows"], *values["shards"]])


def _index(value: Any) -> int:
    return integer("the record index of a blocked row", value, 0)


def blocked_name(url: str) -> str:
    """Return the name by which a blocked object is known: without secrets, and for local files without scheme."""
    return object_name(url.removeprefix("file://"))


@dataclass(frozen=True, eq=False, kw_only=True)
class Block(SameElements):
    """The input without the rows that are blocked."""

    blocked: Blocked

    def detail(self) -> str:
        return f"{len(self.blocked.rows)} rows, {len(self.blocked.shards)} shards"


def with_blocked(plan: Node, blocked: Blocked) -> Node:
    """Return the plan without the blocked rows: left out where rows are single for the last time."""
    if not blocked:
        return plan
    return at_rows(plan, lambda rows: below(rows, ON_ROWS, lambda node: Block(input=node, blocked=blocked)))
