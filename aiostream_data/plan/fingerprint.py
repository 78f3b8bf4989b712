"""Describe the settings of a plan that determine its rows and their order.

Two plans with equal descriptions emit the same rows in the same order from the same shards. Descriptions leave out
prefetch, concurrency, executors, devices and credentials, because these settings affect only the speed. Descriptions
also omit settings that may change at run time, such as the weights of a mixture.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import singledispatch
from typing import Any, NotRequired, TypeAlias, TypedDict

import numpy as np

from aiostream_data.object_names import object_name
from aiostream_data.plan import operators as op
from aiostream_data.plan import sources as src
from aiostream_data.plan.base import Node
from aiostream_data.plan.declared import CheckSpec
from aiostream_data.plan.functions import identify, parse_identity
from aiostream_data.plan.shard_list import ShardSummary
from aiostream_data.plan.sql import SqlQuery
from aiostream_data.plan.subprocess import InSubprocess
from aiostream_data.plan.values import dataclass_values, hashed, text_of
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.structure import Structure, flatten
from aiostream_data.safe_url import safe_text

Arguments: TypeAlias = dict[str, Any]

UNIMPORTANT = frozenset(
    {"concurrency", "executor", "read_ahead", "storage_options", "ordered", "parts_from", "decoders", "token", "name"}
    | {"is_coroutine", "wants_rng", "weights", "schedule", "schedule_every", "device", "depth", "rank", "world_size"}
    | {"wants_state", "timeout_s", "on_error", "spill", "index_url", "checks_first", "names", "dataset_class"}
    | {"keeps_missing", "keeps_epochs"}
)
"""Fields of nodes that do not affect the rows, or that other fields determine."""

_USUAL = {"compression": "auto", "cycle_length": 1, "block_length": 1, "shuffle_shards": False}


class Description(TypedDict):
    """Description of one node and its inputs, as JSON-compatible data.

    Attributes:
        op: Label of the operator in reports, such as ``shuffle`` or ``read_tfrecord``.
        args: Each argument as text, without arguments that are None or have their default values.
        functions: Identity of each user function, as in :mod:`.functions`.
        notes: Arguments that may differ between the saved run and the resumed run, as text.
        inputs: Descriptions of the input nodes, in order.
    """

    op: str
    args: dict[str, str]
    inputs: list[Description]
    functions: NotRequired[dict[str, str]]
    notes: NotRequired[dict[str, str]]


class Fingerprint(TypedDict, total=False):
    """Properties of a pipeline that are compared with a saved state.

    Properties that are missing in the saved state or the current pipeline are not compared.

    Attributes:
        plan: Result of :func:`describe_plan`.
        seed: Seed of the loader.
        shards: Summary of the shard list of each source. The keys are arbitrary names of the sources.
        world_size: Number of ranks. A different number of ranks never prevents resuming.
    """

    plan: Description
    seed: int
    shards: Mapping[str, ShardSummary]
    world_size: int


def describe_plan(node: Node) -> Description:
    """Return the description of a plan as the user wrote the plan, before any rewrite.

    The description is the same in every process. The description is also the same under every Python version, if the
    source code of all functions is available. Describing a plan takes a few milliseconds, plus the time to hash
    in-memory data (up to 64 MB per array). Describing a plan reads no files except the source files of functions.
    """
    found = arguments(node)
    if found is None:
        return describe_plan(node.inputs[0])
    functions = {name: str(identify(value)) for name, value in found.items() if _is_function(value)}
    description = Description(
        op=node.label,
        args={name: _shown(value) for name, value in found.items() if name not in functions and value is not None},
        inputs=[describe_plan(child) for child in node.inputs],
    )
    if functions:
        description["functions"] = functions
    if getattr(node, "ordered", True) is False:
        description["notes"] = {"ordered": "False"}
    return description


def digest(description: Description) -> str:
    """Compute the hash of a description as 16 hex digits.

    The hash is the same under every Python version, because it ignores the bytecode of functions without source code.
    Notes are ignored.
    """
    return hashed(json.dumps(_lasting(description), sort_keys=True), 8)


def _lasting(description: Description) -> dict[str, Any]:
    identities = {name: parse_identity(text) for name, text in description.get("functions", {}).items()}
    functions = {name: identity.lasting for name, identity in identities.items() if identity}
    inputs = [_lasting(child) for child in description["inputs"]]
    return {"op": description["op"], "args": description["args"], "functions": functions, "inputs": inputs}


@singledispatch
def arguments(node: Node) -> Arguments | None:
    """Return the arguments of a node that affect rows or their order; None if the node itself affects neither.

    By default, all fields count except inputs, fields with default values, and :data:`UNIMPORTANT` fields. To use a
    different rule for a node class, register a function for this class.
    """
    return own_arguments(node)


def own_arguments(node: Node, without: Sequence[str] = ()) -> Arguments:
    """Apply the default rule of :func:`arguments` to a node, and omit the fields in ``without``."""
    inputs = {id(child) for child in node.inputs}
    skipped = {field.name for field in fields(node) if _holds(getattr(node, field.name), inputs)}
    skipped |= UNIMPORTANT | set(without)
    return {name: value for name, value in dataclass_values(node).items() if name not in skipped}


def _holds(value: Any, inputs: set[int]) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else (value,)
    return any(id(part) in inputs for part in parts)


def _shown(value: Any) -> str:
    """Return an argument as text. If the text contains a secret, e.g. a signed URL, return the hash of the text."""
    text = text_of(value)
    return text if safe_text(text) == text else f"text[{len(text)}] {hashed(text, 8)}"


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, np.dtype)


@arguments.register(op.Prefetch)
@arguments.register(op.ToDevice)
@arguments.register(InSubprocess)
@arguments.register(CheckSpec)
def _(node: Node) -> None:
    return None


@arguments.register
def _(node: op.Zip) -> Arguments:
    return {"structure": node.structure}


@arguments.register
def _(node: op.ParseExample) -> Arguments:
    features = getattr(node.decoder, "features", None)
    if isinstance(features, Mapping):
        return {f"feature {name!r}": feature for name, feature in features.items()}
    state = vars(node.decoder) if hasattr(node.decoder, "__dict__") else {}
    skipped = {"structure", *_not_compared(node.decoder)}
    return {name.strip("_"): value for name, value in state.items() if name not in skipped} or {"decoder": node.decoder}


def _not_compared(decoder: Any) -> set[str]:
    """Return the names of the fields that ``==`` leaves out, such as those for error messages alone."""
    return {field.name for field in fields(decoder) if not field.compare} if is_dataclass(decoder) else set()


@arguments.register(src.ReadFiles)
@arguments.register(src.ListFiles)
def _(node: src.ReadFiles | src.ListFiles) -> Arguments:
    patterns = tuple(map(object_name, node.patterns))
    found = own_arguments(node) | {"patterns": patterns[0] if len(patterns) == 1 else patterns or None}
    return {name: value for name, value in found.items() if name not in _USUAL or value != _USUAL[name]}


@arguments.register
def _(node: SqlQuery) -> Arguments:
    return own_arguments(node, without=("connection", "paramstyle"))


@arguments.register
def _(node: src.TensorSlices) -> Arguments:
    times = {} if node.times == 1 else {"times": node.times}
    return _leaves(node.structure, node.leaves) | times


@arguments.register
def _(node: src.Tensors) -> Arguments:
    return own_arguments(node, ["element"]) | _leaves(*flatten(node.element))


def _leaves(structure: Structure, leaves: Sequence[Any]) -> Arguments:
    return {"structure": structure} | {
        f"data of {path}": _content(leaf) for path, leaf in zip(structure.paths(), leaves, strict=True)
    }


def _content(value: Any) -> Any:
    """Wrap callable data in a tuple, so that descriptions contain its content instead of a function name."""
    if isinstance(value, VarColumn):  # equal rows have many layouts
        return value.kind, value.lengths, value.compact().values
    return (value,) if _is_function(value) else value


@arguments.register
def _(node: src.PythonIterable) -> Arguments:
    iterable = node.iterable
    if isinstance(iterable, (list, tuple, range, str, bytes, Mapping, set, frozenset, np.ndarray)):
        return {"data": iterable}
    # The items of any other iterable are unknown before it is read.
    return {"data": f"{type(iterable).__qualname__}{_length(iterable)}"}


def _length(iterable: Any) -> str:
    has_length: Callable[[], int] | None = getattr(iterable, "__len__", None)
    return "" if has_length is None else f" of {len(iterable)}"
