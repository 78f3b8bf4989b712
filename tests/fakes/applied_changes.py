"""Apply what a report advises by calling the methods of the data set, which refuse options that they do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiostream_data import Dataset
from aiostream_data.formats.fixed_length import FixedLengthFormat
from aiostream_data.metrics.bottleneck_result import MeasuredChange
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Filter, Interleave, Map, ToDevice
from aiostream_data.plan.rewrite import with_inputs
from aiostream_data.plan.shown import subject_of
from aiostream_data.plan.sources import ReadFiles


def with_change(dataset: Dataset[Any], change: MeasuredChange) -> tuple[Dataset[Any], dict[str, Any]]:
    """Return the data set with the option set, and the arguments for ``open()``.

    Raises:
        AssertionError: No call of the chain is meant, or the option has that value already.
        PlanError, StageBuildError, TypeError: The method refuses the option.
    """
    if change.call == "open":
        return dataset, {change.option: change.value}
    if change.call == "in_subprocess":
        return _in_processes(dataset, {change.option: change.value}), {}
    meant = [node for node in walk(dataset.plan) if (node.method, subject_of(node)) == (change.call, change.what)]
    assert meant, f"{change} is about no call of the chain"
    again = {node: _called_again(node, change.option, change.value) for node in meant}

    def changed(node: Node) -> Node:
        return again[node] if node in again else with_inputs(node, changed)

    return Dataset(changed(dataset.plan)), {}


def _in_processes(dataset: Dataset[Any], options: dict[str, Any]) -> Dataset[Any]:
    plan = dataset.plan
    if not isinstance(plan, ToDevice):
        return dataset.in_subprocess(**options)
    return Dataset[Any](plan.input).in_subprocess(**options).to_device(plan.device)


def _called_again(node: Node, option: str, value: Any) -> Node:
    method, options = _call(node)
    assert option in options, f"{node.method}() has no option {option}"
    assert options[option] != value, f"{option}={value!r} is in force"
    plan: Node = method(**(options | {option: value})).plan
    return plan


def _call(node: Node) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the method that makes a node, bound to its input and its arguments by position, and all its options."""
    if isinstance(node, (Map, Filter)):
        how = {name: getattr(node, name) for name in ("executor", "concurrency", "seed", "init", "on_error")}
        how["timeout"] = node.timeout_s
        if isinstance(node, Filter):
            return lambda **options: Dataset(node.input).filter(node.predicate, **options), how
        how |= {"ordered": node.ordered, "batched": node.batched}
        return lambda **options: Dataset(node.input).map(node.function, **options), how
    if isinstance(node, Interleave):
        assert node.name == "interleave"
        how = {name: getattr(node, name) for name in ("cycle_length", "block_length", "ordered", "on_error")}
        return lambda **options: Dataset(node.input).interleave(node.function, **options), how
    assert isinstance(node, ReadFiles), node.method
    return _reading(node)


def _reading(node: ReadFiles) -> tuple[Callable[..., Any], dict[str, Any]]:
    names = ["compression", "shuffle_shards", "seed", "ordered", "read_ahead", "storage_options", "on_error"]
    names += [] if node.format.whole else ["cycle_length", "block_length"]
    files = list(node.patterns) if node.files is None else Dataset[str](node.files)
    given = [files, *([node.format.record_nbytes] if isinstance(node.format, FixedLengthFormat) else [])]
    method = getattr(Dataset, node.method)
    return lambda **options: method(*given, **options), {name: getattr(node, name) for name in names}
