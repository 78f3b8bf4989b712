"""How much to do in one hop: enough to make the hop cheap, little enough to keep rows flowing."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from aiostream_data._engine.flow.chunk_sizes import HOP_ROWS
from aiostream_data._engine.memory.budget import FORGETTING

HOP_S = 0.010
"""Seconds of work that one hop aims at."""

LONG_HOP_S = 0.060
"""The same where a hop costs more: to another process and back, or beside others on threads that wake each other."""

CHEAP_ROW_S = 20e-6
"""Below this cost per row a Python function hardly ever releases the GIL, so one hop at a time is best."""


ODD = 8.0
"""A hop whose rows cost so many times what others did may have had one slow row: it is not believed at once."""

GIL_HOPS = 24
"""Hops that several threads have run at once before it is judged whether they held each other up."""


def _has_gil() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


@dataclass(slots=True)
class Pace:
    """Learns what a row costs, and answers how many rows the next hop should take.

    Attributes:
        hop_s: Seconds of work that one hop aims at.
        hop_nbytes: Most bytes that it is meant to make.
        rows: Rows for the next hop. Starts small, so that a slow function shows its first results early.
        row_s: Seconds that a row takes.
        row_nbytes: Bytes of what a row becomes: the most of late.
        cpu_share: Of a hop's time on a core, while one ran at a time.
        together: Hops that ran while others did.
        share_together: Their share of time on a core.
        slow_rows_s: Seconds of hops whose rows cost :data:`ODD` times as much as the rows before them.
    """

    hop_s: float = HOP_S
    hop_nbytes: float = math.inf
    rows: int = 1
    row_s: float = 0.0
    row_nbytes: float = 0.0
    cpu_share: float = 1.0
    together: int = 0
    share_together: float = 1.0
    slow_rows_s: float = 0.0

    def observe(self, rows: int, busy_s: float, cpu_s: float, at_once: int = 1, nbytes: int = 0) -> None:
        """Record a hop that ended, of how many ran at once, and of the bytes it made."""
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
                self.cpu_share = 0.5 * self.cpu_share + 0.5 * share
            else:
                self.together += 1
                self.share_together += (share - self.share_together) / min(self.together, GIL_HOPS)
        self.row_nbytes = max(nbytes / rows, self.row_nbytes * FORGETTING)
        # Grow at most 16-fold a step: the first rows of a stream are seldom typical.
        self.rows = max(1, min(self._affordable(), 16 * self.rows, HOP_ROWS))

    def _affordable(self) -> int:
        row_s, row_nbytes = max(self.row_s, 1e-9), max(self.row_nbytes, 1.0)
        return int(min(self.hop_s / row_s, self.hop_nbytes / row_nbytes))

    def workers(self, cpus: int) -> int:
        """Return how many hops AUTO runs at once: one while rows are cheap, more while they wait."""
        if self.row_s == 0.0 or self.row_s < CHEAP_ROW_S:
            return 1
        if self.cpu_share < 0.5:
            return 4 * cpus
        return 1 if self.holds_gil(cpus) else cpus

    def holds_gil(self, cpus: int) -> bool:
        """Return True if threads took the processor from each other, as functions do that never release the GIL.

        What is on a core all the time when it runs alone is there for 1/n of it when n threads share the GIL.
        """
        if cpus < 2 or self.together < GIL_HOPS or not _has_gil():
            return False
        return self.share_together < self.cpu_share / math.sqrt(cpus)
