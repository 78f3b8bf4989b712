"""Ask everything that only a GPU can tell, in less than seven minutes: ``python -m benchmarks.gpu.run --out FOLDER``.

Each part runs in a process of its own, for no longer than its seconds: one that fails, hangs or takes the device down
costs its own answers alone. What was found so far is in ``FOLDER/gpu.json`` at every moment, the predictions first of
all. The table comes last. When everything passed, the record that ``aiostream-data doctor`` and the README go by is
written, to FOLDER and into the package.

``--self-check`` runs every part without a GPU, on a CuPy made of NumPy: it shows that the script runs, no more.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from aiostream_data.device.verified import device_code_sha256
from benchmarks.gpu.hardware import ROOT
from benchmarks.gpu.part import PARTS, Part
from benchmarks.gpu.predictions import judge, written_down
from benchmarks.gpu.record import write_record
from benchmarks.gpu.summary import summary
from benchmarks.gpu.verdict import still_open, what_failed
from benchmarks.machine import circumstances

SELF_CHECK_SECONDS = 20.0
"""For each part of a self-check; most need two or three."""

GRACE_S = 5.0
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Of a self-check, whose matrices are tiny: so it disturbs nobody."""


def run_part(name: str, part: Part, seconds: float, self_check: bool) -> dict[str, Any]:
    """Run a part in a process of its own; return what it found, its ending and its seconds."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, "-m", "benchmarks.gpu.part", name, str(file), str(seconds)]
        started = time.perf_counter()
        ending = _watched([*command, "--self-check"] if self_check else command, seconds + GRACE_S, self_check)
        found = json.loads(file.read_text()) if file.exists() else {}
    return {**found, "ending": ending, "seconds": round(time.perf_counter() - started, 2)}


def _watched(command: list[str], seconds: float, self_check: bool) -> str:
    """Return ``done``, or how the process ended instead. None of its children outlives it."""
    environment = {**os.environ, **(ONE_THREAD if self_check else {})}
    with TemporaryFile() as said:  # no pipe, which a child that is left over would keep open
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"ended after {seconds:g} s"
        finally:
            with suppress(ProcessLookupError):  # all of them have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        words = said.read().decode(errors="replace")[-3000:]
    return "done" if process.returncode == 0 else f"exit {process.returncode}: {words}"


def run_all(names: list[str], total_s: float, self_check: bool, out: Path) -> dict[str, Any]:
    """Run the parts, and keep what they found in ``out`` as they go."""
    until = time.monotonic() + total_s
    result: dict[str, Any] = {
        "predictions": written_down(),
        "device": "none",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device_code_sha256": device_code_sha256(),
        "circumstances": circumstances(),
        "parts": {},
    }
    for name in names:
        _keep(out, result)
        part = PARTS[name]
        seconds = min(SELF_CHECK_SECONDS if self_check else part.seconds, until - time.monotonic() - GRACE_S)
        if seconds <= 0:
            result["parts"][name] = {"ending": "no time was left", "seconds": 0}
            continue
        result["parts"][name] = run_part(name, part, seconds, self_check)
        print(f"{name}: {result['parts'][name]['ending'][-300:]} ({result['parts'][name]['seconds']} s)", flush=True)
    result["device"] = result["parts"].get("environment", {}).get("gpu", "none")
    result["judged"] = judge({} if self_check else result["parts"])
    result["failed"] = what_failed(result["parts"], self_check)
    result["open"] = still_open(result["parts"])
    result["passed"] = not result["failed"] and result["device"] != "none" and set(names) == set(PARTS)
    _keep(out, result)
    return result


def _keep(out: Path, result: dict[str, Any]) -> None:
    beside = out.with_suffix(".new")
    beside.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(beside, out)


def main() -> None:
    """Run what the command line asks for; the exit code is 1 when something failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--self-check", action="store_true", help="without a GPU, to see that the script runs")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=400, help="for everything together")
    parser.add_argument("--out", type=Path, help="folder for what was found; a self-check needs none")
    arguments = parser.parse_args()
    if arguments.out is None and not arguments.self_check:
        parser.error("--out is needed: it is what to bring back from the machine")
    with TemporaryDirectory() as folder:
        out: Path = arguments.out or Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        result = run_all(arguments.only, arguments.seconds, arguments.self_check, out / "gpu.json")
        if result["passed"]:
            write_record(result, out)
    print(summary(result))
    sys.exit(1 if result["failed"] else 0)


if __name__ == "__main__":
    main()
