"""Combine all elements of a loader into one value, as ``reduce`` does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from aiostream_data._engine.failures.element_summary import note_call
from aiostream_data.errors import PlanError
from aiostream_data.loading.loader import Loader
from aiostream_data.plan.written import function_name


def reduced(function: Callable[[Any, Any], Any], loader: Loader[Any], state: Any) -> Any:
    """Call ``function(state, element)`` for each element, and return the last state. Close the loader.

    Raises:
        PlanError: The function returned a coroutine.
        BaseException: The exception of the function, with notes that name the function and the record.
    """
    with loader:
        for element in loader:
            try:
                state = function(state, element)
                if inspect.iscoroutine(state):
                    state.close()
                    raise PlanError(
                        "the function of reduce() returned a coroutine. Pass the coroutine function itself, or use "
                        "await dataset.areduce()."
                    )
            except BaseException as error:
                _note(error, function, loader, element)
                raise
    return state


async def reduced_async(function: Callable[[Any, Any], Any], loader: Loader[Any], state: Any) -> Any:
    """Do the same as :func:`reduced` on the caller's event loop. Await the results of a coroutine function."""
    async with loader:
        async for element in loader:
            try:
                state = function(state, element)
                if inspect.isawaitable(state):
                    state = await state
            except BaseException as error:
                _note(error, function, loader, element)
                raise
    return state


def _note(error: BaseException, function: Callable[..., Any], loader: Loader[Any], element: Any) -> None:
    origins = loader.origins()
    error.add_note("stage: reduce")
    note_call(error, function_name(function), f"{origins[0].url} record {origins[0].index}", element, len(origins))
