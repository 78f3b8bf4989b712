"""Operators of a data set that call the user's functions: map, filter, flat_map, interleave."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from aiostream_data.arguments import flag, seconds_or_none
from aiostream_data.dataset.callables import check_gives_a_value, check_takes_an_element
from aiostream_data.errors import PlanError
from aiostream_data.failing.policies import OnError, policy_of
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
from aiostream_data.plan.operators import AUTO_CYCLE_LENGTH
from aiostream_data.plan.take_while import TakeWhile
from aiostream_data.plan.validate import check_executor, check_reaches_interpreters, check_reaches_processes
from aiostream_data.plan.written import function_name

if TYPE_CHECKING:
    from aiostream_data.dataset.dataset import Dataset

T = TypeVar("T")
U = TypeVar("U")

STATE: Final = "state"
"""A parameter of this name receives what ``init`` returned on the worker that runs the function."""

RNG: Final = "rng"
"""A parameter of this name of a function of map or filter receives a NumPy Generator keyed by (seed, epoch, record)."""


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
        executor: ExecutorName | Auto = ...,
        concurrency: Concurrency = ...,
        ordered: bool = ...,
        batched: bool = ...,
        seed: int | None = ...,
        init: Callable[[], Any] | None = ...,
        timeout: float | None = ...,
        on_error: OnError = ...,
    ) -> Dataset[U]: ...
    @overload
    def map(
        self,
        function: Callable[..., U],
        *,
        executor: ExecutorName | Auto = ...,
        concurrency: Concurrency = ...,
        ordered: bool = ...,
        batched: bool = ...,
        seed: int | None = ...,
        init: Callable[[], Any] | None = ...,
        timeout: float | None = ...,
        on_error: OnError = ...,
    ) -> Dataset[U]: ...
    def map(
        self,
        function: Callable[..., Any],
        *,
        executor: ExecutorName | Auto = "thread",
        concurrency: Concurrency = AUTO,
        ordered: bool = True,
        batched: bool = False,
        seed: int | None = None,
        init: Callable[[], Any] | None = None,
        timeout: float | None = None,
        on_error: OnError = None,
    ) -> Dataset[Any]:
        """Return ``function`` of every element (tf.data ``map``).

        A plain tuple is unpacked into arguments, a dict is not. A coroutine function is awaited on the
        engine's loop. A parameter named ``rng`` receives a NumPy Generator keyed by seed, epoch and
        record: the same numbers whatever the executor and the number of workers. What it returns is the
        element, None too. A generator function belongs into :meth:`flat_map`.

        Args:
            executor: "thread"; "process"; "inline" (one thread); "interpreter" (Python 3.14); or AUTO, which
                begins with threads and goes over to processes where the function turns out to hold the GIL.
                Consecutive maps and filters with the same executor and concurrency run in one hop.
            concurrency: Calls at once; AUTO chooses from what a call costs.
            ordered: False gives results as they finish.
            batched: The function gets a run of rows as arrays (rows first, any number) and returns as many.
            seed: For ``rng``; without one, the loader's.
            init: Called once on every worker, before its first call; what it returns is given to the function
                as ``state``. A worker's state is its own: nothing else touches it meanwhile.
            timeout: Seconds that one call may take; after that the stage fails with
                :class:`~aiostream_data.errors.RecordTimeoutError`, as with any other error. A call in a process is
                ended then, one on a thread is left to itself.
            on_error: "raise", "skip", :class:`Retry`, :class:`Skip`, :class:`Replace` or :class:`Quarantine`;
                None leaves it to ``open(on_error=...)``.

        Raises:
            StageBuildError: The function cannot be sent to a process, or is a generator function.
            PlanError: An argument makes no sense.
        """
        _check_callable("map", function)
        check_gives_a_value("map", function)
        is_coroutine = _is_coroutine_function(function)
        for name, value in (("ordered", ordered), ("batched", batched)):
            flag(name, value)
        if batched and takes(RNG, function):
            raise PlanError("a function with a parameter rng draws per record; it cannot have batched=True")
        if is_coroutine and batched:
            raise PlanError("a coroutine function is awaited for one element at a time; it cannot have batched=True")
        how = _how(function, executor, concurrency, seed, init, timeout, on_error)
        check_takes_an_element("map", function, {RNG, STATE} if init is not None else {RNG})
        return self._then(
            op.Map,
            "map",
            function=function,
            ordered=ordered,
            batched=batched,
            **how,
        )

    def filter(
        self,
        predicate: Callable[..., bool | Awaitable[bool]],
        *,
        executor: ExecutorName | Auto = "thread",
        concurrency: Concurrency = AUTO,
        seed: int | None = None,
        init: Callable[[], Any] | None = None,
        timeout: float | None = None,
        on_error: OnError = None,
    ) -> Dataset[T]:
        """Return the elements for which ``predicate`` is true, in order (tf.data ``filter``).

        The predicate returns a bool, or a coroutine of one, which is awaited on the engine's loop. As in :meth:`map`,
        a parameter named ``rng`` receives a NumPy Generator keyed by seed, epoch and record.

        Args:
            executor, concurrency, seed, init, timeout, on_error: As in :meth:`map`. ``Replace`` gives what stands for
                the predicate's answer: True keeps the element.

        Raises:
            StageBuildError: The predicate cannot be sent to a process, or is a generator function.
            PlanError: An argument makes no sense.
        """
        _check_callable("filter", predicate)
        check_gives_a_value("filter", predicate)
        how = _how(predicate, executor, concurrency, seed, init, timeout, on_error)
        check_takes_an_element("filter", predicate, {RNG, STATE} if init is not None else {RNG})
        return self._then(op.Filter, "filter", predicate=predicate, **how)

    def take_while(self, predicate: Callable[..., bool]) -> Dataset[T]:
        """Return the elements before the first for which ``predicate`` is false, in order (tf.data ``take_while``).

        The input is read no further then, so it may be endless. The predicate is called for one element after another,
        in order. Like that of :meth:`filter` it returns a bool, and a tuple is unpacked into its arguments; it must
        depend on its element alone, since a resumed run calls it again for the element that ended the stream.

        Raises:
            PlanError: The predicate is not a function, or is a coroutine function.
            StageBuildError: It is a generator function, or cannot be called with an element.
        """
        _check_callable("take_while", predicate)
        _refuse_coroutine("take_while", predicate)
        check_gives_a_value("take_while", predicate)
        check_takes_an_element("take_while", predicate)
        return self._then(TakeWhile, "take_while", predicate=predicate)

    def flat_map(
        self, function: Callable[..., Dataset[U] | Iterable[U] | AsyncIterable[U]], *, on_error: OnError = None
    ) -> Dataset[U]:
        """Return all elements of the data sets that ``function`` makes, one after another (tf.data ``flat_map``).

        The function may also return any iterable, sync or async, or be a generator function.

        Args:
            on_error: What becomes of an element for which the function itself raises, not what it returned
                while elements are taken from that; see :meth:`map`.
        """
        return self._interleave(function, 1, 1, True, "flat_map", on_error)

    def interleave(
        self,
        function: Callable[..., Dataset[U] | Iterable[U] | AsyncIterable[U]],
        *,
        cycle_length: int | Auto = AUTO,
        block_length: int = 1,
        ordered: bool = True,
        on_error: OnError = None,
    ) -> Dataset[U]:
        """Return elements of the data sets that ``function`` makes, several at a time (tf.data ``interleave``).

        Up to ``block_length`` elements are taken from each in turn. An exhausted one is replaced when
        the cycle comes round to its place.

        Args:
            ordered: False lets whichever has elements ready go next.
            on_error: What becomes of an element for which the function itself raises, not what it returned
                while elements are taken from that; see :meth:`map`.
        """
        cycle = AUTO_CYCLE_LENGTH if isinstance(cycle_length, Auto) else at_least("cycle_length", cycle_length, 1)
        block = at_least("block_length", block_length, 1)
        return self._interleave(function, cycle, block, flag("ordered", ordered), "interleave", on_error)

    def _interleave(
        self, function: Callable[..., Any], cycle: int, block: int, ordered: bool, name: str, on_error: OnError
    ) -> Dataset[Any]:
        _check_callable(name, function)
        _refuse_coroutine(name, function)
        check_takes_an_element(name, function)
        policy_of(on_error)
        return self._then(
            op.Interleave,
            name,
            function=function,
            cycle_length=cycle,
            block_length=block,
            ordered=ordered,
            name=name,
            on_error=on_error,
        )


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function
    )


def _refuse_coroutine(name: str, function: Callable[..., Any]) -> None:
    if _is_coroutine_function(function):
        raise PlanError(f"{name}() calls a plain function, got a coroutine function; await it in a map() before")


def _check_callable(name: str, function: Any) -> None:
    if not callable(function):
        cure = "the function itself, without calling it" if function is not None else "one, such as a lambda"
        raise PlanError(f"{name}() needs a function, got {type(function).__name__}: pass {cure}")


def _check_init(init: Any, *, is_awaited: bool) -> None:
    if not callable(init):
        raise PlanError(f"init must be a function that makes the state of a worker, got {type(init).__name__}")
    if _is_coroutine_function(init) and not is_awaited:
        raise PlanError(
            f"init is a coroutine function, {function_name(init)}, but the function is not: nobody would await it"
        )
    try:
        signature = inspect.signature(init)
    except (TypeError, ValueError):  # builtins without a signature
        return
    try:
        signature.bind()
    except TypeError as error:
        raise PlanError(f"init is called without arguments, but {function_name(init)} needs some: {error}") from None


def _how(
    function: Callable[..., Any],
    executor: ExecutorName | Auto,
    concurrency: Concurrency,
    seed: int | None,
    init: Callable[[], Any] | None,
    timeout: float | None,
    on_error: OnError,
) -> dict[str, Any]:
    """Check the arguments that say how a function is called, and return them as fields of its node."""
    where: ExecutorName = "auto" if isinstance(executor, Auto) else executor
    check_executor(where)
    is_coroutine, wants_rng = _is_coroutine_function(function), takes(RNG, function)
    if is_coroutine and where not in ("auto", "thread"):
        raise PlanError(f"a coroutine function is awaited on the loop; it cannot have executor={executor!r}")
    if init is not None:
        _check_init(init, is_awaited=is_coroutine)
    wants_state = takes(STATE, function)
    if init is not None and not wants_state:
        raise PlanError("init makes the state of a worker, but the function has no parameter named state")
    if where in ("process", "interpreter"):
        check_reaches_processes(function)
        if init is not None:
            check_reaches_processes(init)
    if where == "interpreter":
        check_reaches_interpreters(function, wants_rng=wants_rng, wants_state=init is not None)
    policy_of(on_error)
    return {
        "executor": where,
        "concurrency": auto_or_at_least_one("concurrency", concurrency),
        "init": init,
        "wants_state": wants_state and init is not None,
        "is_coroutine": is_coroutine,
        "wants_rng": wants_rng,
        "seed": seed_of(seed),
        "timeout_s": seconds_or_none("timeout", timeout),
        "on_error": on_error,
    }


def takes(name: str, function: Callable[..., Any]) -> bool:
    """Return True if a function has a parameter of this name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return False
