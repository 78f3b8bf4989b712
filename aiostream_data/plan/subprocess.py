"""The node that moves what it reads into processes of its own; and what is known of it before reading."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from aiostream_data.arguments import integer
from aiostream_data.errors import PlanError, StageBuildError
from aiostream_data.plan.base import Node, Operator, SameElements, gives_one_order, walk
from aiostream_data.plan.cardinality import cardinality
from aiostream_data.plan.reaching import obstacle_to_processes
from aiostream_data.plan.sources import PythonIterable
from aiostream_data.plan.spec import Spec, spec_of
from aiostream_data.plan.written import function_name

SHARE: Final = 0.75
"""Part of the memory limit that goes to the processes of a plan, in equal parts."""


MOST_WORKERS: Final = 1024
"""More processes than that are a slip of the pen, and would take all of a machine."""


@dataclass(frozen=True, eq=False, kw_only=True)
class InSubprocess(Operator):
    """The input, run in ``workers`` processes of its own."""

    workers: int = 1

    @property
    def label(self) -> str:
        return "in_subprocess"

    def detail(self) -> str:
        return "" if self.workers == 1 else f"{self.workers}"

    @property
    def processes(self) -> str:
        """In words."""
        return "1 process" if self.workers == 1 else f"{self.workers} processes"


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkerShard(SameElements):
    """Of every ``workers`` consecutive blocks of ``block`` rows, number ``index``. The last block may be smaller."""

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
    """The same for the workers of PyTorch's DataLoader, each of which goes on from a state of its own."""

    @property
    def label(self) -> str:
        return "loader_shard"


def in_subprocess(*, input: Node, workers: int) -> InSubprocess:
    """Return the node that runs its input in processes of its own.

    Raises:
        PlanError: It cannot be shared by so many, or part of it runs in a process of its own already.
        StageBuildError: A function or source cannot be sent to another process.
    """
    if sys.platform == "win32":
        raise StageBuildError("in_subprocess() needs Linux or macOS: leave it out, or use WSL")
    node = InSubprocess(input=input, workers=integer("workers", workers, 1, MOST_WORKERS))
    for lower in walk(input):
        if isinstance(lower, InSubprocess):
            raise PlanError("in_subprocess() cannot follow in_subprocess(): that part runs in a process of its own")
        _check_reaches_processes(lower)
    if workers > 1 and not gives_one_order(input):
        raise PlanError(
            f"in_subprocess(workers={workers}) deals out elements in one order, and part of the chain has "
            "ordered=False, which would give every worker another order: leave it ordered, or use workers=1"
        )
    return node


def _check_reaches_processes(node: Node) -> None:
    if isinstance(node, PythonIterable) and node.one_shot:
        kind = type(node.iterable).__name__
        raise StageBuildError(
            f"from_iterable() was given a {kind}, which cannot be sent to the process of in_subprocess(); "
            "give a list, or a function to from_generator()"
        )
    for function in functions_of(node):
        obstacle = obstacle_to_processes(function)
        if obstacle is not None:
            raise StageBuildError(f"{function_name(function)} {obstacle}, or let it follow in_subprocess()")


def functions_of(node: Node) -> Iterator[Callable[..., Any]]:
    """Yield what the user gave to be called."""
    for part in fields(node):
        value = getattr(node, part.name)
        if callable(value):
            yield value


# -- what is known of it before reading


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
    """Return the nodes of a plan that run in processes of their own."""
    return [node for node in walk(plan) if isinstance(node, InSubprocess)]


def process_nbytes(plan: Node, memory_limit: int) -> int:
    """Return the memory limit of each process of a plan; 0 where it has none.

    Args:
        memory_limit: Of the whole, in bytes.
    """
    processes = sum(node.workers for node in places_of(plan))
    return max(1, int(memory_limit * SHARE) // processes) if processes else 0


def own_nbytes(plan: Node, memory_limit: int) -> int:
    """Return what is left of the memory limit for the process that opens the plan."""
    return max(1, memory_limit - int(memory_limit * SHARE)) if places_of(plan) else memory_limit
