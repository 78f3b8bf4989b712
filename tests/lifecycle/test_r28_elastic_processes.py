"""R28 with a mixture: 8 processes save, and 1, 2, 3, 5 or 16 processes go on with the same global batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import elastic_program as program
import pytest

import aiostream_data as asd

GLOBAL_BATCH = 240
"""Rows of a step on all ranks together; every number of ranks here divides it."""

STEPS_BEFORE = 4
"""Taken by 8 ranks before they save, of 10 steps in all."""

RANKS = Path(__file__).with_name("forked_ranks.py")
Answers = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("lines")
    program.write_files(path)
    return str(path)


def run_ranks(world: int, folder: str, *, batches: int | None = None, state: Any = None) -> Answers:
    """Run every rank as a process of its own, which finds out from its environment which one it is."""
    asked = {"folder": folder, "batch_size": GLOBAL_BATCH // world, "batches": batches, "state": state}
    command = [sys.executable, str(RANKS), "elastic_program", str(world), json.dumps(asked)]
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # no threads before a fork
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    answers: Answers = []
    for rank, (code, answer, errors) in enumerate(json.loads(ended.stdout)):
        assert code == 0, errors
        assert world == 1 or f"rank {rank} of {world}" in errors, errors
        answers.append(answer)
    assert len(answers) == world
    return answers


def global_batches(answers: Answers, what: str = "batches") -> list[list[str]]:
    """Return the rows of every step on all ranks: row 0 of each rank, then row 1 of each, and so on."""
    steps = zip(*(answer[what] for answer in answers), strict=True)
    return [[row for group in zip(*step, strict=True) for row in group] for step in steps]


def hash_of_all(answers: Answers) -> str:
    return asd.combine_hashes(answer["hash"] for answer in answers)


@pytest.fixture(scope="module")
def unbroken(folder: str) -> dict[str, Any]:
    """What a single process gives that reads everything."""
    (answer,) = run_ranks(1, folder)
    return answer


@pytest.fixture(scope="module")
def eight(folder: str) -> Answers:
    """What 8 ranks have received when they save."""
    return run_ranks(8, folder, batches=STEPS_BEFORE)


def test_r28_eight_processes_share_the_batches_of_one(unbroken: dict[str, Any], eight: Answers) -> None:
    assert [len(batch) for batch in unbroken["batches"]] == [GLOBAL_BATCH] * (program.ROWS // GLOBAL_BATCH)
    assert global_batches(eight) == unbroken["batches"][:STEPS_BEFORE]
    assert global_batches(eight, "origins") == unbroken["origins"][:STEPS_BEFORE]


@pytest.mark.parametrize("world", [1, 2, 3, 5, 16])
def test_r28_any_number_of_processes_goes_on_with_the_same_global_batches(
    world: int, folder: str, unbroken: dict[str, Any], eight: Answers
) -> None:
    rest = run_ranks(world, folder, state=[answer["state"] for answer in eight])
    assert global_batches(rest) == unbroken["batches"][STEPS_BEFORE:]
    assert global_batches(rest, "origins") == unbroken["origins"][STEPS_BEFORE:]
    assert hash_of_all(rest) == unbroken["hash"]


@pytest.mark.parametrize("world", [1, 5])
def test_r28_one_rank_s_state_is_enough_to_go_on_with_the_rows(
    world: int, folder: str, unbroken: dict[str, Any], eight: Answers
) -> None:
    rest = run_ranks(world, folder, state=eight[5]["state"])
    rows = Counter(row for part in (eight, rest) for answer in part for batch in answer["batches"] for row in batch)
    assert rows == Counter(row for batch in unbroken["batches"] for row in batch)
    assert global_batches(rest) == unbroken["batches"][STEPS_BEFORE:]


def test_r28_runs_that_change_their_size_twice_show_the_hash_of_one_that_never_did(
    folder: str, unbroken: dict[str, Any], eight: Answers
) -> None:
    three = run_ranks(3, folder, batches=2, state=[answer["state"] for answer in eight])
    two = run_ranks(2, folder, state=[answer["state"] for answer in three])
    assert global_batches(two) == unbroken["batches"][STEPS_BEFORE + 2 :]
    assert hash_of_all(two) == unbroken["hash"]
