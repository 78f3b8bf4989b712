"""A program ends soon, with the right exit code and without complaints, however it ends (R07, R08)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import PROCESSES

PROGRAMS = Path(__file__).with_name("programs.py")
EXIT_S = 3.0


def _told(errors: str) -> str:
    """Return what a program told, without asyncio's notes that a step of an event loop was slow on a busy machine."""
    return "".join(line for line in errors.splitlines(keepends=True) if not line.startswith("Executing <"))


@contextmanager
def _running(program: str, stage: str, shards: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONWARNINGS": "error"}
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", str(PROGRAMS), program, stage, *shards],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        yield process
    finally:
        process.kill()
        process.communicate()
        _wait_until_the_group_is_gone(process.pid)


def _wait_until_the_group_is_gone(group: int) -> None:
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)  # nobody tells a process when the children of another have ended
    os.killpg(group, signal.SIGKILL)
    raise AssertionError("child processes were left behind")


STAGES_TO_END = ["the whole chain", "slow generator", PROCESSES]


@pytest.mark.parametrize(
    ("program", "stage"), [*(("leave_open", stage) for stage in STAGES_TO_END), ("leave_iterator", "thread map")]
)
def test_a_program_that_ends_with_a_loader_open_ends_silently(
    program: str, stage: str, shards: list[str], tmp_path: Path
) -> None:
    with _running(program, stage, shards, tmp_path) as process:
        _, errors = process.communicate(timeout=EXIT_S)
        assert _told(errors) == ""
        assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_the_exit_code_of_a_program_that_fails_is_its_own(shards: list[str], tmp_path: Path) -> None:
    with _running("fail", "the whole chain", shards, tmp_path) as process:
        _, errors = process.communicate(timeout=EXIT_S)
        assert _told(errors) == ""
        assert process.returncode == 7


@pytest.mark.parametrize(
    ("program", "stage"), [*(("train", stage) for stage in STAGES_TO_END), ("train_async", "the whole chain")]
)
def test_ctrl_c_ends_a_program_as_ctrl_c_does(program: str, stage: str, shards: list[str], tmp_path: Path) -> None:
    with _running(program, stage, shards, tmp_path) as process:
        time.sleep(random.Random(stage).random() * 0.1)  # at some moment
        os.killpg(process.pid, signal.SIGINT)  # the terminal sends it to every process of the group
        _, errors = process.communicate(timeout=EXIT_S)
        # asyncio.run() shows the CancelledError that it makes of the interrupt, too.
        assert errors.count("Traceback") == (2 if program == "train_async" else 1), errors
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert process.returncode == -signal.SIGINT
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stage", ["the whole chain", PROCESSES])
def test_sigterm_ends_a_program_at_once_and_its_worker_processes_with_it(
    stage: str, shards: list[str], tmp_path: Path
) -> None:
    with _running("train", stage, shards, tmp_path) as process:
        process.terminate()
        _, errors = process.communicate(timeout=EXIT_S)
        assert _told(errors) == ""
        assert process.returncode == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_r08_worker_processes_end_when_their_parent_is_killed(shards: list[str], tmp_path: Path) -> None:
    with _running("train", PROCESSES, shards, tmp_path) as process:
        process.kill()
        process.communicate(timeout=EXIT_S)
