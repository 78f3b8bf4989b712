"""Element specs from annotations of user functions, such as ``-> tuple[NDArray[np.float32], int]``.

Python does not check annotations. Specs from annotations are therefore information for the user only: checks of a plan,
memory bounds and operators do not use them.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from aiostream_data.plan.aggregate import Aggregate
from aiostream_data.plan.base import Node
from aiostream_data.plan.declared import CheckSpec
from aiostream_data.plan.operators import Interleave, Map
from aiostream_data.plan.rewrite import OncePerNode, with_inputs
from aiostream_data.plan.scan import Scan
from aiostream_data.plan.spec import UNKNOWN_SPEC, ArraySpec, Spec, spec_of
from aiostream_data.rows.ragged import RaggedArray
from aiostream_data.rows.structure import LEAF, Kind, Structure

_TEXT: Final = ArraySpec((), np.dtype(object))
_SCALARS: Final[dict[type[Any], ArraySpec]] = {
    **{kind: ArraySpec((), np.dtype(kind)) for kind in (bool, int, float, complex)},
    **dict.fromkeys((str, bytes), _TEXT),
    np.ndarray: UNKNOWN_SPEC,
    list: UNKNOWN_SPEC,
    RaggedArray: ArraySpec(None, None, ragged=True),
}


def element_spec(plan: Node) -> Any:
    """Return the structure of a plan's elements, with the spec of each leaf. Specs come from operators and annotations.

    Raises:
        PlanError: An annotation contradicts a later operator, such as ``select`` of a column that it does not contain.
    """
    structure, leaves = spec_of(_annotated(plan))
    return structure.unflatten(leaves)


def _annotated(plan: Node) -> Node:
    """Return the plan with a spec after each function whose results are annotated."""

    def change(node: Node, visit: Callable[[Node], Node]) -> Node:
        changed, found = with_inputs(node, visit), _results(node)
        if found is None:
            return changed
        return CheckSpec(input=changed, structure=found[0], leaves=found[1], operator=node.label)

    return OncePerNode(change)(plan)


def _results(node: Node) -> Spec | None:
    """Return the spec of the elements that a node's function makes, or None if no annotation tells it."""
    if type(node) is Map:
        found = spec_of_annotation(return_annotation(node.function))
        return _of_any_shape(found) if node.batched else found
    if type(node) is Interleave:
        return _items(return_annotation(node.function))
    if isinstance(node, Scan):
        parts = get_args(return_annotation(node.function))
        return spec_of_annotation(parts[1]) if len(parts) == 2 else None
    if isinstance(node, Aggregate) and isinstance(node.factory, type):
        return _items(return_annotation(getattr(node.factory, "add", None)))
    return None


def _of_any_shape(found: Spec | None) -> Spec | None:
    return None if found is None else (found[0], tuple(ArraySpec(None, leaf.dtype) for leaf in found[1]))


def return_annotation(function: Any) -> Any:
    """Return the annotation of a function's result, or None. A class returns its own objects."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return function
    return _hints(function if inspect.isroutine(function) else type(function).__call__).get("return")


def _hints(annotated: Any) -> dict[str, Any]:
    """Return the evaluated annotation of a function's result."""
    given = getattr(annotated, "__annotations__", {}).get("return")
    names = getattr(inspect.unwrap(annotated), "__globals__", {}) if callable(annotated) else {}
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"return": given}), names, include_extras=True)
    except Exception:  # noqa: BLE001 - evaluating the text of an annotation can raise anything
        return {}


def _items(annotation: Any) -> Spec | None:
    """Return the spec of the items of an annotated iterable or dataset."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        return _items(parts[0])
    if kind is np.ndarray:
        found = _array(parts)
        return LEAF, (ArraySpec(found.shape[1:] if found.shape else None, found.dtype),)
    is_iterable = isinstance(kind, type) and issubclass(kind, (Iterable, AsyncIterable))
    if not is_iterable or issubclass(kind, Mapping) or (kind is tuple and parts[1:] != (...,)):
        return None
    return spec_of_annotation(parts[0]) if parts else None


def spec_of_annotation(annotation: Any, outer: tuple[Any, ...] = ()) -> Spec | None:
    """Return the structure and the leaf specs of annotated values, or None if the structure is unknown.

    Args:
        outer: Classes that contain this annotation. A class that contains itself has no structure.
    """
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        given = [part for part in parts[1:] if isinstance(part, ArraySpec)]
        return (LEAF, (given[-1],)) if given else spec_of_annotation(parts[0], outer)
    if kind is np.ndarray:
        return LEAF, (_array(parts),)
    if kind is tuple and ... not in parts:
        return _joined("tuple", (), parts, None, outer)
    leaf = _scalar(list if kind is list else annotation)
    if leaf is not None:
        return LEAF, (leaf,)
    return _fields(annotation, outer) if isinstance(annotation, type) and annotation not in outer else None


def _array(parts: tuple[Any, ...]) -> ArraySpec:
    """Return the spec of ``np.ndarray[shape, dtype]``."""
    shape, dtype = parts
    axes = get_args(shape)
    scalar = _scalar(next(iter(get_args(dtype)), None))
    known = (None,) * len(axes) if axes and ... not in axes else None
    return ArraySpec(known, None if scalar is None else scalar.dtype)


def _scalar(annotation: Any) -> ArraySpec | None:
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, np.generic):
        if issubclass(annotation, np.character):
            return _TEXT
        is_number = annotation in np.sctypeDict.values() and np.dtype(annotation).kind in "biufc"
        return ArraySpec((), np.dtype(annotation)) if is_number else None
    return _SCALARS.get(annotation)


def _fields(kind: type[Any], outer: tuple[Any, ...]) -> Spec | None:
    """Return the spec of a TypedDict, a NamedTuple or a dataclass."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - evaluating the text of an annotation can raise anything
        return None
    inside = (*outer, kind)
    if is_typeddict(kind):
        names = tuple(hints)
        return None if kind.__optional_keys__ else _joined("dict", names, hints.values(), None, inside)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
        return _joined("namedtuple", names, [hints.get(name) for name in names], kind, inside)
    if dataclasses.is_dataclass(kind) and not hasattr(kind, "__array__"):
        names = tuple(field.name for field in dataclasses.fields(kind))
        return _joined("dataclass", names, [hints.get(name) for name in names], kind, inside)
    return None


def _joined(
    kind: Kind, names: tuple[str, ...], annotations: Iterable[Any], cls: type[Any] | None, outer: tuple[Any, ...]
) -> Spec | None:
    children = [spec_of_annotation(annotation, outer) for annotation in annotations]
    known = [child for child in children if child is not None]
    if len(known) < len(children):
        return None
    structure = Structure(kind, names, tuple(child for child, _ in known), cls)
    return structure, tuple(leaf for _, leaves in known for leaf in leaves)
