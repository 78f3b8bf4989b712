"""R28: what 8 processes left is taken up by 1, 2, 3, 5 or 16: the same rows, drawn alike, in the same order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RANKS = Path(__file__).with_name("forked_ranks.py")
FILES, LINES = 6, 200
GLOBAL_BATCH = 32
BATCHES = 9
"""Taken by each of 8 ranks before the state is saved."""


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("lines")
    for number in range(FILES):
        (folder / f"{number}.txt").write_text("".join(f"{number}-{line}\n" for line in range(LINES)))
    return str(folder / "*.txt")


def run_ranks(world: int, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Run all ranks as processes, and return what each has answered."""
    command = [sys.executable, str(RANKS), "rank_program", str(world), json.dumps(request)]
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # no threads before a fork
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    ranks = json.loads(ended.stdout)
    assert [code for code, _, _ in ranks] == [0] * world, ranks
    return [answer for _, answer, _ in ranks]


def in_global_order(answers: list[dict[str, Any]]) -> list[str]:
    """Return one row of each rank after the other."""
    ranks = [[row for batch in answer["rows"] for row in batch] for answer in answers]
    return [row for group in zip(*ranks, strict=True) for row in group]


def request_for(pattern: str, world: int, batches: int | None = None, state: Any = None) -> dict[str, Any]:
    batch_size = GLOBAL_BATCH // world
    allow = [] if batch_size * world == GLOBAL_BATCH else ["batch.batch_size"]
    return {"pattern": pattern, "batch_size": batch_size, "batches": batches, "state": state, "allow": allow}


@pytest.fixture(scope="module")
def whole(pattern: str) -> list[str]:
    """All rows as a single process reads them."""
    return in_global_order(run_ranks(1, request_for(pattern, 1)))


@pytest.fixture(scope="module")
def saved(pattern: str, whole: list[str]) -> dict[str, Any]:
    """The state of 8 ranks that have taken some batches."""
    answers = run_ranks(8, request_for(pattern, 8, BATCHES))
    assert in_global_order(answers) == whole[: GLOBAL_BATCH * BATCHES]
    for place in ("position", "rows"):
        assert all(answer["state"][place] == answers[0]["state"][place] for answer in answers)
    state: dict[str, Any] = answers[0]["state"]
    return state


@pytest.mark.parametrize("world", [1, 2, 3, 5, 16])
def test_r28_any_number_of_processes_goes_on_where_eight_were(
    world: int, pattern: str, whole: list[str], saved: dict[str, Any]
) -> None:
    rest = in_global_order(run_ranks(world, request_for(pattern, world, state=saved)))
    epoch = len(whole) // 2
    first, second = whole[GLOBAL_BATCH * BATCHES : epoch], whole[epoch:]
    assert rest == first[: len(first) // world * world] + second[: len(second) // world * world]
