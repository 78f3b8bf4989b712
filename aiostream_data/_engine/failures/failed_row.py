"""A row that was skipped or replaced, since a function failed on it or it is damaged: what is told of it, as text."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Self

from aiostream_data._engine.failures.element_summary import forget_calls
from aiostream_data._engine.failures.tracebacks import present
from aiostream_data.errors import DataError, StorageError
from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import RowIds

MAX_LINE: Final = 4_000
"""Characters that are told of an error's message: a message may hold a record."""

MAX_TEXT: Final = 40_000
"""Characters that are told of a traceback, which ends with the message."""


class DamagedPart(NamedTuple):
    """Where a source lost something.

    Attributes:
        lost: "records", "rest of the shard" or "shard".
        offset: First byte of it, in the decompressed stream; None if unknown.
        nbytes: Number of bytes; None for all up to the end.
    """

    lost: Literal["records", "rest of the shard", "shard"]
    offset: int | None
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """One row. Goes to other processes as it is, whatever the error was.

    Attributes:
        row: Its number in the chunk that the function was called for.
        ids, made_of: Name the row.
        error: "Type: message".
        text: The whole traceback.
        element: Types, shapes and dtypes of the element.
        kind: What became of it: "skip" or "replace".
        damage: Where it was lost in its shard; None if a function failed.
    """

    row: int
    ids: RowIds
    made_of: MadeOf | None
    error: str
    text: str
    element: str
    kind: Literal["skip", "replace"]
    damage: DamagedPart | None = None

    @classmethod
    def lost(cls, error: DataError | StorageError, ids: RowIds, damage: DamagedPart) -> Self:
        """Return what is told of damage in a shard."""
        line = error_line(error)
        return cls(0, ids, None, line, line, damage.lost, "skip", damage)

    @classmethod
    def of(cls, error: BaseException, chunk: Chunk, row: int, element: str, kind: Literal["skip", "replace"]) -> Self:
        """Return what is told of row ``row`` of a chunk; the error keeps the user's frames alone."""
        made_of = None if chunk.made_of is None else chunk.made_of[row]
        return replace(cls.told(error, chunk.ids.row(row), made_of, element, kind), row=row)

    @classmethod
    def told(
        cls, error: BaseException, ids: RowIds, made_of: MadeOf | None, element: str, kind: Literal["skip", "replace"]
    ) -> Self:
        """Return what is told of one row, number 0."""
        present(error)
        found = cls(0, ids, made_of, error_line(error), error_text(error), element, kind)
        # Nobody sees the error any more, unless the user raises the same object for other rows, too.
        error.__traceback__ = None
        forget_calls(error)
        return found


def error_line(error: BaseException) -> str:
    """Return "Type: message", even if the exception's ``__str__`` fails."""
    try:
        message = str(error)
    except Exception as second:  # noqa: BLE001 - a broken __str__ must not hide the error
        message = f"<{type(second).__name__} in __str__>"
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return _cut(f"{name}: {message}", MAX_LINE)


def error_text(error: BaseException) -> str:
    """Return the traceback as Python prints it; the first line alone where the exception cannot be printed."""
    try:
        return _cut("".join(traceback.format_exception(error)), MAX_TEXT)
    except Exception:  # noqa: BLE001 - see error_line
        return error_line(error)


def _cut(text: str, most: int) -> str:
    """Return a text without its middle, where it is too long."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} ... ({len(text) - most:,} characters left out) ... {text[-(most // 2) :]}"
