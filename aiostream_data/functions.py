"""Operators of a data set that call the user's functions: map, filter, flat_map, interleave."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from aiostream_data.errors import PlanError
from aiostream_data.plan import operators as op
from aiostream_data.plan.base import (
    AUTO,
    Auto,
    Concurrency,
    ExecutorName,
    Node,
    at_least,
    auto_or_at_least_one,
    seed_of,
)
from aiostream_data.plan.validate import check_executor, check_reaches_processes

if TYPE_CHECKING:
    from aiostream_data.dataset import Dataset

T = TypeVar("T")
U = TypeVar("U")

RNG: Final = "rng"
"""A parameter of this name of a map function receives a NumPy Generator keyed by (seed, epoch, record)."""


class FunctionOperators(Generic[T]):
    """Operators that call a function for every element. None of them does any I/O."""

    plan: Node

    if TYPE_CHECKING:

        def _then(self, kind: Callable[..., Node], name: str, /, **arguments: Any) -> Dataset[Any]: ...

    @overload
    def map(
        self,
        function: Callable[..., Awaitable[U]],
        *,
        executor: ExecutorName = ...,
        concurrency: Concurrency = ...,
        ordered: bool = ...,
        batched: bool = ...,
        seed: int | None = ...,
    ) -> Dataset[U]: ...
    @overload
    def map(
        self,
        function: Callable[..., U],
        *,
        executor: ExecutorName = ...,
        concurrency: Concurrency = ...,
        ordered: bool = ...,
        batched: bool = ...,
        seed: int | None = ...,
    ) -> Dataset[U]: ...
    def map(
        self,
        function: Callable[..., Any],
        *,
        executor: ExecutorName = "auto",
        concurrency: Concurrency = AUTO,
        ordered: bool = True,
        batched: bool = False,
        seed: int | None = None,
    ) -> Dataset[Any]:
        """Return ``function`` of every element (tf.data ``map``).

        A plain tuple is unpacked into arguments, a dict is not. A coroutine function is awaited on the
        engine's loop. A parameter named ``rng`` receives a NumPy Generator keyed by seed, epoch and
        record: the same numbers whatever the executor and the number of workers.

        Args:
            executor: "thread" (what "auto" means), "process" (the function must be importable by name)
                or "inline" (one thread).
            concurrency: Calls at once; AUTO chooses from what a call costs.
            ordered: False gives results as they finish.
            batched: The function gets a run of rows as arrays (rows first, any number) and returns as many.
            seed: For ``rng``; without one, the loader's.

        Raises:
            StageBuildError: The function cannot be sent to a process.
            PlanError: An argument makes no sense.
        """
        check_executor(executor)
        if not callable(function):
            raise PlanError(f"map() needs a function, got {type(function).__name__}")
        is_coroutine = _is_coroutine_function(function)
        wants_rng = _takes_rng(function)
        if wants_rng and batched:
            raise PlanError("a function with a parameter rng draws per record; it cannot have batched=True")
        if executor == "process":
            if is_coroutine:
                raise PlanError("a coroutine function is awaited on the loop; it cannot have executor='process'")
            check_reaches_processes(function)
        return self._then(
            op.Map,
            "map",
            function=function,
            executor=executor,
            concurrency=auto_or_at_least_one("concurrency", concurrency),
            ordered=ordered,
            batched=batched,
            is_coroutine=is_coroutine,
            wants_rng=wants_rng,
            seed=seed_of(seed),
        )

    def filter(self, predicate: Callable[..., bool]) -> Dataset[T]:
        """Return the elements for which ``predicate`` is true, in order (tf.data ``filter``)."""
        if not callable(predicate):
            raise PlanError(f"filter() needs a function, got {type(predicate).__name__}")
        _refuse_coroutine("filter", predicate)
        return self._then(op.Filter, "filter", predicate=predicate)

    def flat_map(self, function: Callable[..., Dataset[U] | Iterable[U]]) -> Dataset[U]:
        """Return all elements of the data sets that ``function`` makes, one after another (tf.data ``flat_map``).

        The function may also return any iterable.
        """
        return self._interleave(function, 1, 1, True, "flat_map")

    def interleave(
        self,
        function: Callable[..., Dataset[U] | Iterable[U]],
        *,
        cycle_length: int | Auto = AUTO,
        block_length: int = 1,
        ordered: bool = True,
    ) -> Dataset[U]:
        """Return elements of the data sets that ``function`` makes, several at a time (tf.data ``interleave``).

        Up to ``block_length`` elements are taken from each in turn. An exhausted one is replaced when
        the cycle comes round to its place.

        Args:
            ordered: False lets whichever has elements ready go next.
        """
        cycle = 8 if isinstance(cycle_length, Auto) else at_least("cycle_length", cycle_length, 1)
        return self._interleave(function, cycle, at_least("block_length", block_length, 1), ordered, "interleave")

    def _interleave(
        self, function: Callable[..., Any], cycle: int, block: int, ordered: bool, name: str
    ) -> Dataset[Any]:
        if not callable(function):
            raise PlanError(f"{name}() needs a function, got {type(function).__name__}")
        _refuse_coroutine(name, function)
        return self._then(
            op.Interleave, name, function=function, cycle_length=cycle, block_length=block, ordered=ordered, name=name
        )


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function
    )


def _refuse_coroutine(name: str, function: Callable[..., Any]) -> None:
    if _is_coroutine_function(function):
        raise PlanError(f"{name}() calls a plain function, got a coroutine function; await it in a map() before")


def _takes_rng(function: Callable[..., Any]) -> bool:
    try:
        return RNG in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return False
