"""One file per scenario, or family of scenarios: its work, and who takes part in it."""

from __future__ import annotations

from benchmarks.scenarios.in_subprocess import P1_IN_SUBPROCESS, P3_IN_SUBPROCESS
from benchmarks.scenarios.p1 import P1
from benchmarks.scenarios.p1_bytes import P1_BYTES
from benchmarks.scenarios.p2 import P2
from benchmarks.scenarios.p3 import P3
from benchmarks.scenarios.p3d import P3D
from benchmarks.scenarios.p5 import P5
from benchmarks.scenarios.p6 import P6A, P6B, P6C

_ALL = (P1, P1_BYTES, P2, P3, P3D, P5, P6A, P6B, P6C, P1_IN_SUBPROCESS, P3_IN_SUBPROCESS)
SCENARIOS = {scenario.key: scenario for scenario in _ALL}
