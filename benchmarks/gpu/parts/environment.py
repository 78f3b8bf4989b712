"""The machine: GPU, driver, link, processors, NUMA, and every package that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from benchmarks.gpu.hardware import Hardware
from benchmarks.gpu.recorder import Recorder
from benchmarks.machine import circumstances

ASKED = (
    "name,driver_version,memory.total,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,"
    "pcie.link.width.max,clocks.current.sm,clocks.current.memory,power.limit,mig.mode.current,compute_mode"
)


def run(hardware: Hardware, recorder: Recorder) -> None:
    """Note what every other figure depends on."""
    recorder.put(circumstances=circumstances(), gpu=hardware.name, versions=hardware.versions())
    recorder.put(nvidia_smi=nvidia_smi(), numa=numa_nodes(), processors=os.cpu_count(), shm_free_bytes=shm_free())
    runtime = hardware.cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    recorder.put(
        driver=int(runtime.driverGetVersion()),
        runtime=int(runtime.runtimeGetVersion()),
        multiprocessors=int(properties["multiProcessorCount"]),
        memory_bytes=int(properties["totalGlobalMem"]),
        packages=sorted(f"{found.metadata['Name']} {found.version}" for found in distributions()),
    )


def nvidia_smi() -> dict[str, str]:
    """Return what nvidia-smi says of the first GPU; empty where there is no such program, or it says nothing."""
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", f"--query-gpu={ASKED}", "--format=csv,noheader", "--id=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    values = [value.strip() for value in done.stdout.split("\n")[0].split(",")]
    names = ASKED.split(",")
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else {"error": done.stdout + done.stderr}


def numa_nodes() -> dict[str, str]:
    """Return the processors of each NUMA node."""
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*/cpulist"))
    return {path.parent.name: path.read_text().strip() for path in nodes}


def shm_free() -> Any:
    """Return free bytes of ``/dev/shm``, through which worker processes hand batches over."""
    return shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else None
