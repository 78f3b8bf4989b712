"""Validated arguments of operators that call a function for every element, as fields of their plan nodes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Final

from aiostream_data.arguments import flag, seconds_or_none, word
from aiostream_data.dataset.callables import (
    check_gives_a_value,
    check_takes_an_element,
    check_takes_arguments,
    check_takes_state_and_element,
    warn_of_hidden_state,
)
from aiostream_data.errors import PlanError, StageBuildError
from aiostream_data.failing.policies import OnError, policy_of
from aiostream_data.plan.base import INFINITE, Auto, Concurrency, ExecutorName, at_least, auto_or_at_least_one, seed_of
from aiostream_data.plan.operators import AUTO_CYCLE_LENGTH
from aiostream_data.plan.validate import check_executor, check_reaches_interpreters, check_reaches_processes
from aiostream_data.plan.written import function_name

STATE: Final = "state"
"""A function parameter with this name receives the result of ``init`` on the same worker."""

RNG: Final = "rng"
"""A map or filter function parameter with this name receives a NumPy Generator keyed by (seed, epoch, record)."""


def map_call(
    function: Any,
    executor: ExecutorName | Auto,
    concurrency: Concurrency,
    ordered: Any,
    batched: Any,
    seed: int | None,
    init: Callable[[], Any] | None,
    timeout: float | None,
    on_error: OnError,
    operator: str = "map",
) -> dict[str, Any]:
    """Return the fields of the plan node of ``map``, or of another operator that calls a function of the element.

    Raises:
        StageBuildError: The function cannot be pickled for a process, or is a generator function.
        PlanError: An argument is invalid.
    """
    check_callable(operator, function)
    check_gives_a_value(operator, function)
    for name, value in (("ordered", ordered), ("batched", batched)):
        flag(name, value)
    if batched and takes(RNG, function):
        raise PlanError(
            "map(): a function with a parameter rng cannot have batched=True, because random numbers are drawn per "
            "record. Use batched=False."
        )
    if batched and is_coroutine_function(function):
        raise PlanError(
            "map(): a coroutine function cannot have batched=True, because it is awaited for one element at a time. "
            "Use batched=False."
        )
    how = _how(function, executor, concurrency, seed, init, timeout, on_error)
    given = {RNG, STATE} if init is not None else {RNG}
    check_takes_an_element(operator, function, given)
    warn_of_hidden_state(operator, function, given)
    return {"function": function, "ordered": ordered, "batched": batched, **how}


def filter_call(
    predicate: Any,
    executor: ExecutorName | Auto,
    concurrency: Concurrency,
    seed: int | None,
    init: Callable[[], Any] | None,
    timeout: float | None,
    on_error: OnError,
) -> dict[str, Any]:
    """Return the fields of the plan node of ``filter``.

    Raises:
        StageBuildError: The predicate cannot be pickled for a process, or is a generator function.
        PlanError: An argument is invalid.
    """
    check_callable("filter", predicate)
    check_gives_a_value("filter", predicate)
    how = _how(predicate, executor, concurrency, seed, init, timeout, on_error)
    given = {RNG, STATE} if init is not None else {RNG}
    check_takes_an_element("filter", predicate, given)
    warn_of_hidden_state("filter", predicate, given)
    return {"predicate": predicate, **how}


def checked_predicate(predicate: Any) -> Callable[..., bool]:
    """Validate and return the predicate of ``take_while``.

    Raises:
        StageBuildError: The predicate is a generator function, or cannot be called with an element.
        PlanError: The predicate is not callable, or is a coroutine function.
    """
    checked: Callable[..., bool] = checked_function("take_while", predicate)
    return checked


def scan_call(function: Any, initial: Any) -> dict[str, Any]:
    """Return the fields of the plan node of ``scan``. The node keeps its own copy of ``initial``.

    Raises:
        StageBuildError: The function is a generator function, or cannot be called with a state and an element.
        PlanError: The function is not callable, or is a coroutine function, or ``initial`` cannot be copied.
    """
    check_callable("scan", function)
    refuse_coroutine("scan", function)
    check_gives_a_value("scan", function)
    check_takes_state_and_element("scan", function)
    warn_of_hidden_state("scan", function)
    return {"function": function, "initial": copied_state("scan", initial)}


def checked_factory(factory: Any) -> Callable[[], Any]:
    """Validate and return the function of ``aggregate`` that makes aggregators.

    Raises:
        StageBuildError: The factory is a generator function, or requires arguments.
        PlanError: The factory is not callable, or is a coroutine function.
    """
    check_callable("aggregate", factory)
    refuse_coroutine("aggregate", factory)
    check_gives_a_value("aggregate", factory)
    check_takes_arguments("aggregate", factory, ())
    warn_of_hidden_state("aggregate", factory)
    checked: Callable[[], Any] = factory
    return checked


def checked_key(key: Any) -> Callable[..., Any] | None:
    """Validate and return the key function of ``unique``.

    Raises:
        StageBuildError: The function is a generator function, or cannot be called with an element.
        PlanError: The key is neither None nor callable, or is a coroutine function.
    """
    return None if key is None else checked_function("unique", key)


def checked_function(name: str, function: Any) -> Callable[..., Any]:
    """Validate and return a function that is called with one element and returns a value.

    Raises:
        StageBuildError: The function is a generator function, or cannot be called with an element.
        PlanError: The function is not callable, or is a coroutine function.
    """
    check_callable(name, function)
    refuse_coroutine(name, function)
    check_gives_a_value(name, function)
    check_takes_an_element(name, function)
    warn_of_hidden_state(name, function)
    checked: Callable[..., Any] = function
    return checked


def check_reduction(name: str, function: Any, rows: int) -> None:
    """Validate the function of ``reduce`` and ``areduce``, and the cardinality of the dataset.

    Raises:
        StageBuildError: The function is a generator function, or cannot be called with a state and an element.
        PlanError: The function is not callable, or the dataset is infinite.
    """
    check_callable(name, function)
    check_gives_a_value(name, function)
    check_takes_state_and_element(name, function)
    if rows == INFINITE:
        raise PlanError(f"{name}() needs a finite dataset, but this dataset is infinite. Add take(count) before it.")


def copied_state(name: str, initial: Any) -> Any:
    """Return a deep copy of the initial state of the operator ``name``.

    Raises:
        PlanError: The state cannot be copied.
    """
    try:
        return copy.deepcopy(initial)
    except Exception as error:
        raise PlanError(
            f"{name}() copies initial for each pass, but {type(initial).__name__} cannot be copied: {error}. "
            "Pass a value that copy.deepcopy() accepts."
        ) from error


def interleave_call(
    name: str,
    function: Any,
    on_error: OnError,
    cycle_length: int | Auto = 1,
    block_length: int = 1,
    ordered: bool = True,
    executor: Any = "thread",
    concurrency: Concurrency = 1,
) -> dict[str, Any]:
    """Return the fields of the plan node of ``interleave`` and ``flat_map``.

    Raises:
        PlanError: An argument is invalid.
        StageBuildError: The function cannot be pickled for a process.
    """
    cycle = AUTO_CYCLE_LENGTH if isinstance(cycle_length, Auto) else at_least("cycle_length", cycle_length, 1)
    block = at_least("block_length", block_length, 1)
    flag("ordered", ordered)
    check_callable(name, function)
    refuse_coroutine(name, function)
    check_takes_an_element(name, function)
    warn_of_hidden_state(name, function)
    policy_of(on_error)
    _check_inner_executor(name, function, executor)
    return {
        "function": function,
        "cycle_length": cycle,
        "block_length": block,
        "ordered": ordered,
        "name": name,
        "on_error": on_error,
        "executor": executor,
        "concurrency": auto_or_at_least_one("concurrency", concurrency),
    }


def _check_inner_executor(name: str, function: Callable[..., Any], executor: Any) -> None:
    word("executor", executor, ("thread", "process", "inline"))
    if executor != "process":
        return
    check_executor(executor)
    check_reaches_processes(function)
    if inspect.isasyncgenfunction(function):
        raise StageBuildError(
            f"{name}(): {function_name(function)} is an async generator function, which cannot run in a process. "
            "Use executor='thread', or a plain generator function."
        )


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return True for a coroutine function, or an object whose ``__call__`` is a coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function
    )


def refuse_coroutine(name: str, function: Callable[..., Any]) -> None:
    """Raise :class:`PlanError` if ``function`` is a coroutine function."""
    if is_coroutine_function(function):
        raise PlanError(f"{name}() needs a plain function, got a coroutine function. Await it in a preceding map().")


def check_callable(name: str, function: Any) -> None:
    """Raise :class:`PlanError` if ``function`` is not callable."""
    if not callable(function):
        cure = "the function itself, without calling it" if function is not None else "a function, such as a lambda"
        raise PlanError(f"{name}() needs a function, got {type(function).__name__}. Pass {cure}.")


def _check_init(init: Any, *, is_awaited: bool) -> None:
    if not callable(init):
        raise PlanError(f"init must be a function that returns the state of a worker, got {type(init).__name__}")
    if is_coroutine_function(init) and not is_awaited:
        raise PlanError(
            f"init must be a plain function, got the coroutine function {function_name(init)}. "
            "A coroutine init= needs an operator whose function is also a coroutine function."
        )
    try:
        signature = inspect.signature(init)
    except (TypeError, ValueError):  # builtins without a signature
        return
    try:
        signature.bind()
    except TypeError as error:
        raise PlanError(
            f"init is called without arguments, but {function_name(init)} requires them: {error}. "
            "Bind them with functools.partial()."
        ) from None


def _how(
    function: Callable[..., Any],
    executor: ExecutorName | Auto,
    concurrency: Concurrency,
    seed: int | None,
    init: Callable[[], Any] | None,
    timeout: float | None,
    on_error: OnError,
) -> dict[str, Any]:
    """Validate the arguments that control how a function is called.

    Return these arguments as fields of the plan node.
    """
    where: ExecutorName = "auto" if isinstance(executor, Auto) else executor
    check_executor(where)
    is_coroutine, wants_rng = is_coroutine_function(function), takes(RNG, function)
    if is_coroutine and where not in ("auto", "thread"):
        raise PlanError(
            f"a coroutine function cannot have executor={executor!r}, because it runs on the event loop. "
            "Remove executor=, or pass a plain function."
        )
    if init is not None:
        _check_init(init, is_awaited=is_coroutine)
    wants_state = takes(STATE, function)
    if init is not None and not wants_state:
        raise PlanError(
            "init= needs a function with a parameter named state, which receives the result of init. "
            "Add the parameter, or remove init=."
        )
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
    """Return True if a function has a parameter with the given name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return False
