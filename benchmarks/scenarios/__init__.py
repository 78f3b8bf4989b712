"""One file per scenario: its work, and who takes part in it."""

from __future__ import annotations

from benchmarks.scenarios.p1 import P1
from benchmarks.scenarios.p2 import P2

SCENARIOS = {scenario.key: scenario for scenario in (P1, P2)}
