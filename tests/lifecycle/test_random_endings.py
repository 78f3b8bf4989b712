"""Whatever ends a loader or its program, at whatever moment and in whatever stage, nothing is left two seconds later.

What ends how, and what is looked at, is in :mod:`endings_inside`, :mod:`endings_outside` and :mod:`random_endings`.
With ``ASD_ENDINGS=1000`` in the environment so many endings are carried out, and ``ASD_ENDINGS_SEED`` draws others.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from random_endings import ENDING_S, START_S, carried_out

ENDINGS = int(os.environ.get("ASD_ENDINGS", "250"))
SEED = int(os.environ.get("ASD_ENDINGS_SEED", "4"))
SHARE = {"inside": 0.6, "outside": 0.4}
"""Of the endings, those of a loader in a process that goes on, and those of a whole process."""

SLOWEST_S = 5.0
"""From its moment, with processes that are still starting then, on a machine that has other work to do."""


@pytest.mark.timeout(START_S + ENDINGS * ENDING_S)
@pytest.mark.parametrize("kind", SHARE)
def test_endings_at_random_moments_in_each_stage_leave_nothing(kind: str, tmp_path: Path) -> None:
    count = round(ENDINGS * SHARE[kind])
    results, errors = carried_out(kind, SEED, count, tmp_path)
    faults = [f"{result['draw']}: {result['fault']}" for result in results if result["fault"]]
    assert not faults, "\n".join(faults)
    assert errors == ""
    assert len(results) == count
    slowest = max(results, key=lambda result: result["took_s"])
    sys.stdout.write(f"{kind}: {count} endings, slowest {slowest['took_s']:.2f} s: {slowest['draw']}\n")
    assert slowest["took_s"] < SLOWEST_S
