"""Columns of dict elements: pick, rename and add columns of a structure and of its leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from aiostream_data.rows.structure import Structure

L = TypeVar("L")

Picks: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs (old name, new name) of the columns to keep, in their new order."""


def columns_of(structure: Structure, leaves: Sequence[L]) -> dict[str, tuple[Structure, tuple[L, ...]]]:
    """Return the structure and the leaves of each column of a dict structure, by name."""
    found: dict[str, tuple[Structure, tuple[L, ...]]] = {}
    first = 0
    for name, child in zip(structure.names, structure.children, strict=True):
        stop = first + child.leaf_count
        found[name] = child, tuple(leaves[first:stop])
        first = stop
    return found


def picked(structure: Structure, leaves: Sequence[L], picks: Picks) -> tuple[Structure, tuple[L, ...]]:
    """Return the structure and the leaves that contain only the picked columns."""
    columns = columns_of(structure, leaves)
    return joined((new, *columns[old]) for old, new in picks)


def with_column(
    structure: Structure, leaves: Sequence[L], name: str, child: Structure, own: Sequence[L]
) -> tuple[Structure, tuple[L, ...]]:
    """Return the structure and the leaves with one more column, or with a replaced column of this name."""
    columns = columns_of(structure, leaves) | {name: (child, tuple(own))}
    return joined((each, *column) for each, column in columns.items())


def joined(columns: Iterable[tuple[str, Structure, Sequence[L]]]) -> tuple[Structure, tuple[L, ...]]:
    """Build a dict structure and its leaves from columns: tuples of a name, a structure and leaves."""
    listed = list(columns)
    structure = Structure("dict", tuple(name for name, _, _ in listed), tuple(child for _, child, _ in listed))
    return structure, tuple(leaf for _, _, leaves in listed for leaf in leaves)
