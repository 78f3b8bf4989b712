"""Text description of a row that was skipped or replaced because a function failed or its data was damaged."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from aiostream_data._engine.failures.element_summary import forget_calls
from aiostream_data._engine.failures.tracebacks import present
from aiostream_data.errors import DataError, MemoryBudgetError, StorageError
from aiostream_data.rows.lineage import MadeOf
from aiostream_data.rows.records import Chunk
from aiostream_data.rows.row_ids import RowIds

ShardError: TypeAlias = DataError | StorageError | MemoryBudgetError
"""Error of a shard that a policy can skip. A :class:`.MemoryBudgetError` is one of a record that was decompressed."""

MAX_LINE: Final = 4_000
"""Maximum characters of an error message in the log.

An error message may contain a complete record, so its length is limited.
"""

MAX_TEXT: Final = 40_000
"""Maximum characters of a traceback in the log, including the error message."""


class DamagedPart(NamedTuple):
    """Damaged part of a shard.

    Attributes:
        lost: Extent of the loss: "records" (some records), "rest of the shard" or "shard".
        offset: Position of the first damaged byte in the decompressed stream; None if unknown.
        nbytes: Number of damaged bytes; None if all bytes up to the end are damaged.
    """

    lost: Literal["records", "rest of the shard", "shard"]
    offset: int | None
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed row. The description can be pickled even if the exception cannot, because errors are stored as text.

    Attributes:
        row: Index of the row in the chunk that was passed to the function.
        ids, made_of: Row ids of this row, and of the rows that this row was made of.
        error: Error as text, "Type: message".
        text: Traceback of the error, as text.
        element: Description of the element: types, shapes and dtypes.
        kind: Action of the error policy: "skip" or "replace".
        damage: Damaged part of the shard; None if a function failed.
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
    def lost(cls, error: ShardError, ids: RowIds, damage: DamagedPart) -> Self:
        """Describe rows that were lost because a shard is damaged."""
        line = error_line(error)
        return cls(0, ids, None, line, line, damage.lost, "skip", damage)

    @classmethod
    def of(cls, error: BaseException, chunk: Chunk, row: int, element: str, kind: Literal["skip", "replace"]) -> Self:
        """Describe why row ``row`` of a chunk failed. The traceback contains only frames of the user's code."""
        made_of = None if chunk.made_of is None else chunk.made_of[row]
        return replace(cls.told(error, chunk.ids.row(row), made_of, element, kind), row=row)

    @classmethod
    def told(
        cls, error: BaseException, ids: RowIds, made_of: MadeOf | None, element: str, kind: Literal["skip", "replace"]
    ) -> Self:
        """Describe the failure of a single row, which has the index 0."""
        present(error)
        found = cls(0, ids, made_of, error_line(error), error_text(error), element, kind)
        # Clear the error object, because the user's code may raise the same object again for other rows.
        error.__traceback__ = None
        forget_calls(error)
        return found


def error_line(error: BaseException) -> str:
    """Return "Type: message" for an error, even if the ``__str__`` method of the error fails."""
    try:
        message = str(error)
    except Exception as second:  # noqa: BLE001 - a broken __str__ must not hide the error
        message = f"<{type(second).__name__} in __str__>"
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return _cut(f"{name}: {message}", MAX_LINE)


def error_text(error: BaseException) -> str:
    """Format the traceback of an error as text.

    If the error cannot be printed, return only the line from :func:`error_line`.
    """
    try:
        return _cut("".join(traceback.format_exception(error)), MAX_TEXT)
    except Exception:  # noqa: BLE001 - see error_line
        return error_line(error)


def _cut(text: str, most: int) -> str:
    """Remove the middle of a text longer than ``most`` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} ... ({len(text) - most:,} characters left out) ... {text[-(most // 2) :]}"
