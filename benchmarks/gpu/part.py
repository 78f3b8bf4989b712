"""Run one part in this process: ``python -m benchmarks.gpu.part NAME FILE SECONDS [--self-check]``.

What it finds is in FILE at every moment. The exit code is 0 when it came to its end.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.hardware import Hardware, open_hardware
from benchmarks.gpu.recorder import Recorder

Run = Callable[[Hardware, Recorder], None]


@dataclass(frozen=True)
class Part:
    """A part of the run.

    Attributes:
        module: Of ``benchmarks.gpu.parts``.
        seconds: On a GPU, starting the process included.
        function: Of the module.
    """

    module: str
    seconds: float
    function: str = "run"


PARTS = {
    "environment": Part("environment", 15),
    "suite": Part("suite", 90),
    "cuda": Part("findings_cuda", 15),
    "torch": Part("findings_torch", 15),
    "jax": Part("findings_jax", 15),
    "two_gpus": Part("two_gpus", 20),
    "ceilings": Part("ceilings", 15),
    "loaders": Part("loaders", 120),
    "loaders_jax": Part("loaders", 30, "run_jax"),
    "end_to_end": Part("end_to_end", 45),
}
"""In the order in which they run: first what shows a fault. Together they take less than seven minutes."""

FINDINGS = ("cuda", "torch", "jax")
"""Parts that answer questions."""


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(PARTS))
    parser.add_argument("file", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--self-check", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes three quarters of the device
    part = PARTS[arguments.name]
    run: Run = getattr(importlib.import_module(f"benchmarks.gpu.parts.{part.module}"), part.function)
    run(open_hardware(arguments.self_check), Recorder(arguments.file, arguments.seconds))


if __name__ == "__main__":
    main()
