"""R07: a signal at any of 50 random moments ends a program within 3 s, with its processes, shared memory and files.

Half of them are SIGINT, half SIGTERM; ``ASD_SIGNALS=500`` in the environment makes it so many moments.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from endings_outside import EXIT_S
from random_endings import ENDING_S, START_S, carried_out

SIGNALS = ["SIGINT", "SIGTERM"]
MOMENTS = int(os.environ.get("ASD_SIGNALS", "50"))
SHARE = -(-MOMENTS // len(SIGNALS))
"""Of the moments, for each signal."""


@pytest.mark.timeout(START_S + SHARE * ENDING_S)
def test_r07_a_signal_at_random_moments_ends_the_program_and_all_that_it_has(tmp_path: Path) -> None:
    def sent(signal: str) -> tuple[list[dict[str, Any]], str]:
        (tmp_path / signal).mkdir()
        return carried_out(signal, 7, SHARE, tmp_path / signal)

    with ThreadPoolExecutor(len(SIGNALS)) as pool:
        for results, errors in pool.map(sent, SIGNALS):
            faults = [f"{result['draw']}: {result['fault']}" for result in results if result["fault"]]
            assert not faults, "\n".join(faults)
            assert errors == ""
            assert len(results) == SHARE
            assert max(result["took_s"] for result in results) < EXIT_S + 2.0  # its orphans included
