"""R07: a signal at any of 50 random moments ends a program within 3 s, with its processes, shared memory and files."""

from __future__ import annotations

from pathlib import Path

import pytest
from endings_outside import EXIT_S
from random_endings import ENDING_S, START_S, carried_out

MOMENTS = 50


@pytest.mark.timeout(START_S + MOMENTS * ENDING_S)
@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_r07_a_signal_at_random_moments_ends_the_program_and_all_that_it_has(signal: str, tmp_path: Path) -> None:
    results, errors = carried_out(signal, 7, MOMENTS, tmp_path)
    faults = [f"{result['draw']}: {result['fault']}" for result in results if result["fault"]]
    assert not faults, "\n".join(faults)
    assert errors == ""
    assert len(results) == MOMENTS
    assert max(result["took_s"] for result in results) < EXIT_S + 2.0  # its orphans included
