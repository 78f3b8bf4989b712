"""Raise an error if a map function returns a coroutine, generator or dataset."""

from __future__ import annotations

from contextlib import suppress
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from aiostream_data._engine.calls.user_code import UserFunction
from aiostream_data.errors import PlanError
from aiostream_data.plan.base import Node
from aiostream_data.plan.written import function_name
from aiostream_data.rows.records import Chunk, Items

_CURES: Final = {
    CoroutineType: "Pass the coroutine function itself to map().",
    GeneratorType: "Use flat_map() to make several elements of each element.",
    AsyncGeneratorType: "Use flat_map() to make several elements of each element.",
}


def finished(user: UserFunction, made: Chunk) -> Chunk:
    """Return ``made``, the results of a map function, unchanged if all results are plain values.

    Raises:
        PlanError: A result is a coroutine, generator or dataset. A note on the error names the record.
    """
    if isinstance(made, Items):
        for kind, value in {type(value): value for value in made.values}.items():
            cure = _cure(value)
            if cure is not None:
                raise _refusal(user, made, kind, cure)
    return made


def _cure(value: Any) -> str | None:
    with suppress(Exception):  # reading an attribute of a user's object can raise anything
        if isinstance(getattr(value, "plan", None), Node):
            return "Use flat_map() or interleave() to read its elements."
    return _CURES.get(type(value))


def _refusal(user: UserFunction, made: Items, kind: type[Any], cure: str) -> PlanError:
    row = next(row for row, value in enumerate(made.values) if type(value) is kind)
    error = PlanError(f"{function_name(user.function)} returned a {kind.__name__}, which is not a value. {cure}")
    error.add_note(f"record: {user.describe(made.ids, row)}")
    for value in made.values:
        if isinstance(value, CoroutineType | GeneratorType):
            value.close()  # avoids Python's "was never awaited" warning
    return error
