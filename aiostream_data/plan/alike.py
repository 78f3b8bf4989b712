"""Compare the element specs of several inputs, and merge them into the spec of any of their elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import Concatenate
from aiostream_data.plan.spec import UNKNOWN_SPEC, ArraySpec, Spec, described, spec_of
from aiostream_data.rows.structure import LEAF, Structure

UNKNOWN_ELEMENT: Final[Spec] = (LEAF, (UNKNOWN_SPEC,))
"""Spec of elements, or of a part of them, whose structure is unknown."""


class SpecDifference(NamedTuple):
    """The first place where two specs differ.

    Attributes:
        path: Name of the leaf; "" if the structures differ.
        first, second: What both specs have at this place, as text.
    """

    path: str
    first: str
    second: str


def difference(first: Spec, second: Spec, path: str = "") -> SpecDifference | None:
    """Return the first difference in structure or dtype. Return None if there is none among the known parts.

    Shapes, and the order of the keys of dicts, may differ.
    """
    if _is_unknown(first) or _is_unknown(second):
        return None
    (structure, leaves), (other, others) = first, second
    if structure.is_leaf and other.is_leaf:
        one, two = leaves[0].dtype, others[0].dtype
        alike = one is None or two is None or one == two
        return None if alike else SpecDifference(path or "element", str(one), str(two))
    pairs = _pairs(first, second)
    if pairs is None:
        return SpecDifference("", _shown(first), _shown(second))
    found = (difference(*pair, _below(path, structure, key)) for key, pair in pairs)
    return next((each for each in found if each is not None), None)


def common_spec(specs: Sequence[Spec]) -> Spec:
    """Return the most specific spec that the elements of all inputs match. Parts that differ are unknown."""
    return reduce(_common, specs)


def _common(first: Spec, second: Spec) -> Spec:
    (structure, leaves), (other, others) = first, second
    if structure.is_leaf and other.is_leaf:
        return LEAF, (_common_leaf(leaves[0], others[0]),)
    pairs = _pairs(first, second)
    if pairs is None:
        return UNKNOWN_ELEMENT
    return _joined(structure, [_common(*pair) for _, pair in pairs])


def _common_leaf(a: ArraySpec, b: ArraySpec) -> ArraySpec:
    dtype = a.dtype if b.dtype is not None and a.dtype == b.dtype else None
    ragged = a.ragged or b.ragged
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return ArraySpec(None, dtype, ragged)
    return ArraySpec(tuple(x if x == y else None for x, y in zip_longest(a.shape, b.shape)), dtype, ragged)


def check_alike(nodes: Sequence[Node], names: Sequence[str], operation: str, kind: type[PlanError] = PlanError) -> None:
    """Raise an error if elements of the inputs have different known structures or dtypes.

    Args:
        names: Names of the inputs in the message.
        kind: Class of the error.

    Raises:
        PlanError: Two inputs differ. The message names both.
    """
    specs = [spec_of(node) for node in nodes]
    known = UNKNOWN_ELEMENT
    for number, spec in enumerate(specs):
        if difference(known, spec) is not None:
            told = next(filter(None, (_told(specs, names, earlier, number) for earlier in range(number))))
            raise kind(f"{operation}() needs datasets with equal elements, but {told}")
        known = _completed(known, spec)


def check_concatenated(nodes: Sequence[Node]) -> None:
    """Raise an error if datasets of ``concatenate`` have different known structures or dtypes.

    Raises:
        ArgumentTypeError: Two datasets differ.
    """
    check_alike(nodes, [f"dataset {number}" for number in range(len(nodes))], "concatenate", ArgumentTypeError)


@spec_of.register
def _(node: Concatenate) -> Spec:
    return common_spec([spec_of(child) for child in node.nodes])


def _told(specs: Sequence[Spec], names: Sequence[str], first: int, second: int) -> str:
    """Describe the difference of two inputs. Return "" if they have none."""
    found = difference(specs[first], specs[second])
    if found is None:
        return ""
    if found.path:
        both = f"{found.first} in {names[first]!r} and {found.second} in {names[second]!r}"
        return f"{found.path} is {both}. Convert one of them in map()."
    return f"{names[first]!r} has {found.first} and {names[second]!r} has {found.second}. Make equal elements in map()."


def _completed(first: Spec, second: Spec) -> Spec:
    """Return the first spec, with the parts of the second one where the first one is unknown. They must not differ."""
    if _is_unknown(first):
        return second
    if _is_unknown(second):
        return first
    structure, leaves = first
    if structure.is_leaf:
        return LEAF, (ArraySpec(leaves[0].shape, leaves[0].dtype or second[1][0].dtype),)
    pairs = _pairs(first, second)
    assert pairs is not None
    return _joined(structure, [_completed(*pair) for _, pair in pairs])


def _joined(structure: Structure, children: Sequence[Spec]) -> Spec:
    """Return the spec of an element with other parts."""
    inside = tuple(leaf for _, found in children for leaf in found)
    return Structure(structure.kind, structure.names, tuple(child for child, _ in children), structure.cls), inside


def _is_unknown(spec: Spec) -> bool:
    structure, leaves = spec
    return structure.is_leaf and leaves[0].shape is None and leaves[0].dtype is None


def _pairs(first: Spec, second: Spec) -> list[tuple[Any, tuple[Spec, Spec]]] | None:
    """Return the parts of two elements with the same key, field or position; None if the elements differ."""
    (structure, _), (other, _) = first, second
    own, others = dict(_parts(first)), dict(_parts(second))
    if (structure.kind, structure.cls) != (other.kind, other.cls) or own.keys() != others.keys():
        return None
    return [(key, (part, others[key])) for key, part in own.items()]


def _parts(spec: Spec) -> Iterator[tuple[Any, Spec]]:
    structure, leaves = spec
    given = iter(leaves)
    for key, child in zip(structure.names or range(len(structure.children)), structure.children, strict=True):
        yield key, (child, tuple(next(given) for _ in range(child.leaf_count)))


def _below(path: str, structure: Structure, key: Any) -> str:
    step = f"[{key}]" if not structure.names else (f".{key}" if path else str(key))
    return path + step


def _shown(spec: Spec) -> str:
    structure, leaves = spec
    return structure.described(map(described, leaves))
