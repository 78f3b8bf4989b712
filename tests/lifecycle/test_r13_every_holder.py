"""R13: whatever holds rows keeps to the limit and one record: maps on threads and in processes, shuffles, interleaves.

At the size of the requirement (256 MB, records of 1 KB to 50 MB) with ``ASD_FULL_SIZE=1``; a quarter of it otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from memory_program import MIB, PLANS

import aiostream_data as asd
from aiostream_data import Dataset

SCALE = 1 if os.environ.get("ASD_FULL_SIZE") else 4
LIMIT_MIB, LARGEST = 256 // SCALE, 50 * MIB // SCALE

LARGE_ARRAYS_GO_BACK = {"MALLOC_MMAP_THRESHOLD_": str(MIB)}
"""What the doctor advises where rows are of many sizes: arrays that are dropped go back to the system at once, instead
of staying in the arena of the thread that made them, where only arrays of their size or less fit in again."""

RUN = """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
import memory_program
warnings.simplefilter("error")
dataset = memory_program.PLANS[sys.argv[2]](sys.argv[4:])
print(json.dumps(memory_program.run(dataset, int(sys.argv[3]) << 20, 0.0005)))
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write records of 1 KiB up to ``LARGEST``, a large one after every few small ones; return the path."""
    path = str(tmp_path_factory.mktemp("mixed") / "mixed.tfrecord")
    sizes = [LARGEST, *[1024 << step for step in range(12)], LARGEST // 2, LARGEST // 5, 1024, LARGEST, 70_000]
    with asd.TFRecordWriter(path) as writer:
        for nbytes in [size for size in sizes if size <= LARGEST]:
            writer.write(bytes(nbytes))
    return path


@pytest.mark.parametrize("plan", sorted(set(PLANS) - {"read gzip"}))
def test_r13_peak_stays_within_the_limit_and_one_record(mixed: str, plan: str) -> None:
    command = [sys.executable, "-c", RUN, str(Path(__file__).parent), plan, str(LIMIT_MIB), *[mixed] * 3]
    environment = os.environ | LARGE_ARRAYS_GO_BACK
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"]
    assert found["peak"] <= LIMIT_MIB * MIB + LARGEST, found
    # One record passes alone, and what a function makes of it.
    assert found["growth"] <= 1.1 * LIMIT_MIB * MIB + 2 * LARGEST, found


def test_r13_the_split_by_holder_says_where_the_bytes_are(tmp_path: Path) -> None:
    path = str(tmp_path / "data.tfrecord")
    with asd.TFRecordWriter(path) as writer:
        for _ in range(2_000):
            writer.write(bytes(2_000))
    dataset = Dataset.from_tfrecord(path).map(len).shuffle(1_000, seed=1).batch(10)
    with dataset.open() as loader:
        first = iter(loader)
        next(first)
        held = loader.stats().memory
        assert held.holders["shuffle"][1] > 8_000
        assert sum(used for used, _ in held.holders.values()) <= held.peak
        for _ in first:
            pass
        assert "shuffle" in str(loader.report()) or held.holders["shuffle"][1] < held.peak / 50
    assert {used for used, _ in loader.stats().memory.holders.values()} == {0}
