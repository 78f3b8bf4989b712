"""Description of a skipped or replaced row as text, after a function failed on the row or the row was damaged."""

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
"""Maximum characters of an error's message in the log. A message may contain a whole record."""

MAX_TEXT: Final = 40_000
"""Maximum characters of a traceback in the log, including the message."""


class DamagedPart(NamedTuple):
    """Damaged part of a shard.

    Attributes:
        lost: Extent of the loss: "records", "rest of the shard" or "shard".
        offset: First damaged byte in the decompressed stream; None if unknown.
        nbytes: Number of damaged bytes; None for all bytes up to the end.
    """

    lost: Literal["records", "rest of the shard", "shard"]
    offset: int | None
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed row. It can be pickled with any error, because it stores errors as text.

    Attributes:
        row: Number of the row in the chunk that the function was called for.
        ids, made_of: Lineage of the row.
        error: "Type: message" of the error.
        text: The traceback of the error.
        element: Types, shapes and dtypes of the element.
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
    def lost(cls, error: DataError | StorageError, ids: RowIds, damage: DamagedPart) -> Self:
        """Describe damage in a shard."""
        line = error_line(error)
        return cls(0, ids, None, line, line, damage.lost, "skip", damage)

    @classmethod
    def of(cls, error: BaseException, chunk: Chunk, row: int, element: str, kind: Literal["skip", "replace"]) -> Self:
        """Describe the failure of row ``row`` of a chunk. The traceback of ``error`` keeps only the user's frames."""
        made_of = None if chunk.made_of is None else chunk.made_of[row]
        return replace(cls.told(error, chunk.ids.row(row), made_of, element, kind), row=row)

    @classmethod
    def told(
        cls, error: BaseException, ids: RowIds, made_of: MadeOf | None, element: str, kind: Literal["skip", "replace"]
    ) -> Self:
        """Describe the failure of a single row; its ``row`` is 0."""
        present(error)
        found = cls(0, ids, made_of, error_line(error), error_text(error), element, kind)
        # Clear the error object, because the user's code may raise the same object again for other rows.
        error.__traceback__ = None
        forget_calls(error)
        return found


def error_line(error: BaseException) -> str:
    """Return "Type: message" of an error, even if its ``__str__`` fails."""
    try:
        message = str(error)
    except Exception as second:  # noqa: BLE001 - a broken __str__ must not hide the error
        message = f"<{type(second).__name__} in __str__>"
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return _cut(f"{name}: {message}", MAX_LINE)


def error_text(error: BaseException) -> str:
    """Format the traceback of an error. If the error cannot be printed, return only its :func:`error_line`."""
    try:
        return _cut("".join(traceback.format_exception(error)), MAX_TEXT)
    except Exception:  # noqa: BLE001 - see error_line
        return error_line(error)


def _cut(text: str, most: int) -> str:
    """Remove the middle of a text longer than ``most`` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} ... ({len(text) - most:,} characters left out) ... {text[-(most // 2) :]}"
