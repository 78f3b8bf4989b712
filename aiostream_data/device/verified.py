"""Check whether the installed device code is the code that last passed its tests on a GPU.

Only ``benchmarks/gpu/run.py`` writes the file ``gpu_verified.json``, after all tests and measurements passed on a GPU.
The file contains a hash of the device code that passed. If the installed code has a different hash, the test results do
not apply to the installed code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

Status = Literal["never", "changed", "verified"]

RECORD = "gpu_verified.json"

FRAMEWORKS = ("torch.py", "jax.py")
"""Files in the folder ``integrations`` that pass device batches to a framework.

Files of ``integrations`` that are not listed here do not use devices.
"""

_NOT_RUN_THERE = ("verified.py",)
_SOURCES = (".py", ".cu", ".cuh")


@dataclass(frozen=True, slots=True)
class GpuRun:
    """Record of a run in which all GPU tests and measurements passed.

    Attributes:
        sha256: Hash of the device code that ran; see :func:`device_code_sha256`.
        gpu: Name of the GPU, as reported by its driver.
        machine: Descriptions of the driver, the GPU link and the processor, each under its name.
        versions: Versions of Python, CuPy, the frameworks and other packages, by package name.
        date: Date of the run, as YYYY-MM-DD in UTC.
        results: File with all measurements, relative to the root of the repository.
    """

    sha256: str
    gpu: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    date: str
    results: str


@dataclass(frozen=True, slots=True)
class Verification:
    """Verification status of the device code.

    Attributes:
        status: "never" if the code never ran on a GPU, "changed" if the code changed since the last run, else
            "verified".
        run: The last run that passed; None if the code never ran on a GPU.
    """

    status: Status
    run: GpuRun | None

    def __str__(self) -> str:
        if self.run is None:
            return "device code never run on a GPU"
        where = f"{self.run.gpu} on {self.run.date}"
        if self.status == "changed":
            return f"device code changed since the last GPU run ({where})"
        return f"device code verified on {where}"


def verification() -> Verification:
    """Return the verification status of the installed device code. Touches no device."""
    run = read_run(_package().joinpath("device", RECORD).read_text(encoding="utf-8"))
    if run is None:
        return Verification("never", None)
    return Verification("verified" if run.sha256 == device_code_sha256() else "changed", run)


def read_run(text: str) -> GpuRun | None:
    """Parse the text of ``gpu_verified.json``. Return None if the text does not describe a run."""
    last: dict[str, Any] | None = json.loads(text)["last_run"]
    return None if last is None else GpuRun(**last)


def device_code_sha256() -> str:
    """Return a hash of all files that run on a GPU or call a GPU, as a hexadecimal string.

    A checkout and the package installed from this checkout have the same hash on every operating system.
    """
    return hash_of((name, file.read_bytes()) for name, file in device_files())


def device_files() -> Iterator[tuple[str, Traversable]]:
    """Yield the name and the path of every file that the hash includes, sorted by name within each folder."""
    for folder in ("device", "integrations"):
        for file in sorted(_package().joinpath(folder).iterdir(), key=lambda file: file.name):
            if file.name in _NOT_RUN_THERE or not file.name.endswith(_SOURCES):
                continue
            if folder == "device" or file.name in FRAMEWORKS:
                yield f"{folder}/{file.name}", file


def hash_of(named: Iterator[tuple[str, bytes]]) -> str:
    """Return the SHA-256 of the names and contents of files.

    Windows line endings have no effect on the hash.
    """
    digest = hashlib.sha256()
    for name, content in named:
        content = content.replace(b"\r\n", b"\n")
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _package() -> Traversable:
    return files("aiostream_data")
