"""The user functions that run at this moment, with record and start time, for reports of a stuck loader."""

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
    """A run of calls of one function over the rows of a chunk.

    Attributes:
        thread: Identifier of the thread that makes them.
        function: The user's.
        describe, ids: Name the record of a row.
        left: The elements that are still to come.
        number: Holds the row in its only place, where ``left`` does not tell.
        started_at: ``perf_counter()`` at the first of them.
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
        """The record that is being worked on."""
        row = int(self.number[0]) if self.number is not None else len(self.ids) - length_hint(self.left) - 1
        return self.describe(self.ids, row)


_running: dict[int, RunningCall] = {}


def running_calls() -> list[RunningCall]:
    """Return what runs now, on all threads of this process."""
    return list(_running.copy().values())


class noted_as_running:
    """Note that the block calls ``function`` for the rows of a chunk.

    Not a generator, since ``contextlib`` sets the traceback of what the block raises, which not every error allows.
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
