"""What the allocator holds: fragmentation is told apart from memory in use, in a process that really has it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aiostream_data.cli import doctor
from aiostream_data.metrics import allocator
from aiostream_data.metrics.allocator import MIB, AllocatorState

FRAGMENT = """
import sys
from aiostream_data.cli.doctor import diagnose
from aiostream_data.metrics.allocator import allocator_state, trim

before = allocator_state()
if before is None:
    sys.exit("no glibc")
assert before.advice is None, before
full = [bytes(60_000) for _ in range(4_000)]  # too small to be mapped by themselves
assert allocator_state().advice is None, allocator_state()  # in use: no fragmentation, however much it is
kept = full[::40]
del full
after = allocator_state()
assert after.arenas > 200 << 20 and after.live < 60 << 20, after
said = "\\n".join(diagnose())
trim()
trimmed = allocator_state()
assert trimmed.resident < after.resident - (150 << 20), (after, trimmed)
assert trimmed.advice is None, trimmed
print(said)
"""


@pytest.mark.skipif(allocator.allocator_state() is None, reason="only glibc says what its arenas hold")
def test_doctor_says_fragmentation_in_a_process_that_has_it_and_trimming_ends_it() -> None:
    done = subprocess.run([sys.executable, "-c", FRAGMENT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "memory: " in done.stdout
    assert "fragmentation: malloc's arenas hold 2" in done.stdout
    assert "MALLOC_ARENA_MAX=2" in done.stdout


OF_ARRAYS = """
import sys, threading
import numpy as np
from aiostream_data.metrics.allocator import allocator_state, trim

if allocator_state() is None:
    sys.exit("no glibc")
made = []
threads = [threading.Thread(target=lambda: made.append([np.ones(1_250) for _ in range(12_500)])) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
full = allocator_state()
assert full.live > 450 << 20 and full.kept < 20 << 20, full
kept = [array for arrays in made for array in arrays[::50]]
made.clear()
freed = allocator_state()
assert freed.live < 60 << 20 and freed.kept > 350 << 20, freed
assert freed.resident > full.resident - (100 << 20), (full, freed)
trim()
trimmed = allocator_state()
assert trimmed.kept < 100 << 20 and trimmed.resident < freed.resident - (300 << 20), (freed, trimmed)
assert abs(trimmed.live - freed.live) < 10 << 20, (freed, trimmed)
"""


@pytest.mark.skipif(allocator.allocator_state() is None, reason="only glibc says what its arenas hold")
def test_live_and_kept_bytes_are_told_apart_for_arrays_of_many_threads() -> None:
    command = [sys.executable, "-c", OF_ARRAYS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_is_advised_where_arenas_hold_what_is_in_use() -> None:
    assert AllocatorState(resident=900 * MIB, arenas=800 * MIB, live=700 * MIB, free=100 * MIB, mapped=0).advice is None
    assert AllocatorState(resident=300 * MIB, arenas=800 * MIB, live=200 * MIB, free=600 * MIB, mapped=0).advice is None


def test_free_memory_in_arenas_that_is_in_memory_is_fragmentation() -> None:
    state = AllocatorState(resident=900 * MIB, arenas=800 * MIB, live=200 * MIB, free=600 * MIB, mapped=0)
    assert state.advice is not None
    assert "hold 800 MiB, of which 200 MiB are live" in state.advice


def test_doctor_says_where_it_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "allocator_state", lambda: None)
    assert any("cannot be told" in line for line in doctor.diagnose())
