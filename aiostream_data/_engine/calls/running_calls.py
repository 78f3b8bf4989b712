"""Track running user functions with their record and start time, to report why a loader is stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import length_hint
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.row_ids import RowIds


@dataclass(frozen=True, slots=True)
class RunningCall:
    """Calls of one user function for the rows of one chunk, on one thread.

    Attributes:
        thread: Identifier of the calling thread.
        function: The user function.
        describe: Function that returns the record name for row ids and a row index.
        ids: Row ids of the rows in the chunk.
        left: Iterator over the chunk's unprocessed elements. The length hint of ``left`` determines which row is the
            current row.
        number: Array of shape (1,) with the index of the current row, if ``left`` does not provide it.
        started_at: Time from ``perf_counter()`` before the first call.
    """

    thread: int
    function: Callable[..., Any]
    describe: Callable[[RowIds, int], str]
    ids: RowIds
    left: Iterator[Any]
    number: NDArray[np.int64] | None
    started_at: float

    @property
    def record(self) -> str:
        """Name of the record that the user function is processing."""
        row = int(self.number[0]) if self.number is not None else len(self.ids) - length_hint(self.left) - 1
        return self.describe(self.ids, row)


_running: dict[int, RunningCall] = {}


def running_calls() -> list[RunningCall]:
    """Return the user-function calls that run on any thread of this process."""
    return list(_running.copy().values())


class noted_as_running:
    """Context manager that registers the calls of ``function`` for the rows of a chunk as running.

    This context manager is a class because ``contextlib.contextmanager`` sets the exception's traceback, which some
    exceptions forbid.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        describe: Callable[[RowIds, int], str],
        ids: RowIds,
        left: Iterator[Any],
        number: NDArray[np.int64] | None = None,
    ) -> None:
        self._call = RunningCall(threading.get_ident(), function, describe, ids, left, number, perf_counter())

    def __enter__(self) -> None:
        self._before = _running.get(self._call.thread)
        _running[self._call.thread] = self._call

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            _running.pop(self._call.thread, None)
        else:
            _running[self._call.thread] = self._before
