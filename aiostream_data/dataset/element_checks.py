"""Checks of operator arguments against the known element structure, made while the operator chain is built.

Each check raises PlanError. This module checks only facts that are known before elements arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import iscoroutinefunction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aiostream_data.arguments import shown
from aiostream_data.dataset.callables import warn_of_hidden_state
from aiostream_data.errors import ArgumentTypeError, PlanError
from aiostream_data.plan.base import Node
from aiostream_data.plan.spec import ArraySpec, have_equal_dtypes, spec_of
from aiostream_data.rows.structure import Structure

if TYPE_CHECKING:
    from aiostream_data.transforms.padding import LeafPadding

_OPERATORS: Final = {"cost": "batch", "element_length": "bucket_by_sequence_length"}
"""Operators by the name of their argument that returns a length."""

# Imports that only some operators need are local, to keep importing the package fast.


def check_padding(node: Node, shapes: Any, values: Any) -> None:
    """Check padded shapes and padding values against the known shapes and dtypes of the elements."""
    from aiostream_data.plan import windows as win
    from aiostream_data.transforms.padding import PaddingRule

    if shapes is None and values is None:
        return
    spec = spec_of(node)
    if win.is_unknown(spec):
        return
    structure, leaves = spec
    for leaf, known in zip(PaddingRule(shapes, values).leaves(structure), leaves, strict=True):
        _check_fill(leaf, known)
        if leaf.shape is None or known.shape is None:
            continue
        axes = zip(leaf.shape, known.shape, strict=False)
        if len(leaf.shape) != len(known.shape) or any(own and to is not None and to < own for to, own in axes):
            raise PlanError(
                f"cannot pad leaf {leaf.path!r} to {leaf.shape}: its shape is {known.shape}. "
                "Pass a shape with as many axes, each at least as long."
            )


def check_concatenated(nodes: Sequence[Node]) -> None:
    """Check that all datasets have elements of the same structure and dtypes, as far as they are known.

    Raises:
        PlanError: The elements of two datasets differ.
    """
    from aiostream_data.plan.windows import is_unknown

    specs = [(number, spec) for number, spec in enumerate(map(spec_of, nodes)) if not is_unknown(spec)]
    for (first, one), (second, other) in pairwise(specs):
        where = f"dataset {first} and dataset {second}"
        if one[0] != other[0]:
            raise PlanError(
                f"cannot concatenate {where}: the structure of their elements is {one[0]} and {other[0]}. "
                "Change the elements of one dataset with map()."
            )
        for path, own, leaf in zip(one[0].paths(), one[1], other[1], strict=True):
            if own.dtype is not None and leaf.dtype is not None and not have_equal_dtypes(own, leaf):
                raise PlanError(
                    f"cannot concatenate {where}: leaf {path!r} is {own.dtype} and {leaf.dtype}. "
                    "Convert the leaf of one dataset with map() or cast()."
                )


def _check_fill(leaf: LeafPadding, known: ArraySpec) -> None:
    from aiostream_data.transforms.padding import fill_value

    if known.dtype is not None and known.shape != ():
        fill_value(leaf, np.empty(0, known.dtype))


def known_shapes(node: Node) -> Any:
    """Return the known shapes of the elements, in the format of the argument ``padded_shapes``.

    Raises:
        PlanError: The shape of a leaf is unknown.
    """
    structure, leaves = spec_of(node)
    for path, leaf in zip(structure.paths(), leaves, strict=True):
        if leaf.shape is None:
            raise PlanError(
                f"pad_to_bucket_boundary=True needs padded_shapes, because the shape of leaf {path!r} is unknown. "
                "Pass padded_shapes=."
            )
    return structure.unflatten([list(leaf.shape or ()) for leaf in leaves])


def check_length_of(node: Node, argument: str, given: Any) -> None:
    """Check that an argument is a plain function or the name of a leaf."""
    if isinstance(given, str):
        _known_leaves(node, (given,))
    elif not callable(given):
        raise PlanError(f"{argument} must be a function or the name of a leaf, got {given!r}")
    elif iscoroutinefunction(given):
        raise PlanError(f"{argument} must be a plain function or the name of a leaf, got a coroutine function")
    else:
        warn_of_hidden_state(_OPERATORS.get(argument, argument), given)


def the_only_length(node: Node) -> str | None:
    """Return the name of the only leaf that has a length, or None if the plan does not know the shapes.

    Raises:
        PlanError: No leaf has a length, or more than one leaf has a length.
    """
    from aiostream_data.plan import windows as win
    from aiostream_data.transforms.lengths import one_of

    spec = spec_of(node)
    structure, leaves = spec
    if win.is_unknown(spec) or any(leaf.shape is None for leaf in leaves):
        return None
    named = dict(zip(structure.paths(), leaves, strict=True))
    varying = [name for name, leaf in named.items() if leaf.ragged or (leaf.shape and leaf.shape[0] is None)]
    arrays = [name for name, leaf in named.items() if leaf.ragged or leaf.shape]
    texts = [name for name, leaf in named.items() if leaf.dtype == np.dtype(object)]
    return one_of(varying or arrays or texts, list(named))


def _known_leaves(node: Node, names: Sequence[str]) -> tuple[Structure, Sequence[ArraySpec]] | None:
    """Return the element structure and the leaves with the given names, or None if the structure is unknown."""
    from aiostream_data.plan import windows as win
    from aiostream_data.transforms.lengths import leaf_numbers

    spec = spec_of(node)
    if win.is_unknown(spec):
        return None
    structure, leaves = spec
    return structure, [leaves[number] for number in leaf_numbers(structure, names)]


def check_packing(node: Node, fields: tuple[str, ...] | None, values: Any) -> None:
    """Check the leaf names and padding values of ``pack`` against the known element structure."""
    from aiostream_data.plan import windows as win
    from aiostream_data.transforms.padding import LeafPadding

    if fields is not None and not all(isinstance(name, str) for name in fields):
        raise ArgumentTypeError(f"fields must be names of leaves, got {shown(list(fields))}")
    if fields is not None and (not fields or len(set(fields)) < len(fields)):
        raise PlanError(f"fields must name at least one leaf and each leaf once, got {list(fields)}")
    spec = spec_of(node)
    if fields is not None or not win.is_unknown(spec):
        win.packed_structure(spec[0], fields)
    if win.is_unknown(spec):
        return
    paths = fields if fields is not None else spec[0].paths()
    if isinstance(values, Mapping) and not set(values) <= set(paths):
        raise PlanError(f"padding_values must name packed leaves only, got {sorted(set(values) - set(paths))}")
    known = _known_leaves(node, paths)
    assert known is not None
    for path, leaf in zip(paths, known[1], strict=True):
        if leaf.shape == ():
            raise PlanError(
                f"cannot pack leaf {path!r}: it is a single value, not an array. Name the leaves to pack with fields=."
            )
        _check_fill(LeafPadding(path, None, values.get(path) if isinstance(values, Mapping) else values), leaf)
