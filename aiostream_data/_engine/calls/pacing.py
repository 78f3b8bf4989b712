"""Choose the number of rows per hop (one unit of work) and the number of workers, from the measured cost of a row."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

from aiostream_data._engine.flow.chunk_sizes import HOP_ROWS
from aiostream_data._engine.memory.budget import FORGETTING

HOP_S = 0.010
"""Target duration of a hop (one call on a worker), in seconds."""

LONG_HOP_S = 0.060
"""Target duration, in seconds, of hops in worker processes or on several threads, where the overhead per hop is higher.
"""

CHEAP_ROW_S = 20e-6
"""Seconds per row below which a row is cheap.

Hops of cheap rows run one at a time, because cheap functions rarely release the GIL.
"""


ODD = 8.0
"""A hop is an outlier if its cost per row exceeds the usual cost by more than this factor.

An outlier's cost per row counts as at most this factor times the usual cost.
"""

HOP_GROWTH = 16
"""Maximum ratio between the rows of a hop and the rows of the largest finished hop. The first rows of a stream are
rarely typical."""

WAITING_SHARE = 0.5
"""CPU time divided by wall time below which a function mostly waits, for example for I/O."""

GIL_HOPS = 24
"""Number of concurrent hops to measure before deciding whether the user function holds the GIL."""


def _has_gil() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


@dataclass(slots=True)
class Pace:
    """Running estimate of the cost of a row, and the hop size derived from it.

    Attributes:
        hop_s: Target duration of a hop (one call on a worker), in seconds.
        hop_nbytes: Target maximum output of a hop (one call on a worker), in bytes.
        rows: Number of rows for the next hop. The number of rows starts at 1, so that a slow function emits its first
            results early.
        measured: Number of rows of the largest hop that has finished. Hops grow from this number, not from the size of
            unfinished hops: several hops can start before the output of the first one is known.
        row_s: Estimated seconds per row.
        row_nbytes: Recent maximum of the output bytes per row.
        alone: Number of hops that ran one at a time.
        cpu_share: CPU time divided by wall time, for hops that ran one at a time.
        together: Number of hops that ran concurrently with other hops.
        share_together: CPU time divided by wall time, for hops that ran concurrently with other hops.
        slow_rows_s: Total seconds of outlier hops, which cost more than :data:`ODD` times the usual cost per row.
    """

    hop_s: float = HOP_S
    hop_nbytes: float = math.inf
    rows: int = 1
    measured: int = 1
    row_s: float = 0.0
    row_nbytes: float = 0.0
    alone: int = 0
    cpu_share: float = 1.0
    together: int = 0
    share_together: float = 1.0
    slow_rows_s: float = 0.0

    def observe(self, rows: int, busy_s: float, cpu_s: float, at_once: int = 1, nbytes: int = 0) -> None:
        """Record the cost of a finished hop (one call on a worker).

        Args:
            rows: Number of rows in the hop; with 0, the call has no effect.
            busy_s: Wall time in seconds.
            cpu_s: Seconds on a CPU core, and seconds waiting for a core.
            at_once: Number of hops that ran concurrently, including this hop.
            nbytes: Size of the hop's output, in bytes.
        """
        if rows < 1:
            return
        cost = busy_s / rows
        is_odd = self.row_s > 0.0 and cost > ODD * self.row_s
        if is_odd:
            cost = ODD * self.row_s
            self.slow_rows_s += busy_s
        self.row_s = cost if self.row_s == 0.0 else 0.5 * self.row_s + 0.5 * cost
        if busy_s > 0.0 and not is_odd:
            share = min(1.0, cpu_s / busy_s)
            if at_once == 1:
                self.alone += 1
                self.cpu_share = 0.5 * self.cpu_share + 0.5 * share
            else:
                self.together += 1
                self.share_together += (share - self.share_together) / min(self.together, GIL_HOPS)
        self.row_nbytes = max(nbytes / rows, self.row_nbytes * FORGETTING)
        self.measured = max(self.measured, rows)
        self.rows = max(1, min(self._affordable(), HOP_GROWTH * self.measured, HOP_ROWS))

    def _affordable(self) -> int:
        row_s, row_nbytes = max(self.row_s, 1e-9), max(self.row_nbytes, 1.0)
        return int(min(self.hop_s / row_s, self.hop_nbytes / row_nbytes))

    def workers(self, cpus: int) -> int:
        """Return the number of concurrent hops for AUTO: 1 for cheap rows, and more for rows that wait for I/O."""
        if self.row_s == 0.0 or self.row_s < CHEAP_ROW_S:
            return 1
        if self.cpu_share < WAITING_SHARE:
            return 4 * cpus
        if self.alone == 1 and self.cpu_share < (1 + WAITING_SHARE) / 2:
            return 1  # the first call waited, which is not always typical: measure one more hop
        return 1 if self.holds_gil(cpus) else cpus

    def holds_gil(self, cpus: int) -> bool:
        """Return True if concurrent hops slowed each other down, which happens when functions never release the GIL.

        If n threads share the GIL, the CPU share of each thread falls to 1/n of the share of a thread that runs alone.
        """
        if cpus < 2 or self.together < GIL_HOPS or self.cpu_share < WAITING_SHARE or not _has_gil():
            return False  # a function that waits does not compete for the GIL
        return self.share_together < self.cpu_share / math.sqrt(cpus)


class _Runs(NamedTuple):
    """Runs of one operator.

    Attributes:
        codes: Code of its functions.
        measured: Pace of the last run that was measured.
        newest: Pace of the last run, which may not be measured yet.
    """

    codes: Sequence[object]
    measured: Pace
    newest: Pace


class Paces:
    """Paces of the last runs of operators with costly rows. A new run begins with the workers of the last one.

    A dataset that a user function makes of each file has a run per file, which would end before it is measured. For the
    event loop.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Runs] = {}

    def begun(self, place: str, functions: Sequence[Callable[..., Any]], cpus: int) -> Pace:
        """Return the pace of a new run: a copy of the last one if its functions have the same code and costly rows.

        Args:
            place: Key of the operator; see :meth:`.RunContext.place`.
        """
        codes = [code_of(function) for function in functions]
        runs = self._runs.get(place)
        known = Pace()
        if runs is not None and runs.codes == codes:
            known = runs.newest if runs.newest.row_s > 0.0 else runs.measured
        pace = replace(known) if known.workers(cpus) > 1 else Pace()
        self._runs[place] = _Runs(codes, known, pace)
        return pace


def code_of(function: Callable[..., Any]) -> object:
    """Return what all functions have in common that a line of code makes. It refers to no data of the user."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, MethodType):
        function = function.__func__
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code or getattr(function, "__qualname__", type(function))
