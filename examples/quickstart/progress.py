"""Show how training goes: a live line on a terminal, one line per epoch anywhere else."""

from __future__ import annotations

import sys
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import aiostream_data as asd

REDRAW_S = 0.1
CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Counts steps, and draws rates and the fill of every stage from the loader's own statistics.

    Args:
        loader: What is being read.
        steps_per_epoch: Batches of an epoch.
    """

    def __init__(self, loader: asd.Loader[Any], steps_per_epoch: int) -> None:
        self._loader = loader
        self._steps_per_epoch = steps_per_epoch
        self._live = sys.stdout.isatty()
        self._steps = 0
        self._losses: list[float] = []
        self._drawn_at = self._epoch_at = perf_counter()
        self._epoch_stats = loader.stats()

    def step(self, loss: float, rows: int) -> None:
        """Count one batch that was learned."""
        self._steps += 1
        self._losses.append(loss)
        now = perf_counter()
        epoch_ended = self._steps % self._steps_per_epoch == 0
        if epoch_ended:
            print(f"{CLEAR_LINE if self._live else ''}{self._line(now, rows)}", flush=True)
            self._losses.clear()
            self._epoch_at, self._epoch_stats = now, self._loader.stats()
        elif self._live and now - self._drawn_at > REDRAW_S:
            self._drawn_at = now
            print(f"{CLEAR_LINE}{self._line(now, rows)}", end="", flush=True)

    def _line(self, now: float, rows: int) -> str:
        seconds = max(1e-6, now - self._epoch_at)
        epoch = (self._steps - 1) // self._steps_per_epoch + 1
        loss = sum(self._losses) / len(self._losses)
        stats = self._loader.stats()
        nbytes = stats.storage["nbytes"] - self._epoch_stats.storage.get("nbytes", 0)
        return (
            f"epoch {epoch:2d}  loss {loss:.3f}  {len(self._losses) * rows / seconds:7,.0f} rows/s  "
            f"{nbytes / seconds / 1024:6,.0f} KiB/s  waiting to hand on: {self._fill(seconds)}"
        )

    def _fill(self, seconds: float) -> str:
        """Say for every stage which share of the epoch its outlet was full."""
        before = {stage.name: stage.output_wait_s for stage in self._epoch_stats.stages}
        shares = {
            stage.name: (stage.output_wait_s - before.get(stage.name, 0.0)) / seconds
            for stage in self._loader.stats().stages
            if stage.busy_s > 0
        }
        return "  ".join(f"{name} {min(1.0, share):3.0%}" for name, share in shares.items())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            print(CLEAR_LINE, end="", flush=True)
