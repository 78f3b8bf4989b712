"""R12: twenty epochs over shards take no more memory than two, in one loader and with a loader for each.

Over 1 GB of shards with ``ASD_FULL_SIZE=1``. Otherwise over 32 MB, of which an epoch is over before every thread
has run often enough: so as many epochs go before, and the allocator has one arena for all threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import aiostream_data as asd

KIB, MIB = 1 << 10, 1 << 20
FULL_SIZE = bool(os.environ.get("ASD_FULL_SIZE"))
TOTAL = (1_000 if FULL_SIZE else 32) * MIB
SHARDS, EPOCHS = 8, 20
BEFORE = 1 if FULL_SIZE else EPOCHS
"""Epochs that go before the first one whose memory counts."""

READ = """
import json, os, sys
from aiostream_data import Dataset

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

how, epochs, *paths = sys.argv[1:]
epochs = int(epochs)
dataset = Dataset.from_tfrecord(paths, cycle_length=4, shuffle_shards=True, seed=1).map(len).shuffle(500, seed=1)
counted = dataset.batch(100)
sizes, found = [], []
if how == "one loader":
    with counted.repeat(epochs).open(memory_limit="16MB") as loader:
        per_epoch = sum(1 for _ in counted)
        for number, batch in enumerate(loader, 1):
            if number % per_epoch == 0:
                sizes.append(resident())
else:
    for epoch in range(epochs):
        with counted.open(memory_limit="16MB", epoch=epoch) as loader:
            for batch in loader:
                pass
        sizes.append(resident())
print(json.dumps(sizes))
"""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Write records of 1 to 64 KiB; return the paths."""
    folder = tmp_path_factory.mktemp("shards")
    paths = [str(folder / f"{number}.tfrecord") for number in range(SHARDS)]
    for path in paths:
        with asd.TFRecordWriter(path) as writer:
            written = 0
            while written < TOTAL // SHARDS:
                nbytes = KIB << (written // KIB % 7)
                writer.write(bytes(nbytes))
                written += nbytes
    return paths


@pytest.mark.parametrize("how", ["one loader", "a loader for each epoch"])
def test_r12_memory_after_epoch_two_is_that_after_epoch_twenty(how: str, shards: list[str]) -> None:
    # Beside other tests, the allocator can keep more at any moment. A leak shows in both runs.
    runs: list[list[int]] = []
    while len(runs) < 2 and not any(map(stays, runs)):
        runs.append(epoch_sizes(how, shards))
    assert any(map(stays, runs)), [", ".join(f"{size / MIB:.1f}" for size in sizes) for sizes in runs]


def epoch_sizes(how: str, shards: list[str]) -> list[int]:
    """Return the memory of a process after each of its epochs, in bytes."""
    command = [sys.executable, "-W", "error", "-c", READ, how, str(BEFORE + EPOCHS - 1), *shards]
    environment = os.environ | ({} if FULL_SIZE else {"MALLOC_ARENA_MAX": "1"})
    limit_s = 900 if FULL_SIZE else 100
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    sizes: list[int] = json.loads(done.stdout)[BEFORE:]
    return sizes


def stays(sizes: list[int]) -> bool:
    """Return True if the memory does not grow from the first epochs to the last.

    What is in flight differs from one moment to the next, so the least of several epochs is looked at. The allocator
    takes 1.8 MB more in twenty small epochs, and 2.5 MB in a hundred.
    """
    growth = min(sizes[-6:]) - min(sizes[:6])
    return growth <= max(0.02 * sizes[0], 0 if FULL_SIZE else 3 * MIB)
