"""Rows of small files that were read together, each of which is a dataset of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from aiostream_data._engine.calls.row_work import Tally
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.position import Position, State
from aiostream_data._engine.sources import group_limits
from aiostream_data.rows.records import Chunk

ContextOf: TypeAlias = Callable[[int], RunContext]
"""Function that returns the run context of a file, by its place among the files."""

NO_TYPES: Final[Mapping[str, str | None]] = MappingProxyType({})
"""Types of the columns of a file that declares none."""


class FileRows(NamedTuple):
    """Rows of one file.

    Attributes:
        first: Index of the first row in the chunk of the group.
        rows: Number of rows.
        position: Position of the run of the file.
        types: Types of the columns; see :class:`.Directory`.
        done: Statistics of each operator that ran over the rows of the file.
    """

    first: int
    rows: int
    position: Position
    types: Mapping[str, str | None] = NO_TYPES
    done: Sequence[Tally] = ()

    @property
    def rows_read(self) -> int:
        """Number of rows of the file, before operators."""
        return self.done[0].rows_in if self.done else self.rows


class RowCost(NamedTuple):
    """What operators need for one row of a file, from the last rows for which they ran.

    Attributes:
        seconds: Time.
        nbytes: Size of the largest output of an operator.
    """

    seconds: float
    nbytes: float


class BegunFile(NamedTuple):
    """File whose first rows were processed by the operators of its plan. A run processes its other rows.

    Attributes:
        output: Output rows.
        state_of: Function that returns the state from which the run continues. The run calls no function again.
        error: Error of the row behind the output; None without one. It ends the run.
    """

    output: FileRows
    state_of: Callable[[BookWriter], State]
    error: BaseException | None


NO_FILES: Final[Mapping[int, BegunFile]] = MappingProxyType({})


class FilesRead(NamedTuple):
    """Rows of the small files of a group.

    Attributes:
        chunk: Rows of all files that were read, one file after another; None if there are none.
        files: Rows of each file that was read, by its place. All other files must be read alone.
        mean_nbytes: Mean size in bytes of the files, or of the rows that operators made of them; None if no size is
            known.
        took_s: Time that decoding and operators took, in seconds; None if it is unknown.
        arrived_at: Time of ``perf_counter()`` at which the bytes of the files had arrived.
        begun: Files of which only the first rows went through operators, by their places.
        are_costly: True if the next files should be read alone, because their operators take long.
        cost: Cost of operators; None if it is unknown.
    """

    chunk: Chunk | None
    files: Mapping[int, FileRows]
    mean_nbytes: float | None
    took_s: float | None
    arrived_at: float
    begun: Mapping[int, BegunFile] = NO_FILES
    are_costly: bool = False
    cost: RowCost | None = None


def group_nbytes(context: RunContext) -> int:
    """Return the maximum size in bytes of a group, and of its decoded rows; 0 for no groups."""
    least = max(group_limits.GROUP_SHARE * context.crowd, group_limits.CROWD_SHARE * context.sharers)
    return min(group_limits.GROUP_NBYTES, context.services.budget.limit // least)


class ReadsFiles(Protocol):
    """Reader of small files, each of which is a dataset of its own."""

    def most_files(self, *, is_local: bool) -> int:
        """Return the maximum number of files that are read at once from this machine, or from a remote store."""

    @property
    def most_nbytes(self) -> int:
        """Maximum size in bytes that the files of a group should have; 0 for no groups."""

    async def read(self, files: Sequence[Any], context_of: ContextOf, is_wanted: Callable[[], bool]) -> FilesRead:
        """Read and decode consecutive files. They have one store and the same options.

        Args:
            is_wanted: Returns True if the consumer waits for these files. They may then exceed a full memory limit.
        """

    def accepted(self, files: Sequence[Any], read: Sequence[FileRows], context_of: ContextOf) -> int:
        """Count the rows of files that were read. Call it in the turn of the files.

        Return the number of first files that may be delivered. The next one must be read alone.
        """
