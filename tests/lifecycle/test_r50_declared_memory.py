"""R50: the worst case is told before anything is read, and what a loader and its processes take stays within it.

What is measured is the whole tree of processes, from outside: the memory of each, shared pages in equal parts, every
few milliseconds; and the highest value that the system has noted for the first of them.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from declared_program import HOARDING, LARGEST, MIB, PLANS, TOO_LARGE
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data import Dataset

LIMIT_MIB = 128
PROGRAM = Path(__file__).parent / "declared_program.py"
SAMPLE_S = 0.01

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="only Linux tells what is shared")


@dataclass
class Measured:
    """What one run declared, held and took.

    Attributes:
        declared: Host bytes, and what it said; as printed by the program.
        held: What it counted itself.
        growth: Bytes that all its processes together took more than the first one before it was opened.
    """

    declared: dict[str, Any]
    held: dict[str, Any]
    growth: int


def resident(pid: int) -> int:
    """Return the bytes of a process in memory, its share of those that others use too; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
    except OSError:
        return 0


def tree(pid: int) -> Iterator[int]:
    """Yield a process and all that it has started."""
    yield pid
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from tree(int(child))
    except OSError:
        return  # it has ended meanwhile


def measured(plan: str, limit_mib: int) -> Measured:
    """Run a plan in a process of its own and measure it."""
    with running(plan, limit_mib) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        declared = json.loads(process.stdout.readline())
        before = resident(process.pid)
        lines: list[str] = []
        reading = Thread(target=lambda output: lines.append(output.readline()), args=(process.stdout,))
        reading.start()
        process.stdin.write("go\n")
        process.stdin.flush()
        highest = before
        while reading.is_alive():
            highest = max(highest, sum(map(resident, tree(process.pid))))
            reading.join(SAMPLE_S)
        assert process.wait(20) == 0
    held = json.loads(lines[0])
    return Measured(declared, held, max(highest - before, held["growth"]))


@contextmanager
def running(plan: str, limit_mib: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(PROGRAM), plan, str(limit_mib)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        with process:
            yield process
    finally:
        process.kill()


@needs_proc
@pytest.mark.parametrize("plan", sorted(set(PLANS) - {TOO_LARGE, HOARDING}))
def test_r50_rows_stay_within_the_limit_and_processes_within_what_was_declared(plan: str) -> None:
    found = measured(plan, LIMIT_MIB)
    assert found.held["elements"] > 2
    assert found.held["peak"] <= found.declared["rows"] <= 1.25 * LIMIT_MIB * MIB, found
    assert found.growth <= 1.1 * found.declared["host"], found
    assert found.growth > 0.15 * found.declared["host"], "a bound so far away says nothing"


@needs_proc
def test_r50_a_record_larger_than_the_limit_is_there_four_times_at_most() -> None:
    found = measured(TOO_LARGE, 64)
    assert "read alone" in found.declared["text"]
    assert found.held["peak"] <= found.declared["rows"] + 4 * LARGEST, found
    assert found.growth <= 1.1 * (found.declared["host"] + 4 * LARGEST), found


@needs_proc
def test_r50_what_a_function_keeps_for_itself_is_not_in_the_bound_and_is_seen_by_the_measurement() -> None:
    found = measured(HOARDING, 64)
    assert "memory that user functions keep" in found.declared["text"]
    assert found.growth > 1.3 * found.declared["host"], found


# -- told before anything is read


def test_r50_explain_tells_host_and_device_before_anything_is_read() -> None:
    dataset = (
        Dataset.from_tfrecord("s3://no-such-bucket/train-*.tfrecord")
        .parse_example({"x": asd.FixedLen((1024, 4), np.float32)})
        .batch(8)
        .to_device("cpu", depth=2)
    )
    text = dataset.explain(memory_limit="64MB")
    assert "worst case: 106 MiB host\n" in text
    assert "64 MiB  rows, in queues and buffers (the memory limit)\n" in text
    assert "slots: 2 × 128 KiB = 256 KiB in host memory, and 256 KiB on cpu" in text


def test_r50_open_logs_the_bound_once_before_the_start(caplog: pytest.LogCaptureFixture) -> None:
    dataset = Dataset.from_tfrecord("/no/such/folder/*.tfrecord")
    with caplog.at_level(logging.INFO, "aiostream_data"), pytest.raises(asd.AiostreamError):
        dataset.open(memory_limit="64MB")
    said = [record.getMessage() for record in caplog.records if record.name == "aiostream_data"]
    assert len(said) == 1
    assert said[0] == str(dataset.memory_bound(memory_limit="64MB"))


ARRAYS = {"image": np.zeros((300, 8, 8), np.float32), "label": np.arange(300)}

SMALL: dict[str, Callable[[], Dataset[Any]]] = {
    "range": lambda: Dataset.range(100).batch(10),
    "shuffled slices": lambda: Dataset.from_tensor_slices(ARRAYS).shuffle(100, seed=1).batch(32).prefetch(4),
    "cached": lambda: Dataset.from_tensor_slices(ARRAYS).cache().repeat(3).batch(7, drop_remainder=True),
    "zipped": lambda: Dataset.zip((Dataset.range(500), Dataset.range(500))).enumerate().batch(50),
    "joined": lambda: Dataset.range(1_000).concatenate(Dataset.range(5)).shuffle(2_000, seed=1).batch(100),
    "slots": lambda: Dataset.from_tensor_slices(ARRAYS).batch(32).to_device("cpu"),
    "few large ones": lambda: Dataset.from_tensor_slices(np.zeros((6, 100_000))).shuffle(6, seed=1).prefetch(2),
    "nothing": lambda: Dataset.range(0).batch(3),
}


@pytest.mark.parametrize("name", SMALL)
def test_r50_the_bound_is_below_the_limit_where_the_plan_shows_that_it_needs_less(name: str) -> None:
    dataset = SMALL[name]()
    bound = dataset.memory_bound(memory_limit="1GB")
    assert bound.rows < 64 * MIB
    with leaves_nothing(), dataset.open(memory_limit="1GB") as loader:
        for number, _ in enumerate(loader):
            if number < 3:
                time.sleep(0.02)  # so that all runs as far ahead as it does
        assert loader.stats().memory.peak <= bound.rows
