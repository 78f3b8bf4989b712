"""When the training process is killed its workers end, whatever they are doing, and no memory stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from parent_program import CONDITIONS

PROGRAM = Path(__file__).with_name("parent_program.py")
NAMED_MEMORY = Path("/dev/shm")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # a process whose new parent has yet to look at it


def gone_within(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(is_running, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("condition", CONDITIONS)
def test_r08_workers_end_within_five_seconds_of_a_killed_parent(condition: str, tmp_path: Path) -> None:
    named = set(NAMED_MEMORY.iterdir())
    program = subprocess.Popen([sys.executable, PROGRAM, condition, tmp_path], stdout=subprocess.PIPE, text=True)
    with program:
        assert program.stdout is not None
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_running, pids))
        forks = [int(program.stdout.readline())] if condition == "forked" else []
        program.send_signal(signal.SIGKILL)
        program.wait(10)
        try:
            assert gone_within(pids, 5.0)
        finally:
            assert all(map(is_running, forks))
            for pid in filter(is_running, pids + forks):
                os.kill(pid, signal.SIGKILL)
    assert set(NAMED_MEMORY.iterdir()) <= named


def test_r08_the_next_run_starts_clean(tmp_path: Path) -> None:
    test_r08_workers_end_within_five_seconds_of_a_killed_parent("asleep", tmp_path)
    done = subprocess.run([sys.executable, PROGRAM, "epoch"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("999000\n", "", 0)
