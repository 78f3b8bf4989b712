"""Blocked rows and shards, which a loader excludes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from aiostream_data.arguments import integer, several
from aiostream_data.errors import PlanError
from aiostream_data.object_names import object_name
from aiostream_data.plan.base import Node, SameElements
from aiostream_data.plan.rank_places import ON_ROWS, at_rows, below


@dataclass(frozen=True)
class Blocked:
    """Set of blocked rows and blocked shards.

    Attributes:
        rows: Pair (object name, record index) of each blocked row.
        shards: Names of blocked objects, as in :mod:`aiostream_data.object_names`.
    """

    rows: frozenset[tuple[str, int]] = frozenset()
    shards: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.rows or self.shards)

    def __or__(self, other: Blocked) -> Blocked:
        return Blocked(self.rows | other.rows, self.shards | other.shards)

    @classmethod
    def of(cls, entries: Iterable[Any]) -> Self:
        """Convert a list of URLs, (URL, index) pairs and origins to a set of blocked rows and shards.

        Raises:
            PlanError: An entry has an unsupported type.
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
                    f"block must contain URLs, (URL, record index) pairs or origins, got {type(entry).__name__}"
                )
        return cls(frozenset(rows), frozenset(shards))

    def as_dict(self) -> dict[str, Any]:
        """Serialize to JSON-compatible data."""
        return {"rows": sorted(map(list, self.rows)), "shards": sorted(self.shards)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Restore a set of blocked rows and shards from the result of :meth:`as_dict`."""
        return cls.of([*values["rows"], *values["shards"]])


def _index(value: Any) -> int:
    return integer("the record index of a blocked row", value, 0)


def blocked_name(url: str) -> str:
    """Return the name of a blocked object: the URL without secrets and without the prefix ``file://``."""
    return object_name(url.removeprefix("file://"))


@dataclass(frozen=True, eq=False, kw_only=True)
class Block(SameElements):
    """Node that emits its input without the blocked rows."""

    is_transparent: ClassVar[bool] = True

    blocked: Blocked

    def detail(self) -> str:
        return f"{len(self.blocked.rows)} rows, {len(self.blocked.shards)} shards"


def with_blocked(plan: Node, blocked: Blocked) -> Node:
    """Insert a node that drops blocked rows. The node precedes the last batching and the row-wise operators directly
    before that batching."""
    if not blocked:
        return plan
    return at_rows(plan, lambda rows: below(rows, ON_ROWS, lambda node: Block(input=node, blocked=blocked)))
