"""Every loader at every size of batch and length of step, taking turns, beside a batch that is there already.

All contenders of a size are open at once, with their threads and processes, and idle while it is another's turn.
A window is some steps to get going, then the steps that are timed: what lies prefetched is used up before the clock
starts.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np

from benchmarks.gpu.computes import Compute, Computes
from benchmarks.gpu.contenders import headspace, jax_loader, ours, spdl_loader, torch_loaders
from benchmarks.gpu.hardware import Hardware
from benchmarks.gpu.predictions import USUAL
from benchmarks.gpu.recorder import Recorder
from benchmarks.gpu.spread import spread
from benchmarks.gpu.work import BATCHES, IMAGE, Contender, Work, image_pool

SIZES = {USUAL: 256, "4 MB": 27, "154 MB": 1024}
"""Rows of a batch of 224 x 224 x 3 bytes. The usual size comes first, should the time run out."""

CASTS = "256 images"
COMPUTES_MS = (0, 5, 20)
REPEATS = 3
PROFILED_BATCHES = 60
PROFILED_MS = 20
WARM_STEPS = 6
WINDOW_MS = 160
STEPS = (6, 24)
"""Fewest and most steps of a window."""

COMPARED = (headspace.named("cupy"), "ours copy (cupy)", "ours lease (cupy)")
COMPARED_MS = 20
COMPARED_TIMES = 6
"""More windows at the usual size, as two predictions are about small differences between these."""

SPARE_S = 6.0
"""Kept for windows and processes that end late."""

TOLERANCE = 0.02
"""How far a cast may be off: float16 rounds values up to 2.7 by 0.001, and torch rounds several times."""


def run(hardware: Hardware, recorder: Recorder) -> None:
    """Measure the loaders whose batches CuPy and torch consume."""
    # Those with worker processes first, which are forked before there are more threads.
    computes = Computes(hardware)
    usual = [*torch_loaders.ALL, *spdl_loader.ALL, *ours.IN_TORCH, *ours.IN_CUPY]
    asked = [Size(name, rows, usual) for name, rows in SIZES.items()]
    asked.append(Size(f"{CASTS}, uint8", 256, ours.CASTS_UINT8, share=0.5))
    asked.append(Size(f"{CASTS}, fp32", 256, [ours.CASTS_FP32], "float32", share=0.5))
    _record(hardware, computes, asked, recorder)


def run_jax(hardware: Hardware, recorder: Recorder) -> None:
    """Measure the loaders whose batches JAX consumes, in a process without torch."""
    computes = Computes(hardware)
    asked = [Size(name, rows, [*jax_loader.ALL, *ours.IN_JAX]) for name, rows in SIZES.items()]
    _record(hardware, computes, asked, recorder)


@dataclass(frozen=True)
class Size:
    """A row of tables: who is measured, with which batches, and for which share of the time."""

    name: str
    rows: int
    contenders: Sequence[Contender]
    dtype: str = "uint8"
    share: float = 1.0


def _record(hardware: Hardware, computes: Computes, asked: Sequence[Size], recorder: Recorder) -> None:
    """Measure all batch sizes and record their results. Time that one size does not use is left for the next sizes."""
    for number, size in enumerate(asked):
        share = size.share / sum(each.share for each in asked[number:])
        until = time.monotonic() + share * (recorder.left_s - SPARE_S)
        group = Group(hardware, computes, size.rows, size.dtype)
        frameworks = dict.fromkeys(contender.framework for contender in size.contenders)
        with ExitStack() as stack:
            group.open([*size.contenders, *map(headspace.in_framework, frameworks)], stack)
            if size.name == USUAL and ours.IN_CUPY[0] in size.contenders:
                group.compare()
            group.measure(until)
        if ours.IN_CUPY[0] in size.contenders:
            group.profile()
        recorder.put(**{size.name: group.found()})


@dataclass
class Entrant:
    """A contender that is running."""

    contender: Contender
    compute: Compute
    batches: Iterator[Any]


class Group:
    """The contenders of one size."""

    def __init__(self, hardware: Hardware, computes: Computes, rows: int, dtype: str = "uint8") -> None:
        self._hardware, self._computes = hardware, computes
        self._rows = hardware.scaled(rows, 4)
        self._pool = image_pool(self._rows, dtype, hardware.scaled(IMAGE, (16, 16, 3)))
        self._entrants: list[Entrant] = []
        self.errors: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.windows: dict[str, dict[str, list[dict[str, float]]]] = {}
        self.copies: dict[str, Any] = {}
        self.copies_alone: dict[str, Any] = {}

    def open(self, contenders: Sequence[Contender], stack: ExitStack) -> None:
        """Open them all, and hold their first batch against what must come; leave out those that fail."""
        for contender in contenders:
            with self._noting(contender.name):
                compute = self._computes.of(contender.framework)
                work = self._work(compute)
                batches = stack.enter_context(contender.open(work))
                _check(compute, next(batches), contender, work)
                self._entrants.append(Entrant(contender, compute, batches))

    def _work(self, compute: Compute) -> Work:
        return Work(self._hardware, self._pool, self._rows, compute)

    def profile(self) -> None:
        """Measure the duration of our copies with device events, with and without compute steps, without contenders.

        With steps, the host enqueues a copy long before the copy runs, so the events measure the copy alone. Without
        steps, a copy runs at once. The events then also measure the time in which the host enqueues the copy.
        """
        batches, work = self._hardware.scaled(PROFILED_BATCHES, 4), self._work(self._computes.of("cupy"))
        with self._noting("ours, profiled"):
            self.copies = ours.profile(work, batches, self._hardware.scaled(PROFILED_MS, 0))
            self.copies_alone = ours.profile(work, batches, 0)

    def compare(self) -> None:
        """Time windows of the contenders that the predictions are about, in turns."""
        for _ in range(self._hardware.scaled(COMPARED_TIMES, 1)):
            for entrant in [entrant for entrant in self._entrants if entrant.contender.name in COMPARED]:
                with self._noting(entrant.contender.name):
                    self._add(entrant, COMPARED_MS)

    def measure(self, until: float) -> None:
        """Time windows round by round, in turns, until there are enough or the time is over."""
        for repeat in range(self._hardware.scaled(REPEATS, 2)):
            for milliseconds in COMPUTES_MS:
                for entrant in list(self._entrants):
                    if repeat and time.monotonic() > until:
                        return
                    with self._noting(entrant.contender.name):
                        self._add(entrant, milliseconds)

    def _add(self, entrant: Entrant, milliseconds: int) -> None:
        count = entrant.compute.count_for(self._hardware.scaled(milliseconds, 0.01 * milliseconds))
        fewest, most = STEPS
        steps = max(fewest, min(most, WINDOW_MS // max(milliseconds, 1)))
        taken = window(entrant.compute, entrant.batches, count, self._hardware.scaled(steps, 2))
        by_length = self.windows.setdefault(entrant.contender.name, {})
        by_length.setdefault(str(milliseconds), []).append(taken)

    def _noting(self, name: str) -> _Noting:
        return _Noting(self, name)

    def leave_out(self, name: str) -> None:
        """Measure a contender no more."""
        self._entrants = [entrant for entrant in self._entrants if entrant.contender.name != name]

    def found(self) -> dict[str, Any]:
        """Return all that was measured, as JSON-safe data."""
        cells = {
            name: {length: _summary(windows) for length, windows in by_length.items()}
            for name, by_length in self.windows.items()
        }
        return {
            "nbytes": self._pool.nbytes // BATCHES,
            "steps": cells,
            "copies": self.copies,
            "copies_alone": self.copies_alone,
            "errors": self.errors,
            "missing": self.missing,
        }


class _Noting:
    """Takes the failure of one contender for a finding, so that the others are measured."""

    def __init__(self, group: Group, name: str) -> None:
        self._group, self._name = group, name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        if issubclass(kind, ImportError):
            self._group.missing[self._name] = str(error)
        else:
            self._group.errors[self._name] = "".join(traceback.format_exception(error, limit=-4))[-2000:]
        self._group.leave_out(self._name)
        return True


def _check(compute: Compute, arrived: Any, contender: Contender, work: Work) -> None:
    """Hold a batch against what must come.

    Raises:
        ValueError: It is another.
    """
    host, batch = compute.to_host(arrived), work.batch(0)
    if contender.expected is None:
        same = np.array_equal(host, batch)
    else:
        expected = contender.expected(batch)
        same = host.shape == expected.shape and bool(np.abs(host.astype(np.float32) - expected).max() < TOLERANCE)
    if not same:
        raise ValueError(f"{contender.name} gave another first batch: shape {host.shape}, {host.dtype}")


def window(compute: Compute, batches: Iterator[Any], count: int, steps: int) -> dict[str, float]:
    """Return what one window gave.

    Returns:
        ``step_ms``: milliseconds per step; ``idle``: share of time in which the device had no step to work on;
        ``gap_ms``: milliseconds of that between two steps. The last two are NaN where there are no marks.
    """
    for _ in range(WARM_STEPS):
        compute.touch(next(batches))
        compute.work(count)
    compute.wait()
    marks = []
    started = time.perf_counter()
    for _ in range(steps):
        compute.touch(next(batches))
        first = compute.mark()
        compute.work(count)
        marks.append((first, compute.mark()))
    compute.wait()
    step_ms = (time.perf_counter() - started) * 1e3 / steps
    whole = compute.between_ms(marks[0][0], marks[-1][1])
    worked = sum(compute.between_ms(first, last) for first, last in marks)
    idle = max(0.0, 1 - worked / whole) if whole > 0 else float("nan")
    return {"step_ms": step_ms, "idle": idle, "gap_ms": idle * whole / (steps - 1)}


def _summary(windows: Sequence[dict[str, float]]) -> dict[str, Any]:
    marked = [taken for taken in windows if not isnan(taken["idle"])]
    summary: dict[str, Any] = {"step_ms": spread([taken["step_ms"] for taken in windows])}
    if marked:
        summary["idle"] = spread([taken["idle"] for taken in marked])
        summary["gap_ms"] = spread([taken["gap_ms"] for taken in marked])
    return summary
