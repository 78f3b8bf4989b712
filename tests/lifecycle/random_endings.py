"""End loaders at random moments, in every way and in each stage, and say what was left of each.

:func:`carried_out` runs endings of one kind in a process of its own, so that nothing else's threads and files are
counted. That is this file as a program, which prints a line of JSON for each ending. What hangs ends the program, with
the stacks of its threads on standard error.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from endings_inside import INSIDE, Moment, ends_on_device
from endings_outside import OUTSIDE, Program, end_a_program
from leaks import leaves_nothing
from memory_budgets import living_budgets
from pipelines import EVERY_STAGE, FAILING_STAGES, OTHER_STAGES, PROCESS_STAGES, STAGES, write_shards

from aiostream_data import Dataset
from aiostream_data._engine.diagnosis.watchdog import LOGGER
from aiostream_data._engine.memory.budget import Budget

HANG_S = 20.0
"""Seconds after which an ending counts as a hang; everything has to be over after two."""

STALL_AFTER_S = 0.01
"""Where it is told what is waited for."""

START_S, ENDING_S = 60.0, 2.0
"""Seconds that starting, and an ending on average, may take on a busy machine; most take a tenth of that."""


@dataclass(frozen=True)
class Draw:
    """One ending: how, of which stage, when.

    Attributes:
        number: Of the draw; seeds what else is random about it.
        after_s: Seconds from the opening.
        repeated: The data set is repeated for ever.
        watched: It is told in the log what is waited for, as soon as a little is waited.
    """

    number: int
    ending: str
    stage: str
    after_s: float
    repeated: bool
    watched: bool

    def dataset(self, shards: list[str]) -> Dataset[Any]:
        """Return the data set, which ends by itself only if it is not repeated."""
        dataset = EVERY_STAGE[self.stage](shards)
        return dataset.repeat() if self.repeated and not ends_on_device(dataset) else dataset


@dataclass(frozen=True)
class Result:
    """What became of one ending.

    Attributes:
        took_s: Seconds from its moment until nothing was left.
        fault: What was wrong; empty when nothing was.
    """

    draw: Draw
    took_s: float
    fault: str


def draws(seed: int, endings: list[str], stages: list[str]) -> Iterator[Draw]:
    """Yield draws for ever; any run of them has every stage and every ending about equally often."""
    rng = random.Random(seed)
    rng.shuffle(endings := list(endings))
    rng.shuffle(stages := list(stages))
    number = 0
    while True:
        for shift in rng.sample(range(len(endings)), len(endings)):
            for place, stage in enumerate(stages):
                ending = endings[(place + shift) % len(endings)]
                repeated, watched = rng.random() < 0.5, rng.random() < 0.3
                yield Draw(number, ending, stage, _moment(rng, stage), repeated, watched)
                number += 1


def _moment(rng: random.Random, stage: str) -> float:
    """Return a moment at which a run of the stage is being opened, fills its buffers, or gives elements."""
    if rng.random() < 0.1:
        return 0.0
    slowest = 0.0 if stage in PROCESS_STAGES else -1.0
    return float(10 ** rng.uniform(-4, slowest))


def end_inside(draw: Draw, shards: list[str], folder: str) -> Result:
    """Carry out an ending in this process."""
    gc.collect()
    faulthandler.dump_traceback_later(HANG_S, exit=True)  # on a thread of its own, which a fork would not have
    options = {"stall_after": STALL_AFTER_S} if draw.watched else {}
    moment = Moment(draw.after_s, random.Random(draw.number), **options)
    fault, before = "", living_budgets()
    try:
        with leaves_nothing(folders=[folder]), _nothing_unraisable(draw.ending):
            INSIDE[draw.ending](draw.dataset(shards), moment)
        _check_budgets(before)
    except BaseException as error:  # that is what is reported
        fault = f"{type(error).__name__}: {error}"
    faulthandler.cancel_dump_traceback_later()
    return Result(draw, time.perf_counter() - (moment.reached_at or moment.began_at), fault)


@contextmanager
def _nothing_unraisable(ending: str) -> Iterator[None]:
    """Raise AssertionError if an exception was lost in a finaliser or a thread, as of coroutines never awaited."""
    lost: list[str] = []

    def note(unraisable: sys.UnraisableHookArgs) -> None:
        # An interrupt may come inside a finaliser, where Python prints and drops it.
        if not ("interrupt" in ending and unraisable.exc_type is KeyboardInterrupt):
            lost.append(f"{unraisable.err_msg} {unraisable.object!r}: {unraisable.exc_value!r}")

    before = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = note
    threading.excepthook = lambda failed: lost.append(f"thread {failed.thread}: {failed.exc_value!r}")
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook, threading.excepthook = before
    assert not lost, "\n".join(lost)


def _check_budgets(before: set[Budget]) -> None:
    """Raise AssertionError if a new budget is charged with bytes that nothing holds any more."""
    gc.collect()  # what was in a cycle with the loader
    charged = [one.used for one in living_budgets() - before if one.used]
    assert not charged, f"{charged} bytes stay charged"


def end_outside(draw: Draw, shards: list[str], folder: str) -> Result:
    """Carry out an ending of a whole process.

    Raises:
        Program: In the fork that becomes that process.
    """
    took_s, fault = end_a_program(OUTSIDE[draw.ending], draw.dataset(shards), draw.after_s, Path(folder))
    return Result(draw, took_s, fault)


def _warm_up(shards: list[str]) -> None:
    """Let everything be imported: Python complains, or loses its exit code, when it is interrupted while it imports."""
    for make in (STAGES | OTHER_STAGES | FAILING_STAGES).values():
        with make(shards).open() as loader:
            next(iter(loader))
    for stage in ("process map", "in a process"):
        with PROCESS_STAGES[stage](shards).open() as loader:
            next(iter(loader))
            loader.dump()


KINDS: dict[str, list[str]] = {
    "inside": list(INSIDE),
    "outside": list(OUTSIDE),
    "SIGINT": [name for name, ending in OUTSIDE.items() if ending.sent == signal.SIGINT],
    "SIGTERM": [name for name, ending in OUTSIDE.items() if ending.sent == signal.SIGTERM],
}
"""Endings inside a process that goes on, those of a whole process, and some of the latter."""

EVERY_ENDING = len(EVERY_STAGE) * (len(INSIDE) + len(OUTSIDE))
"""So many endings are every ending in every stage, where each kind has its share."""


def carried_out(kind: str, seed: int, count: int, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Carry out ``count`` endings in a process of their own.

    Returns:
        Their results, as dicts, and what that process printed as errors.
    """
    arguments = [kind, str(seed), str(count), str(folder)]
    command = [sys.executable, "-X", "faulthandler", "-W", "error", __file__, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # no threads before a fork
    limit_s = START_S + count * ENDING_S
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit_s, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def main(kind: str, seed: int, count: int, folder: str) -> None:
    """Carry out ``count`` endings and print their results."""
    carry_out = end_inside if kind == "inside" else end_outside
    logging.getLogger(LOGGER).addHandler(logging.NullHandler())
    shards = write_shards(Path(folder))
    _warm_up(shards)
    temporary = Path(folder) / "temporary"
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    gc.collect()
    gc.freeze()  # what is imported takes no part in thousands of collections
    for draw, _ in zip(draws(seed, KINDS[kind], list(EVERY_STAGE)), range(count), strict=False):
        sys.stdout.write(json.dumps(asdict(carry_out(draw, shards, str(temporary)))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    except Program as program:
        program.run()
