"""Nodes that change the columns of dict elements: ``select``, ``drop``, ``rename``, ``cast``, ``with_column``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from aiostream_data.errors import ColumnError
from aiostream_data.plan.base import Operator
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.operators import Map
from aiostream_data.plan.spec import UNKNOWN_SPEC, ArraySpec, Spec, spec_of
from aiostream_data.plan.written import Verbatim, call_arguments
from aiostream_data.rows.dict_columns import Picks, columns_of, joined, picked, with_column
from aiostream_data.rows.structure import LEAF, Structure

Casting: TypeAlias = Literal["safe", "same_kind", "unsafe"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ColumnOperator(Operator):
    """Base class of nodes that change or check the columns of elements, but change no row id and no order."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PickColumns(ColumnOperator):
    """Base class of nodes that keep, leave out or rename columns."""

    def picks(self, present: Sequence[Any]) -> Picks:
        """Return the columns to keep, given the names of the columns that an element has.

        Raises:
            ColumnError: A named column is missing, or no column is left, or two columns have one name.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False, kw_only=True)
class Select(PickColumns):
    """Node that keeps the named columns, in this order."""

    columns: tuple[str, ...]

    def detail(self) -> str:
        return call_arguments(*self.columns)

    def picks(self, present: Sequence[Any]) -> Picks:
        check_present("select", self.columns, present)
        return tuple((name, name) for name in self.columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class Drop(PickColumns):
    """Node that leaves out the named columns."""

    columns: tuple[str, ...]

    def detail(self) -> str:
        return call_arguments(*self.columns)

    def picks(self, present: Sequence[Any]) -> Picks:
        check_present("drop", self.columns, present)
        kept = tuple((name, name) for name in present if name not in self.columns)
        if not kept:
            raise ColumnError("drop", self.columns[0], present, "it would leave no column. Keep at least one.")
        return kept


@dataclass(frozen=True, eq=False, kw_only=True)
class Rename(PickColumns):
    """Node that renames columns. The columns keep their places.

    Attributes:
        columns: New name of each column, by old name.
    """

    columns: Mapping[str, str]

    def detail(self) -> str:
        return call_arguments(dict(self.columns))

    def picks(self, present: Sequence[Any]) -> Picks:
        check_present("rename", self.columns, present)
        found = tuple((name, self.columns.get(name, name)) for name in present)
        kept = {name for name in present if name not in self.columns}
        for new in self.columns.values():
            if new in kept:
                raise ColumnError("rename", new, present, "another column would get this name. Drop one of the two.")
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class CastColumns(ColumnOperator):
    """Node that converts columns to other dtypes.

    Attributes:
        columns: New dtype of each column, by name. In a nested column, all leaves get the dtype.
        casting: Conversions that are allowed, as in NumPy. Only "unsafe" allows values that do not fit.
    """

    columns: Mapping[str, np.dtype[Any]]
    casting: Casting = "same_kind"

    @property
    def label(self) -> str:
        return "cast"

    def detail(self) -> str:
        shown = ", ".join(f"{name!r}: {dtype}" for name, dtype in self.columns.items())
        return call_arguments(Verbatim("{" + shown + "}"), casting=(self.casting, "same_kind"))

    def check(self, column: str, given: np.dtype[Any], present: Sequence[Any]) -> None:
        """Check that a column of dtype ``given`` can be converted.

        Raises:
            ColumnError: The column contains no numbers, or ``casting`` does not allow the conversion.
        """
        wanted = self.columns[column]
        if given.kind not in "biufc":
            cure = "its values are not numbers. Convert them in with_column()."
            raise ColumnError("cast", column, present, cure)
        if not np.can_cast(given, wanted, self.casting):
            cure = (
                f"casting={self.casting!r} does not allow {given} to {wanted}. "
                "Pass casting='unsafe' to round and to wrap around, or convert the values in with_column()."
            )
            raise ColumnError("cast", column, present, cure)


@dataclass(frozen=True, eq=False, kw_only=True)
class WithColumn(Map):
    """Node that adds or replaces one column: the result of ``function`` for each element."""

    column: str

    @property
    def label(self) -> str:
        return "with_column"

    def detail(self) -> str:
        return f"{self.column!r}, {super().detail()}"


def check_present(operator: str, columns: Iterable[str], present: Sequence[Any]) -> None:
    """Check that an element has all named columns.

    Raises:
        ColumnError: A column is missing.
    """
    for name in columns:
        if name not in present:
            raise ColumnError(operator, name, present, "the elements have no such column.")


def check_are_dicts(operator: str, structure: Structure) -> None:
    """Check that elements of this structure are dicts.

    Raises:
        ColumnError: The elements are not dicts.
    """
    if structure.kind != "dict":
        raise not_dicts(operator, str(structure))


def not_dicts(operator: str, found: str) -> ColumnError:
    """Return the error for elements that are not dicts."""
    told = "one array or object" if found == "*" else found
    return ColumnError(operator, None, (), f"it needs elements that are dicts, got {told}. Make dicts in map().")


def _known_columns(node: Operator) -> Spec | None:
    """Return the input's structure and leaf specs, or None if they are unknown."""
    spec = spec_of(node.input)
    if spec == (LEAF, (UNKNOWN_SPEC,)):
        return None
    check_are_dicts(node.label, spec[0])
    return spec


@spec_of.register
def _(node: PickColumns) -> Spec:
    spec = _known_columns(node)
    return (LEAF, (UNKNOWN_SPEC,)) if spec is None else picked(*spec, node.picks(spec[0].names))


@spec_of.register
def _(node: CastColumns) -> Spec:
    spec = _known_columns(node)
    if spec is None:
        return LEAF, (UNKNOWN_SPEC,)
    present = spec[0].names
    check_present("cast", node.columns, present)
    columns = columns_of(*spec)
    for name in node.columns:
        child, leaves = columns[name]
        columns[name] = child, tuple(_cast_leaf(node, name, leaf, present) for leaf in leaves)
    return joined((name, *column) for name, column in columns.items())


def _cast_leaf(node: CastColumns, name: str, leaf: ArraySpec, present: Sequence[Any]) -> ArraySpec:
    if leaf.dtype is not None:
        node.check(name, leaf.dtype, present)
    return ArraySpec(leaf.shape, node.columns[name], leaf.ragged)


@spec_of.register
def _(node: WithColumn) -> Spec:
    spec = _known_columns(node)
    return (LEAF, (UNKNOWN_SPEC,)) if spec is None else with_column(*spec, node.column, LEAF, (UNKNOWN_SPEC,))


@cardinality.register
def _(node: ColumnOperator) -> int:
    return cardinality(node.input)
