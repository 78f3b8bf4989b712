"""Write the record of a run that passed, which ``aiostream-data doctor``, the README and a test go by."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiostream_data.device.verified import RECORD, GpuRun, device_code_sha256
from benchmarks.gpu.hardware import ROOT


def record_of(result: dict[str, Any], results_file: Path) -> GpuRun:
    """Return what is kept of a run.

    Raises:
        ValueError: The run did not pass, or the code has changed since it began.
    """
    if not result["passed"]:
        raise ValueError(f"the run did not pass: {result['failed']}")
    if result["device_code_sha256"] != device_code_sha256():
        raise ValueError("the device code has changed since the run began: run it again")
    environment = result["parts"]["environment"]
    smi = environment["nvidia_smi"]
    return GpuRun(
        sha256=result["device_code_sha256"],
        gpu=result["device"],
        machine={
            "driver": smi.get("driver_version", str(environment["driver"])),
            "link": f"PCIe {smi.get('pcie.link.gen.max', '?')} x{smi.get('pcie.link.width.max', '?')}",
            "processor": environment["circumstances"]["cpu_model"],
            "processors": environment["processors"],
            "two_gpus": _two_gpus(result["parts"]["two_gpus"]),
        },
        versions={"python": environment["circumstances"]["python"], **environment["versions"]},
        date=result["date"][:10],
        results=results_file.as_posix(),
    )


def _two_gpus(found: dict[str, Any]) -> str:
    return f"skipped: {found['skipped']}" if "skipped" in found else "verified"


def _unused(name: str) -> Path:
    """Return a file for results that does not replace those of an earlier run of the same day."""
    folder = Path("benchmarks/gpu/results")
    names = (f"{name}{suffix}.json" for suffix in ("", *(f"_{number}" for number in range(2, 100))))
    return next(folder / each for each in names if not (ROOT / folder / each).exists())


def write_record(result: dict[str, Any], out: Path) -> GpuRun:
    """Write the record to ``out``, and into the package of this checkout; say where the results are to be kept."""
    results_file = _unused(f"{result['device'].lower().replace(' ', '_')}_{result['date'][:10]}")
    run = record_of(result, results_file)
    text = json.dumps({"last_run": asdict(run)}, indent=1) + "\n"
    for folder in (out, ROOT / "aiostream_data" / "device"):
        (folder / RECORD).write_text(text)
    (ROOT / results_file).parent.mkdir(parents=True, exist_ok=True)
    for file in (out / results_file.name, ROOT / results_file):
        file.write_text(json.dumps(result, indent=1) + "\n")
    return run
