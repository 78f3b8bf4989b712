"""Add notes about the failing call to an error: the function, the record, and the element's types, shapes and dtypes.

A summary is computed while another error is handled. Therefore the summary code never raises, reads a limited part of
the element, and calls no user-defined ``__repr__``. A summary shows plain numbers, but no other data of the element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any, Final

from aiostream_data.rows.lineage import MadeOf, source_ids
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import RowIds

OF_A_CALL: Final = ("stage: ", "function: ", "record: ", "records: ", "element: ")
"""Prefixes of error notes that show where the error occurred."""

MAX_DEPTH: Final = 6
"""Maximum nesting depth of containers in a summary."""

MAX_ITEMS: Final = 8
"""Maximum number of listed items of a sequence."""

MAX_KEYS: Final = 32
"""Maximum number of listed entries of a dict, or fields of a dataclass."""

MAX_KEY_CHARACTERS: Final = 60
"""Maximum length of a key in a summary; longer keys are truncated."""

MAX_CHARACTERS: Final = 2000
"""Maximum length of a summary; longer summaries are truncated."""

WORD_BITS: Final = 64
"""Maximum bits of an integer that a summary shows in full.

For a larger integer, the summary shows only the number of bits.
"""


def note_call(
    error: BaseException, function: str, record: str, element: Any, rows: int = 1, *, is_batch: bool = False
) -> None:
    """Add notes about the failing call to an error: the function, the record and the element.

    Several calls may raise the same exception object. Notes from an earlier call of the function are replaced.

    Args:
        record: Name of the first record that the element was made of.
        rows: Number of records that the element was made of.
        is_batch: True if a batch operator combined the records.
    """
    first = f"function: {function}"
    notes = getattr(error, "__notes__", [])
    if first in notes:
        forget_calls(error)
    others = f", the first of {rows}" if rows > 1 else ""
    hint = f", a batch of {rows}: put a function of single rows before batch()" if is_batch else ""
    for note in (first, f"record: {record}{others}", f"element: {summary(element)}{hint}"):
        error.add_note(note)


def note_row(
    error: BaseException,
    function: str,
    chunk: Chunk,
    row: int,
    describe: Callable[[RowIds, int], str],
    *,
    is_batch: bool = False,
) -> None:
    """Add notes to an error of a call with one row of a chunk; see :func:`note_call`.

    Args:
        describe: Function that returns the name of the record of a row.
    """
    made_of = None if chunk.made_of is None else chunk.made_of[row]
    rows = rows_within(chunk.ids.row(row), made_of)
    note_call(error, function, describe(chunk.ids, row), chunk.element(row), rows, is_batch=is_batch)


def rows_within(ids: RowIds, made_of: MadeOf | None) -> int:
    """Return the number of source rows that a row was made of; more than 1 for a batch."""
    return len(source_ids(ids, made_of))


def forget_calls(error: BaseException) -> None:
    """Remove the notes about stages and function calls from an error."""
    notes = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if not note.startswith(OF_A_CALL)]


def summary(value: Any) -> str:
    """Describe a value for an error message, in the form ``{image: uint8[32, 32, 3], label: 7}``. Never raises."""
    return _cut(_summary(value, MAX_DEPTH), MAX_CHARACTERS)


def _summary(value: Any, depth: int) -> str:
    try:
        return _describe(value, depth)
    except Exception:  # noqa: BLE001 - an attribute of the user's that raises must not hide the error that is told
        return type(value).__name__


def _describe(value: Any, depth: int) -> str:
    if isinstance(value, dict):
        return "{" + _entries(value.items(), depth) + "}"
    if isinstance(value, (tuple, list)):
        return _sequence(value, depth)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (bytes, str)):
        return f"{type(value).__name__}[{len(value)}]"
    if isinstance(value, int) and value.bit_length() > WORD_BITS:
        return f"{type(value).__name__} of {value.bit_length()} bits"
    if type(value) in (int, float, bool, type(None)):
        return repr(value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = ((each.name, getattr(value, each.name)) for each in fields(value))
        return f"{type(value).__name__}({_entries(parts, depth)})"
    return type(value).__name__


def _sequence(value: tuple[Any, ...] | list[Any], depth: int) -> str:
    names = getattr(value, "_fields", None)
    if isinstance(value, tuple) and isinstance(names, tuple):
        return f"{type(value).__name__}({_entries(zip(names, value, strict=False), depth)})"
    if depth == 0:
        return f"{type(value).__name__}[{len(value)}]"
    inner = ", ".join(_summary(part, depth - 1) for part in value[:MAX_ITEMS])
    more = ", ..." if len(value) > MAX_ITEMS else ""
    return f"({inner}{more})" if isinstance(value, tuple) else f"[{inner}{more}]"


def _entries(entries: Iterable[tuple[Any, Any]], depth: int) -> str:
    if depth == 0:
        return "..."
    first = list(islice(entries, MAX_KEYS + 1))
    named = [f"{_key(key)}: {_summary(part, depth - 1)}" for key, part in first[:MAX_KEYS]]
    return ", ".join([*named, *(["..."] if len(first) > MAX_KEYS else [])])


def _key(key: Any) -> str:
    return _cut(str(key), MAX_KEY_CHARACTERS) if isinstance(key, (str, int, bytes)) else _summary(key, 1)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."
