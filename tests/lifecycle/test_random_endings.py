"""Whatever ends a loader or its program, at whatever moment and in whatever stage, nothing is left two seconds later.

What ends how, and what is looked at, is in :mod:`endings_inside`, :mod:`endings_outside` and :mod:`random_endings`.
A usual run draws 125, among them every ending and every stage. With ``ASD_ENDINGS=1000`` in the environment so many are
drawn, with ``ASD_ENDINGS=all`` every ending in each stage, and ``ASD_ENDINGS_SEED`` draws others. A summary is printed
at the end of the run.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pipelines import EVERY_STAGE
from random_endings import ENDING_S, EVERY_ENDING, KINDS, START_S, carried_out
from run_summary import add_line

ENDINGS = int(os.environ.get("ASD_ENDINGS", "125").replace("all", str(EVERY_ENDING)))
SEED = int(os.environ.get("ASD_ENDINGS_SEED", "4"))
SHARE = {kind: len(EVERY_STAGE) * len(KINDS[kind]) / EVERY_ENDING for kind in ("inside", "outside")}
"""Of the endings, those of a loader in a process that goes on, and those of a whole process."""

SLOWEST_S = 8.0
"""From its moment, with processes that are still starting then, on a machine that has much other work to do."""


@pytest.mark.timeout(START_S + ENDINGS * ENDING_S)
@pytest.mark.parametrize("kind", SHARE)
def test_endings_at_random_moments_in_each_stage_leave_nothing(
    kind: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    count, started = round(ENDINGS * SHARE[kind]), time.monotonic()
    results, errors = carried_out(kind, SEED, count, tmp_path)
    add_line(pytestconfig, summary(kind, count, results, time.monotonic() - started))
    faults = [f"{result['draw']}: {result['fault']}" for result in results if result["fault"]]
    assert not faults, "\n".join(faults)
    assert errors == ""
    assert len(results) == count
    slowest = max(results, key=lambda result: result["took_s"])
    assert slowest["took_s"] < SLOWEST_S, slowest


def summary(kind: str, count: int, results: list[dict[str, Any]], took_s: float) -> str:
    """Return what happened, in a line: a hang ends the process that carries the endings out, and so the results."""
    draws = [result["draw"] for result in results]
    pairs = {(draw["ending"], draw["stage"]) for draw in draws}
    of_all = len(KINDS[kind]) * len(EVERY_STAGE)
    faults = sum(bool(result["fault"]) for result in results)
    times = sorted(result["took_s"] for result in results) or [0.0]
    return (
        f"{kind}: {len(results)} of {count} endings (seed {SEED}), {len(pairs)} of {of_all} pairs of ending and stage; "
        f"{len(results) < count:d} hangs, {faults} faults; until nothing was left: median "
        f"{times[len(times) // 2]:.3f} s, slowest {times[-1]:.2f} s; {took_s:.0f} s in all"
    )
