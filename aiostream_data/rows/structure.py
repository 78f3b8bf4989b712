"""Flatten nested elements into leaves, and rebuild elements from leaves.

An element is any nesting of dicts, tuples, NamedTuples and dataclasses. All other values (arrays, numbers, bytes, str,
lists) are leaves. Lists are data, not structure, as in tf.data. Other subclasses of tuple are also leaves, because such
classes cannot be rebuilt reliably.

In the structure of a chunk, :data:`NULLABLE` stands for a leaf that can be missing. It has two columns: the values, and
a bool column that is True where a row has a value. The row of an element without a value is None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Literal

from aiostream_data import _native
from aiostream_data.errors import AiostreamError

Kind = Literal["leaf", "nullable", "dict", "tuple", "namedtuple", "dataclass"]


class StructureError(AiostreamError, ValueError):
    """Error for an element whose structure differs from the expected structure."""


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """Nested structure of an element, without the values of its leaves. Hashable, comparable and picklable.

    Attributes:
        kind: Kind of the outermost container, "leaf", or "nullable" for a leaf with a column of marks.
        names: Keys or field names; empty for a leaf or a tuple.
        children: One structure per key, field or position.
        cls: Class of the NamedTuple or dataclass, or None for other kinds.
        has_nullable: True if a leaf can be missing.
        is_flat: True if all children are leaves.
    """

    kind: Kind
    names: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()
    cls: type[Any] | None = None
    has_nullable: bool = dataclasses.field(init=False, repr=False, compare=False)
    is_flat: bool = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once, because each chunk asks.
        nullable = self.kind == "nullable" or any(child.has_nullable for child in self.children)
        object.__setattr__(self, "has_nullable", nullable)
        object.__setattr__(self, "is_flat", all(child.is_leaf for child in self.children))

    @property
    def is_leaf(self) -> bool:
        return self.kind == "leaf"

    @property
    def leaf_count(self) -> int:
        return 1 if self.is_leaf else sum(child.leaf_count for child in self.children)

    @property
    def plain(self) -> Structure:
        """This structure with one leaf in place of each nullable leaf: the structure of the elements."""
        if self.kind == "nullable":
            return LEAF
        return dataclasses.replace(self, children=tuple(child.plain for child in self.children))

    def nullable_leaves(self) -> list[bool]:
        """Return for each leaf of :attr:`plain`, in leaf order, True if it can be missing."""
        if self.is_leaf or self.kind == "nullable":
            return [not self.is_leaf]
        return [found for child in self.children for found in child.nullable_leaves()]

    def paths(self, prefix: str = "") -> list[str]:
        """Return a readable name per leaf, in leaf order: ``image``, ``box.x``, ``[0]``."""
        if self.is_leaf:
            return [prefix or "element"]
        if self.kind == "nullable":
            return [prefix or "element", f"{prefix or 'element'} (has a value)"]
        keys = self.names or range(len(self.children))
        found: list[str] = []
        for key, child in zip(keys, self.children, strict=True):
            step = f"[{key}]" if not self.names else (f".{key}" if prefix else str(key))
            found += child.paths(prefix + step)
        return found

    def flatten(self, element: Any) -> list[Any]:
        """Return the leaves of ``element``. ``element`` must have this structure.

        Raises:
            StructureError: The element has a different structure.
        """
        if self.is_leaf:
            return [element]
        parts = self._parts(element)
        if self.is_flat:
            return parts
        return [leaf for child, part in zip(self.children, parts, strict=True) for leaf in child.flatten(part)]

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Build an element of this structure from leaves in leaf order."""
        if self.is_leaf:
            return leaves[0]
        if self.has_nullable:
            return self.rows([[leaf] for leaf in leaves])[0]
        if self.is_flat:
            return self._maker()(leaves)
        return self._build(iter(leaves))

    def rows(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """Convert one sequence of values per leaf, all of equal length, to a list of elements."""
        if self.is_leaf:
            return columns[0] if isinstance(columns[0], list) else list(columns[0])
        if self.has_nullable:
            return self.plain.rows(self._with_missing(columns))
        if self.is_flat:
            return self._flat_rows(columns)
        if all(child.leaf_count for child in self.children):
            return self._flat_rows(self._rows_of_children(columns))
        return [self.unflatten(row) for row in zip(*columns, strict=True)]

    def _rows_of_children(self, columns: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return one list of values per child; each child has leaves."""
        found, first = [], 0
        for child in self.children:
            stop = first + child.leaf_count
            found.append(child.rows(columns[first:stop]))
            first = stop
        return found

    def columns(self, elements: Sequence[Any]) -> list[list[Any]]:
        """Convert a list of elements to one list of values per leaf. This method is the inverse of :meth:`rows`.

        Raises:
            StructureError: An element has a different structure.
        """
        if self.is_leaf:
            return [list(elements)]
        if (found := self.plain_columns(elements)) is not None:
            return found
        flat = [self.flatten(element) for element in elements]
        return [list(column) for column in zip(*flat, strict=True)] if flat else [[] for _ in range(self.leaf_count)]

    def _with_missing(self, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Return one sequence of values per leaf of :attr:`plain`, with None for missing values."""
        given = iter(columns)
        merged: list[Sequence[Any]] = []
        for nullable in self.nullable_leaves():
            values = next(given)
            merged.append(
                [v if has else None for v, has in zip(values, next(given), strict=True)] if nullable else values
            )
        return merged

    def _flat_rows(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        if self.kind == "dict" and self.names:
            return _native.dicts_of(self.names, [each if type(each) is list else list(each) for each in columns])
        if self.kind == "tuple":
            return list(zip(*columns, strict=True))
        maker = self._maker()
        return [maker(row) for row in zip(*columns, strict=True)]

    def plain_columns(self, elements: Sequence[Any]) -> list[list[Any]] | None:
        """Split elements that consist of dicts and tuples, but not of their subclasses, as :meth:`columns` does.

        Return None for all other elements, and for elements of another structure.
        """
        if self.is_leaf:
            return [list(elements)]
        given = elements if isinstance(elements, list) else list(elements)
        if self.kind == "dict":
            parts = _native.dict_columns(given, self.names)
        else:
            parts = _native.tuple_columns(given, len(self.children)) if self.kind == "tuple" else None
        if parts is None or self.is_flat:
            return parts
        found: list[list[Any]] = []
        for child, values in zip(self.children, parts, strict=True):
            columns = child.plain_columns(values)
            if columns is None:
                return None
            found += columns
        return found

    def map(self, function: Callable[[Any], Any], element: Any) -> Any:
        """Return ``element`` with every leaf replaced by ``function(leaf)``."""
        return self.unflatten([function(leaf) for leaf in self.flatten(element)])

    def _parts(self, element: Any) -> list[Any]:
        if self.kind == "nullable":
            raise self._mismatch(element)
        if self.kind == "dict":
            if not isinstance(element, Mapping) or len(element) != len(self.names):
                raise self._mismatch(element)
            try:
                return [element[name] for name in self.names]
            except KeyError:
                raise self._mismatch(element) from None
        if self.kind == "tuple":
            if type(element) is not tuple or len(element) != len(self.children):
                raise self._mismatch(element)
            return list(element)
        assert self.cls is not None
        if not isinstance(element, self.cls):
            raise self._mismatch(element)
        if self.kind == "namedtuple":
            return list(element)
        try:
            return [getattr(element, name) for name in self.names]
        except AttributeError:  # __init__ did not set the field
            raise self._mismatch(element) from None

    def gives_back(self, element: Any) -> bool:
        """Return True if flattening and rebuilding an element of this structure preserves the element.

        Rebuilding loses a subclass of the expected class, and attributes of a dataclass object other than its fields.
        """
        if self.is_leaf:
            return True
        if self.kind == "dataclass" and (
            type(element) is not self.cls or any(name not in self.names for name in getattr(element, "__dict__", ()))
        ):
            return False
        if self.is_flat:
            return self.kind != "namedtuple" or type(element) is self.cls
        parts = zip(self.children, self._parts(element), strict=True)
        return all(child.gives_back(part) for child, part in parts)

    @property
    def has_classes(self) -> bool:
        """True if the structure contains NamedTuples or dataclasses."""
        return self.cls is not None or any(child.has_classes for child in self.children)

    def _mismatch(self, element: Any) -> StructureError:
        return StructureError(f"expected structure {self}, found {structure_of(element)}")

    def _maker(self) -> Callable[[Sequence[Any]], Any]:
        if self.kind == "dict":
            names = self.names
            return lambda row: dict(zip(names, row, strict=True))
        if self.kind == "tuple":
            return tuple
        cls = self.cls
        assert cls is not None
        if self.kind == "namedtuple":
            return lambda row: cls._make(row)
        names = self.names
        return lambda row: _dataclass_of(cls, names, row)

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.is_leaf:
            return next(leaves)
        return self._maker()([child._build(leaves) for child in self.children])

    def __str__(self) -> str:
        return self.described(repeat("*"))

    def described(self, leaves: Iterable[str]) -> str:
        """Format the structure with the given text for each leaf, such as ``{x: float32[2], y: int64}``."""
        return self._described(iter(leaves))

    def _described(self, leaves: Iterator[str]) -> str:
        if self.is_leaf:
            return next(leaves)
        children = [child._described(leaves) for child in self.children]
        if self.kind == "nullable":
            return f"{children[0]} or None"
        if self.kind == "tuple":
            return "(" + ", ".join(children) + ("," if len(children) == 1 else "") + ")"
        inner = ", ".join(f"{name}: {child}" for name, child in zip(self.names, children, strict=True))
        return "{" + inner + "}" if self.cls is None else f"{self.cls.__name__}({inner})"


LEAF = Structure("leaf")
NULLABLE = Structure("nullable", (), (LEAF, LEAF))
"""Structure of a leaf that can be missing: its values, and True for each row that has a value."""


def _dataclass_of(cls: type[Any], names: Sequence[str], values: Sequence[Any]) -> Any:
    """Create a dataclass object with the given fields. As in unpickling, the method ``__init__`` is not called."""
    try:
        made = object.__new__(cls)
    except TypeError:  # for example, a dataclass that is also an exception
        made = cls.__new__(cls)  # type: ignore[call-overload]
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made


def structure_of(element: Any, leaf_type: type[Any] | None = None) -> Structure:
    """Return the structure of ``element``. Two structures whose dict keys have different orders are not equal.

    Args:
        element: Any element.
        leaf_type: Class whose objects are treated as leaves, even if the class is a container.
    """
    if leaf_type is not None and isinstance(element, leaf_type):
        return LEAF
    if isinstance(element, Mapping):
        return Structure("dict", tuple(element), tuple(structure_of(value, leaf_type) for value in element.values()))
    if isinstance(element, tuple) and (type(element) is tuple or hasattr(element, "_fields")):
        children = tuple(structure_of(value, leaf_type) for value in element)
        if type(element) is tuple:
            return Structure("tuple", (), children)
        return Structure("namedtuple", tuple(getattr(element, "_fields")), children, type(element))  # noqa: B009
    if dataclasses.is_dataclass(element) and not isinstance(element, type) and not hasattr(element, "__array__"):
        names = tuple(field.name for field in dataclasses.fields(element) if hasattr(element, field.name))
        children = tuple(structure_of(getattr(element, name), leaf_type) for name in names)
        return Structure("dataclass", names, children, type(element))
    return LEAF


def flatten(element: Any, leaf_type: type[Any] | None = None) -> tuple[Structure, list[Any]]:
    """Return the structure of ``element`` (see :func:`structure_of`) and its leaves, in leaf order."""
    structure = structure_of(element, leaf_type)
    return structure, structure.flatten(element)


def graft(outer: Structure, inner: Iterable[Structure]) -> Structure:
    """Replace each leaf of the structure ``outer`` with the next structure in ``inner``."""
    return _grafted(outer, iter(inner))


def _grafted(outer: Structure, inner: Iterator[Structure]) -> Structure:
    if outer.is_leaf:
        return next(inner)
    children = tuple(_grafted(child, inner) for child in outer.children)
    return Structure(outer.kind, outer.names, children, outer.cls)
