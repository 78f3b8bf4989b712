"""Source node of tables with versions, such as Delta and Iceberg: the data files of one version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from aiostream_data.errors import PlanError, RankError
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.fingerprint import Arguments, arguments
from aiostream_data.plan.rewrite import replaced
from aiostream_data.plan.sources import ListFiles
from aiostream_data.plan.stored import Chain, read_chain, short
from aiostream_data.plan.written import call_arguments
from aiostream_data.rows.shard_table import ShardTable

_MOST_DIGITS: Final = 19
"""Digits of the largest number of a version, an int64."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SnapshotFiles(ListFiles):
    """Source that emits the URLs of the data files of one version of a table, sorted.

    Attributes:
        table: Finds the versions of the table; see :class:`aiostream_data.dataset.table_snapshots.VersionedTable`.
        argument: Argument that names the version: ``version`` or ``snapshot_id``.
        version: Number of the version; None for the newest one until ``open()`` has found it.
        schema_id: Number of the schema of a table that reads one version with several; None if ``open()`` chooses it.
        is_newest: True if ``open()`` chose the version.
        files: The data files; None until ``open()`` has found them.
    """

    table: Any = field(repr=False)
    argument: Literal["version", "snapshot_id"] = "version"
    version: int | None = None
    schema_id: int | None = None
    is_newest: bool = False
    files: ShardTable | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        return str(self.table.method)

    def detail(self) -> str:
        return call_arguments(self.table.name, **{self.argument: (self.version, None)})

    def known_files(self) -> ShardTable:
        """Return the data files.

        Raises:
            PlanError: The dataset was not opened by itself.
        """
        if self.files is None:
            raise PlanError(
                f"{self.label}() finds its files only when its dataset is opened by itself, but a function returned "
                "this dataset. Mix or concatenate the datasets of several tables instead."
            )
        return self.files


@arguments.register
def _(node: SnapshotFiles) -> Arguments:
    return {"table": node.table.name, node.argument: node.version, "schema_id": node.schema_id}


def pinned(plan: Node, saved: object) -> Node:
    """Return a plan in which tables without a version have the version that a saved state names.

    Args:
        saved: The plan in the state; None without a state. The plan may be damaged or abbreviated.
    """
    chain = None if saved is None else read_chain(saved)
    if chain is None or not any(_is_open(node) for node in walk(plan)):
        return plan

    def with_version(node: Node) -> Node | None:
        if not isinstance(node, SnapshotFiles) or not _is_open(node):
            return None
        found = set(_versions(chain, node))
        if len(found) != 1:
            return None
        version, schema_id = found.pop()
        return replace(node, version=version, schema_id=schema_id)

    return replaced(plan, with_version)


def _is_open(node: Node) -> bool:
    return isinstance(node, SnapshotFiles) and node.version is None


def _versions(chain: Chain, node: SnapshotFiles) -> Iterator[tuple[int, int | None]]:
    """Yield the versions of a table in a plan of a state, with the numbers of their schemas."""
    name = repr(node.table.name)
    for entry in chain:
        args: Mapping[str, str] = entry.get("args", {})
        version, schema_id = _number(args.get(node.argument, "")), _number(args.get("schema_id", ""))
        if entry["op"] == node.label and args.get("table", name) in (name, short(name)) and version is not None:
            yield version, schema_id
        for inner in entry.get("inputs", ()):
            yield from _versions(inner, node)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def check_pinned(plan: Node, processes: int) -> None:
    """Check that all processes that share a plan read the same version of its tables.

    Raises:
        RankError: Several processes share the plan, and each of them chose the newest version.
    """
    for node in walk(plan):
        if processes > 1 and isinstance(node, SnapshotFiles) and node.is_newest:
            raise RankError(
                f"{node.label}() would read the newest version of {node.table.name}, which {processes} "
                f"processes could find at different times. Pass {node.argument}= to all of them; the newest is now "
                f"{node.version}."
            )
