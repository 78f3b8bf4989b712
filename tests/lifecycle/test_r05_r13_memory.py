"""R05, R13: memory stays within its limit, and does not grow with the number of loaders."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import leaks
import numpy as np
import pytest
from leaks import leaves_nothing

import aiostream_data as asd
from aiostream_data import Dataset

KIB, MIB = 1 << 10, 1 << 20


LEAVE = """
import sys, pathlib, os
sys.path[:0] = sys.argv[1].split(os.pathsep)
from pipelines import STAGES
from leaks import leaves_nothing

resident = []
with leaves_nothing():
    for _ in range(210):
        with STAGES[sys.argv[2]](sys.argv[3:]).open(memory_limit="64MB") as loader:
            for _ in loader:
                break
        resident.append(int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
# Minima of many cycles each, as free memory that allocators keep comes and goes; the first cycles fill their pools.
print((min(resident[120:]) - min(resident[30:120])) / 90)
"""


@pytest.mark.parametrize("stage", ["the whole chain", "interleave of generators", "coroutine map"])
def test_r05_leaving_after_one_batch_again_and_again_leaves_nothing(stage: str, shards: list[str]) -> None:
    # A process of its own: what other tests left in the allocator's pools is not what is measured.
    folders = os.pathsep.join([str(Path(__file__).parent), str(Path(leaks.__file__).parent)])
    command = [sys.executable, "-W", "error", "-c", LEAVE, folders, stage, *shards]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    slope = float(done.stdout)
    assert slope < 50 * KIB, f"{slope / KIB:.0f} KiB a cycle"


def _write_mixed(folder: Path, largest: int, total: int) -> tuple[str, int]:
    """Write records of 1 KiB up to ``largest`` bytes, small and large ones mixed; return path and largest size."""
    rng = np.random.default_rng(13)
    path = str(folder / "mixed.tfrecord")
    written = 0
    with asd.TFRecordWriter(path) as writer:
        while written < total:
            nbytes = largest if written == 0 else int(KIB * (largest / KIB) ** (rng.random() ** 2))
            writer.write(bytes(nbytes))
            written += nbytes
    return path, largest


def _peak_and_rows(dataset: Dataset[Any], limit: int, pause_s: float) -> tuple[int, int]:
    with dataset.open(memory_limit=limit) as loader:
        rows = 0
        for _ in loader:
            rows += 1
            time.sleep(pause_s)  # a consumer slower than the pipeline, which therefore fills up
        stats = loader.stats()
    assert stats.memory.used <= limit
    return stats.memory.peak, rows


@pytest.mark.parametrize("cycle_length", [1, 4])
def test_r13_mixed_records_stay_within_the_limit_and_one_record(tmp_path: Path, cycle_length: int) -> None:
    path, largest = _write_mixed(tmp_path, largest=6 * MIB, total=48 * MIB)
    dataset = Dataset.from_tfrecord([path] * 4, cycle_length=cycle_length)
    with leaves_nothing():
        peak, rows = _peak_and_rows(dataset, 32 * MIB, 0.001)
    assert rows % 4 == 0
    assert peak <= 32 * MIB + largest


def test_r13_at_full_scale(tmp_path: Path) -> None:
    path, largest = _write_mixed(tmp_path, largest=50 * MIB, total=200 * MIB)
    dataset = Dataset.from_tfrecord([path] * 3, cycle_length=2, verify=False)
    with leaves_nothing():
        peak, _ = _peak_and_rows(dataset, 256 * MIB, 0.0)
    assert peak <= 256 * MIB + largest


def test_r13_a_record_larger_than_the_limit_passes_alone_with_a_warning(tmp_path: Path) -> None:
    path, largest = _write_mixed(tmp_path, largest=6 * MIB, total=12 * MIB)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        peak, rows = _peak_and_rows(Dataset.from_tfrecord([path, path], cycle_length=2), 2 * MIB, 0.0)
    assert rows > 2
    assert [str(warning.message).count("more than the memory limit") for warning in caught] == [1]
    assert peak <= 2 * MIB + 3 * largest


STREAM = """
import sys, aiostream_data as asd
from aiostream_data import Dataset

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

path, kind, limit = sys.argv[1], sys.argv[2], 64 << 20
dataset = Dataset.from_tfrecord([path] * int(sys.argv[3]), cycle_length=4)
if kind == "batched":
    dataset = dataset.shuffle(1_000, seed=1).batch(64).prefetch(2)
warm = Dataset.from_tfrecord([path]).take(10)
for _ in warm:
    pass
before, nbytes = status("VmRSS"), 0
with dataset.open(memory_limit=limit) as loader:
    for element in loader:
        nbytes += len(element) if kind == "records" else sum(map(len, element))
assert nbytes >= 20 * limit, nbytes
print((status("VmHWM") - before) / limit)
"""


@pytest.mark.parametrize("kind", ["records", "batched"])
def test_streaming_twenty_times_the_limit_keeps_the_process_within_it(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "data.tfrecord")
    with asd.TFRecordWriter(path) as writer:
        for _ in range(1_024):
            writer.write(bytes(32 * KIB))
    command = [sys.executable, "-c", STREAM, path, kind, "41"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    # Beside the rows there is what the allocator keeps of freed ones: more on a machine that others load.
    assert float(done.stdout) <= 1.25, f"grew by {float(done.stdout):.0%} of the limit"
