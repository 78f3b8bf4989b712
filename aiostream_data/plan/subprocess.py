"""Nodes that run a part of a plan in separate processes, with their element specs and cardinalities."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from aiostream_data.arguments import integer
from aiostream_data.errors import PlanError, StageBuildError
from aiostream_data.plan.base import Node, Operator, SameElements, gives_one_order, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.reaching import obstacle_to_processes
from aiostream_data.plan.sources import PythonIterable
from aiostream_data.plan.spec import Spec, spec_of
from aiostream_data.plan.written import function_name

SHARE: Final = 0.75
"""Fraction of the memory limit for all separate processes of a plan together. Each separate process gets an equal part
of the memory limit."""


MOST_WORKERS: Final = 1024
"""Maximum number of worker processes. Larger numbers are assumed to be typos and rejected."""


@dataclass(frozen=True, eq=False, kw_only=True)
class InSubprocess(Operator):
    """Node that runs its input in ``workers`` separate processes."""

    is_transparent: ClassVar[bool] = True

    workers: int = 1

    @property
    def label(self) -> str:
        return "in_subprocess"

    def detail(self) -> str:
        return "" if self.workers == 1 else f"{self.workers}"

    @property
    def processes(self) -> str:
        """Number of processes as text, such as "4 processes"."""
        return "1 process" if self.workers == 1 else f"{self.workers} processes"


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkerShard(SameElements):
    """Node that divides its input into blocks of ``block`` rows, and emits every ``workers``-th block, starting with
    block ``index``.

    The last block may contain fewer rows.
    """

    is_transparent: ClassVar[bool] = True

    index: int
    workers: int
    block: int = 1

    @property
    def label(self) -> str:
        return "worker_shard"

    def detail(self) -> str:
        return f"worker {self.index} of {self.workers}, blocks of {self.block}"


@dataclass(frozen=True, eq=False, kw_only=True)
class LoaderShard(WorkerShard):
    """A :class:`WorkerShard` for the workers of PyTorch's DataLoader.

    Each DataLoader worker resumes from its own saved state.
    """

    @property
    def label(self) -> str:
        return "loader_shard"


def in_subprocess(*, input: Node, workers: int) -> InSubprocess:
    """Return a node that runs its input in separate processes.

    Raises:
        PlanError: The workers cannot share the input, or a part of the input already runs in separate processes.
        StageBuildError: The operating system is Windows, or a function or source cannot be sent to another process.
    """
    if sys.platform == "win32":
        raise StageBuildError("in_subprocess() needs Linux or macOS: omit it, or use WSL")
    node = InSubprocess(input=input, workers=integer("workers", workers, 1, MOST_WORKERS))
    for lower in walk(input):
        if isinstance(lower, InSubprocess):
            raise PlanError(
                "in_subprocess() cannot follow in_subprocess(): the first part already runs in a separate process"
            )
        _check_reaches_processes(lower)
    if workers > 1 and not gives_one_order(input):
        raise PlanError(
            f"in_subprocess(workers={workers}) needs the same order in every worker, but part of the chain has "
            "ordered=False. Set ordered=True, or use workers=1"
        )
    return node


def _check_reaches_processes(node: Node) -> None:
    if isinstance(node, PythonIterable) and node.one_shot:
        kind = type(node.iterable).__name__
        raise StageBuildError(
            f"the {kind} passed to from_iterable() cannot be sent to the process of in_subprocess(). "
            "Pass a list, or use from_generator() with a function"
        )
    for function in functions_of(node):
        obstacle = obstacle_to_processes(function)
        if obstacle is not None:
            raise StageBuildError(f"{function_name(function)} {obstacle}, or move it after in_subprocess()")


def functions_of(node: Node) -> Iterator[Callable[..., Any]]:
    """Yield the user functions that a node calls."""
    for part in fields(node):
        value = getattr(node, part.name)
        if callable(value):
            yield value


# -- element specs and cardinality


@spec_of.register
def _(node: InSubprocess) -> Spec:
    return spec_of(node.input)


@cardinality.register
def _(node: InSubprocess) -> int:
    return cardinality(node.input)


@cardinality.register
def _(node: WorkerShard) -> int:
    rows = cardinality(node.input)
    if rows < 0:
        return rows
    rounds, left = divmod(rows, node.block * node.workers)
    return rounds * node.block + min(node.block, max(0, left - node.index * node.block))


def places_of(plan: Node) -> list[InSubprocess]:
    """Return the ``in_subprocess()`` nodes of a plan, which run in separate processes."""
    return [node for node in walk(plan) if isinstance(node, InSubprocess)]


def process_nbytes(plan: Node, memory_limit: int) -> int:
    """Return the memory limit in bytes of each separate process of a plan; 0 without such processes.

    Args:
        memory_limit: Memory limit of the loader in bytes.
    """
    processes = sum(node.workers for node in places_of(plan))
    return max(1, int(memory_limit * SHARE) // processes) if processes else 0


def own_nbytes(plan: Node, memory_limit: int) -> int:
    """Return the part of the memory limit, in bytes, that the process that opens the plan may use."""
    return max(1, memory_limit - int(memory_limit * SHARE)) if places_of(plan) else memory_limit
