"""However a plan is run whose function fails on some element, the same elements come before the same error."""

from __future__ import annotations

import warnings

import pytest
from drawn_cases import TIMES
from metamorphic.breaking import try_broken

PLANS = max(20, round(200 * TIMES))
PARTS = 10
"""Tests that share the plans, so that each ends in time."""


@pytest.mark.timeout(120 * max(1.0, TIMES))
@pytest.mark.parametrize("part", range(PARTS))
def test_all_rows_before_the_failing_one_come_first_however_a_plan_is_run(part: int) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cannot limit memory use", RuntimeWarning)
        warnings.filterwarnings("ignore", "cannot keep the decompressors", RuntimeWarning)
        wrong = [try_broken(seed) for seed in range(part, PLANS, PARTS)]
    assert [one for one in wrong if one is not None] == []
